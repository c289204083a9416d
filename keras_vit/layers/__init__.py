"""The layers a Vision Transformer is made of."""

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.attention_pooling import AttentionPooling
from keras_vit.layers.class_token import ClassToken, RegisterTokens
from keras_vit.layers.classification_head import ClassificationHead
from keras_vit.layers.group_norm import GroupNorm
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mask_annealing import MaskAnnealing
from keras_vit.layers.masks import MaskLogits, UpscaleBlock
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.patch_grid import PatchGrid
from keras_vit.layers.patch_map import PatchMap
from keras_vit.layers.pooling_layers import (
    ClassTokenAndPatchPooling,
    ClassTokenPooling,
    DistillationPooling,
    PatchPooling,
    QueryPooling,
)
from keras_vit.layers.position_embedding import AddPositionEmbs, AddPositionEmbs2D
from keras_vit.layers.positions import RelativePositionEmbedding
from keras_vit.layers.relative_position import RelativePositionBias
from keras_vit.layers.residual_unit import PreActivationUnit, ResidualUnit
from keras_vit.layers.rotation import RotaryPositions
from keras_vit.layers.std_conv import StdConv2D
from keras_vit.layers.stochastic_depth import StochasticDepth
from keras_vit.layers.transformer_block import PostNormBlock, TransformerBlock

__all__ = [
    "MLP", "AddPositionEmbs", "AddPositionEmbs2D", "AttentionPooling", "ClassToken",
    "ClassTokenAndPatchPooling", "ClassTokenPooling", "ClassificationHead",
    "DistillationPooling", "GroupNorm", "LayerNorm", "LayerScale", "MaskAnnealing",
    "MaskLogits",
    "PatchEncoder", "PatchGrid", "PatchMap", "PatchPooling", "PostNormBlock",
    "PreActivationUnit", "QueryPooling", "RegisterTokens", "RelativePositionBias",
    "RelativePositionEmbedding", "ResidualUnit", "RotaryPositions",
    "SelfAttention", "StdConv2D", "StochasticDepth", "TransformerBlock", "UpscaleBlock",
]  # fmt: skip

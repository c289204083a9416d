"""Attention, features and filters of a Vision Transformer: the paper's section 4.5."""

from keras_vit.explain.attention import (
    attention_distance,
    attention_maps,
    attention_rollout,
    mean_attention_maps,
    patch_map,
    pooling_attention,
)
from keras_vit.explain.filters import Filters, embedding_filters
from keras_vit.explain.gradients import gradient_attention
from keras_vit.explain.position_similarity import position_embedding_similarity
from keras_vit.explain.sinks import attention_sinks, received_attention
from keras_vit.explain.tokens import Features, principal_colors, token_features
from keras_vit.structure.image_sizes import grid_size

__all__ = [
    "Features", "Filters", "attention_distance", "attention_maps",
    "attention_rollout", "attention_sinks", "embedding_filters", "gradient_attention",
    "grid_size", "mean_attention_maps", "patch_map", "pooling_attention",
    "position_embedding_similarity", "principal_colors", "received_attention",
    "token_features",
]  # fmt: skip

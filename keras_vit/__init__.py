"""The Vision Transformer for Keras 3, exact to the released weights."""

import keras_vit_start

# Before anything else is imported, which would say less of what is wrong.
keras_vit_start.need_ours("zoo")
keras_vit_start.need_backend()

from keras_vit import explain, layers
from keras_vit.inference.preprocessing import decode_predictions, preprocess_input
from keras_vit.inference.stream import classify, embed
from keras_vit.layers import (
    AddPositionEmbs,
    ClassToken,
    PatchEncoder,
    TransformerBlock,
)
from keras_vit.models import bit, resnet_v2  # noqa: F401 - registers them
from keras_vit.models.features import features
from keras_vit.models.mask_loss import MaskLoss
from keras_vit.models.resizing import at_image_size
from keras_vit.models.segmenter import segmenter
from keras_vit.models.semantic_map import semantic_map
from keras_vit.models.variants import (
    R26_ViT_B32,
    R26_ViT_S32,
    R50_ViT_B16,
    R50_ViT_L32,
    R_ViT_Ti16,
    ViT_B8,
    ViT_B16,
    ViT_B32,
    ViT_H14,
    ViT_L16,
    ViT_L32,
    ViT_S16,
    ViT_S32,
    ViT_Ti16,
)
from keras_vit.models.vision_transformer import VisionTransformer, load_model
from keras_vit.runtimes.predictor import Predictor
from keras_vit.version import __version__
from keras_vit.weights.quantization import quantize_weights
from keras_vit.weights.released_files import (
    load_released_weights,
    save_released_weights,
)
from zoo import VARIANTS, ViTConfig

__all__ = [
    "VARIANTS", "AddPositionEmbs", "ClassToken", "MaskLoss", "PatchEncoder",
    "Predictor",
    "R26_ViT_B32", "R26_ViT_S32", "R50_ViT_B16", "R50_ViT_L32", "R_ViT_Ti16",
    "TransformerBlock",
    "ViTConfig", "ViT_B8", "ViT_B16", "ViT_B32", "ViT_H14", "ViT_L16", "ViT_L32",
    "ViT_S16", "ViT_S32", "ViT_Ti16", "VisionTransformer", "__version__",
    "at_image_size", "classify", "decode_predictions", "embed", "explain", "features",
    "layers", "load_model",
    "load_released_weights", "preprocess_input", "quantize_weights",
    "save_released_weights", "segmenter", "semantic_map",
]  # fmt: skip


def __getattr__(name):
    remedy = ": BiT is keras_vit.models.bit" if "bit" in name.lower() else ""
    if name in layers.__all__:
        remedy = f": it is keras_vit.layers.{name}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{remedy}.")

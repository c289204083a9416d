"""Released Vision Transformers as data: catalogue, store, files, resizing.

The ground floor: NumPy only, no Keras, no TensorFlow.

    >>> import zoo
    >>> card = zoo.find("ViT-Ti_16", "augreg-imagenet21k")
    >>> card.image_size
    224
"""

from zoo import augreg, registry
from zoo.architectures import ARCHITECTURES, Architecture
from zoo.catalog import (
    LABEL_FILES,
    CatalogError,
    ModelCard,
    default_classifier,
    default_release,
    find,
    get,
    list_models,
    releases,
)
from zoo.checkpoint import Checkpoint, CheckpointError, read, write
from zoo.labels import class_names
from zoo.locate import locate
from zoo.model_card import Accuracy, Citation, Inference
from zoo.position_embedding import resize
from zoo.registry import PublishedModel
from zoo.store import StoreError, fetch, verify

__all__ = [
    "ARCHITECTURES",
    "LABEL_FILES",
    "Accuracy",
    "Architecture",
    "CatalogError",
    "Checkpoint",
    "CheckpointError",
    "Citation",
    "Inference",
    "ModelCard",
    "PublishedModel",
    "StoreError",
    "augreg",
    "class_names",
    "default_classifier",
    "default_release",
    "fetch",
    "find",
    "get",
    "list_models",
    "locate",
    "read",
    "registry",
    "releases",
    "resize",
    "verify",
    "write",
]

"""Released Vision Transformers as data: catalogue, store, files, resizing.

The ground floor: NumPy only, no Keras, no TensorFlow.

    >>> import zoo
    >>> card = zoo.find("ViT-Ti_16", "augreg-imagenet21k")
    >>> card.image_size
    224
"""

from zoo.catalog import (
    LABEL_FILES,
    CatalogError,
    ModelCard,
    augreg,
    default_classifier,
    default_release,
    find,
    get,
    list_models,
    registry,
    releases,
)
from zoo.catalog.labels import class_names
from zoo.catalog.locate import locate
from zoo.catalog.model_card import Accuracy, Citation, Inference
from zoo.catalog.registry import PublishedModel
from zoo.files.checkpoint import Checkpoint, CheckpointError, read, write
from zoo.network import ARCHITECTURES, Architecture
from zoo.position_embedding import resize
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

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
    default_release,
    find,
    get,
    list_models,
    releases,
)
from zoo.checkpoint import Checkpoint, CheckpointError, read, write
from zoo.labels import class_names
from zoo.position_embedding import resize
from zoo.store import StoreError, fetch, verify

__all__ = [
    "LABEL_FILES",
    "CatalogError",
    "Checkpoint",
    "CheckpointError",
    "ModelCard",
    "StoreError",
    "class_names",
    "default_release",
    "fetch",
    "find",
    "get",
    "list_models",
    "read",
    "releases",
    "resize",
    "verify",
    "write",
]

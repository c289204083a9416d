"""Released Vision Transformers as data: catalogue, store, files, resizing.

The ground floor: NumPy only, no Keras, no TensorFlow.

    >>> import zoo
    >>> card = zoo.find("ViT-Ti_16", "augreg-imagenet21k")
    >>> card.image_size
    224
"""

# Deep inside other imports NumPy takes CPython 10 ms more: its frames change chunks.
import numpy  # noqa: F401

from zoo.catalog import augreg, registry
from zoo.catalog.families import HubModel
from zoo.catalog.labels import LABEL_FILES, class_names
from zoo.catalog.registry import PublishedModel
from zoo.libraries.checkpoint import Checkpoint, CheckpointError, read
from zoo.libraries.writing import write
from zoo.network import VARIANTS, ViTConfig
from zoo.network.position_embedding import resize
from zoo.store import StoreError, fetch, verify

from zoo.catalog.handles import (  # isort: skip
    default_classifier, default_release, find, get, list_models, releases,
)  # fmt: skip
from zoo.catalog.locate import locate  # isort: skip
from zoo.catalog.model_card import (  # isort: skip
    Accuracy, CatalogError, Citation, Inference, ModelCard,
)  # fmt: skip

__all__ = [
    "VARIANTS", "LABEL_FILES", "Accuracy", "CatalogError",
    "Checkpoint", "CheckpointError", "Citation", "HubModel", "Inference",
    "ModelCard", "PublishedModel", "StoreError", "ViTConfig", "augreg", "class_names",
    "default_classifier", "default_release", "fetch", "find", "get", "list_models",
    "locate", "read", "registry", "releases", "resize", "verify", "write",
]  # fmt: skip

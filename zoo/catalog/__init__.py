"""The catalogue: released and published models, their cards and their names.

`cards` reads the tables of the released files, `released` searches them;
`augreg` has the other AugReg files, `registry` what users publish. `locate` decides
what a name, path or URL refers to.
"""

from zoo.catalog import augreg, registry
from zoo.catalog.labels import LABEL_FILES
from zoo.catalog.locate import get, list_models, named
from zoo.catalog.model_card import CatalogError, ModelCard
from zoo.catalog.registry import PublishedModel
from zoo.catalog.released import (
    default_classifier,
    default_release,
    find,
    is_release,
    releases,
)

__all__ = [
    "LABEL_FILES",
    "CatalogError",
    "ModelCard",
    "PublishedModel",
    "augreg",
    "default_classifier",
    "default_release",
    "find",
    "get",
    "is_release",
    "list_models",
    "named",
    "registry",
    "releases",
]

"""The architectures of models: what tools ask about each, registered in one place."""

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any

import keras

import zoo

_ARCHITECTURES = {}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """What loading, saving, training and explaining ask about an architecture.

    Attributes:
        name: str, by which saved models and messages name it.
        config: class of its configs, a dataclass of values that JSON can hold. Models
            have one as their `config`.
        make: function of a config, or the name of one in `zoo.network.NETWORKS`, and
            of weights or None, to a model. It takes `image_size` and `classes`, and
            those of the other settings of a recipe that it names as arguments.
        files: None where its arrays have no released names, or an object or module with
            functions `load(model, source, **options)`, `save(model, path, naming)` and
            `weights_of(model)`, which gives weights for `make`.
        one_grid: bool, whether all its blocks have the same grid of patches, which
            attention maps, maps of features and other image sizes need.
        batch_norm: bool, whether it normalises by the statistics of batches, of which
            each device would have its own.
    """

    name: str
    config: type
    make: Callable
    files: object = None
    one_grid: bool = False
    batch_norm: bool = False

    def takes(self, argument: str) -> bool:
        """Returns whether `make` has an argument."""
        return argument in inspect.signature(self.make).parameters


def register(architecture: Architecture) -> None:
    """Adds an architecture to those that tools know."""
    _ARCHITECTURES[architecture.name] = architecture


def named(name: str) -> Architecture:
    """Returns the architecture that a saved model names."""
    if name not in _ARCHITECTURES:
        raise ValueError(
            f"There is no architecture {name!r} among {', '.join(_ARCHITECTURES)}: "
            "import the module that registers it."
        )
    return _ARCHITECTURES[name]


def of_config(config: object) -> Architecture:
    """Returns the architecture that a config is of."""
    if (architecture := _with_config(config)) is None:
        raise ValueError(
            f"{type(config).__name__} is the config of no architecture: pass one of "
            f"{', '.join(one.config.__name__ for one in _ARCHITECTURES.values())}."
        )
    return architecture


def _with_config(config):
    # Users' own models may have a config of any kind.
    known = {one.config: one for one in _ARCHITECTURES.values()}
    kinds = (kind for kind in type(config).__mro__ if kind in known)
    return next((known[kind] for kind in kinds), None)


def of_model(model: keras.Model) -> Architecture:
    """Returns the architecture of a model.

    A model that users compose of layers is taken for a Vision Transformer.
    """
    own = _with_config(getattr(model, "config", None))
    return own or of_config(zoo.ViTConfig())


def config_of(model: keras.Model) -> Any:
    """Returns the config of a model that knows its network; a ValueError of others."""
    config = getattr(model, "config", None)
    if _with_config(config) is None:
        raise ValueError(
            f"Model {model.name!r} does not know which network it is, as clones, "
            "models around others and graphs of their tensors do not: pass the model "
            "itself, which model.rebuild(classes=K) gives another head, or keep this "
            "one with Model.save."
        )
    return config


def of_file(
    source: str | os.PathLike | zoo.Checkpoint,
) -> tuple[Architecture, object] | None:
    """Returns the architecture and the config of an `.npz` that is no ViT's, or None.

    Args:
        source: what `zoo.locate` finds, or a `zoo.Checkpoint`.
    """
    if isinstance(source, zoo.Checkpoint) or not str(source).endswith(".npz"):
        return None
    path = zoo.locate(source)
    for architecture in _ARCHITECTURES.values():
        config_in = getattr(architecture.files, "config_in", None)
        if config_in is not None and (config := config_in(path)) is not None:
            return architecture, config
    return None


def files_of(model: keras.Model) -> Any:
    """Returns the `files` of a model's architecture; a ValueError where it has none."""
    architecture = of_config(config_of(model))
    if architecture.files is None:
        raise ValueError(
            f"Model {model.name!r} is a {architecture.name}, whose weights have no "
            "released names: keep it with Model.save and load it with "
            "keras.saving.load_model."
        )
    return architecture.files


def check_one_grid(model: keras.Model) -> None:
    """Raises a ValueError if a model, or one in it, has several grids of patches."""
    architecture = _with_config(getattr(model, "config", None))
    if architecture is not None and not architecture.one_grid:
        raise ValueError(
            f"The model {model.name} is a {architecture.name}, whose layers do not "
            "share one grid of patches: pass a Vision Transformer."
        )
    parts = [layer for layer in model.layers if isinstance(layer, keras.Model)]
    networks = [part.name for part in parts if _with_config(_config(part)) is not None]
    if len(networks) > 1:
        raise ValueError(
            f"The model {model.name} is of several networks, which do not share one "
            f"grid of patches: pass one of them, such as "
            f"model.get_layer({networks[0]!r})."
        )
    for part in parts:
        check_one_grid(part)


def _config(model):
    return getattr(model, "config", None)

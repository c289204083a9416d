"""Loads a model by directory, file or name."""

import dataclasses
import os
import pathlib
import re

import keras

import keras_vit
from keras_vit.layers import PatchEncoder
from keras_vit.models.base import of_features
from keras_vit.structure import (
    architectures,
    bits_of,
    check_no_queries,
    head_activation,
    head_of,
    layer_of_pixels,
    layers_of,
    preparation_of,
    set_bits,
)
from keras_vit.structure.image_sizes import own_image_size
from train.common.errors import RunError
from train.models import finding
from train.models.averaging import members
from train.models.finding import FoundModel
from train.models.keras_files import load_model
from train.models.run_directory import RunDirectory
from zoo.catalog.locate import read_located
from zoo.common.regular_files import expand_home
from zoo.network import pair


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A loaded model and its metadata.

    Args:
        name: str, for the names of files.
        model: `keras.Model` from images in [-1, 1] to logits, or to features.
        class_names: tuple of str in the order of the head, or the name of a list of
            `zoo.class_names`; None where unknown.
        config: dict, the recipe of the run that it comes from; empty without a run.
        source: str, what it was loaded from.
    """

    name: str
    model: keras.Model
    class_names: tuple[str, ...] | None = None
    config: dict = dataclasses.field(default_factory=dict)
    source: str = ""

    def bits(self, requested: int | None = None) -> tuple[int | None, list[str]]:
        """Returns the bits of photos and what to print, see `finding.bits_of`."""
        return finding.bits_of(self.source, bits_of(self.model), requested)


def load(
    source: str | FoundModel,
    *,
    image_size: int | tuple[int, int] | None = None,
    features: bool = False,
    masks: bool = False,
) -> LoadedModel:
    """Loads a model.

    Args:
        source: str, the directory of a finished run, a `.keras` file, or whatever
            `keras_vit.load_model` takes; or what `train.models.finding.find` has found.
            A name of the zoo takes precedence over a directory of that name.
        image_size: int or (height, width) in pixels, to which the position embeddings
            are resized; by default that of the model, and of a model for images of any
            size that of its positions.
        features: bool, whether to leave out the head: the outputs are then its inputs,
            those of `pre_logits` where the model has it. Weights without a head give
            features in any case.
        masks: bool, whether it may have queries for masks.

    Returns:
        `LoadedModel`.

    Raises:
        RunError: there is no such model, it is damaged, or it cannot be used.

    Example:
        >>> load("runs/digits").model.output_shape  # doctest: +SKIP
        (None, 10)
    """
    place = finding.find(source)
    try:
        if place.keras_file is None:
            loaded = _of_weights(place.source, image_size, features)
        else:
            loaded = _of_keras_file(place, image_size, features)
        if not masks:
            check_no_queries(loaded.model)
        return loaded
    except (ValueError, OSError, KeyError) as error:
        raise RunError(f"The model {place.source} cannot be used: {error}") from error


def image_shape_of(
    loaded: LoadedModel, channels: tuple[int, ...] = (3,)
) -> tuple[int, int, int]:
    """Returns (height, width, channels); refuses models of other channels or ranges.

    Models that begin with a layer for pixels up to 255, as Keras's own do, are refused:
    numbers in [-1, 1] would all look alike to them.
    """
    shape = loaded.model.input_shape[1:]
    if len(shape) != 3 or None in shape or shape[2] not in channels:
        allowed = " or ".join(f"(height, width, {count})" for count in channels)
        raise RunError(
            f"The model {loaded.name} takes images of shape {shape}: give one that "
            f"takes {allowed} of a fixed size."
        )
    if (layer := layer_of_pixels(loaded.model)) is not None:
        raise RunError(
            f"The layer {layer.name} of the model {loaded.name} takes pixels up to "
            "255, but images come in [-1, 1]: save a model that calls it on "
            "keras.layers.Rescaling(127.5, 127.5)(images)."
        )
    return shape


def _of_keras_file(place, image_size, features):
    path = place.keras_file
    name, config = path.stem, {}
    if place.run is not None:
        name, config = place.run.path.resolve().name, place.run.read_config()
    model = load_model(path)
    size = model.input_shape[1:3]
    if image_size is None and size == (None, None):
        image_size = own_image_size(model)
    if image_size is not None and size != pair(image_size, "image_size"):
        model = keras_vit.at_image_size(model, image_size)
    if features:
        if parts := members(model):
            raise RunError(
                f"{path} averages {len(parts)} networks, whose features are not one "
                "row per photo: pass a model of one, which finetune --single finds."
            )
        for encoder in layers_of(model, PatchEncoder):
            encoder.preparation = preparation_of(model)
        set_bits(model, bits_of(model))
        model = of_features(model, model.get_layer("head").input)
    class_names = _class_names(path, model, features)
    return LoadedModel(_name(name), model, class_names, config, place.source)


def _class_names(path, model, features):
    """Returns the class names of a model: of the file beside it, else of its head.

    The file can be corrected by hand, and goes first. Names are None where neither
    has them.
    """
    run = RunDirectory(path.parent)
    if features:
        return None
    own = getattr(head_of(model), "class_names", None)
    if not run.class_names.exists():
        return own
    names, outputs = run.read_class_names(), model.output_shape[-1]
    if len(names) == outputs:
        return names
    if own is not None or head_activation(model) is None:
        return own
    raise RunError(
        f"{run.class_names} has {len(names)} lines, but {path} has {outputs} "
        "classes: write one name per line, or move the file away if it belongs to "
        "another model."
    )


def _of_weights(source, image_size, features):
    options = {"image_size": image_size}
    if architectures.of_file(source) is not None:
        model = keras_vit.load_model(source, include_top=not features, **options)
        return LoadedModel(_name(pathlib.Path(source).stem), model, source=source)
    checkpoint = read_located(source)
    if features:
        checkpoint = checkpoint.without_queries()
    # Models of many families are published without a head.
    features = features or checkpoint.classes is None
    if features:
        options["include_top"] = False
        options["representation_size"] = checkpoint.representation_size
    model = keras_vit.load_model(checkpoint, **options)
    class_names = _class_names(pathlib.Path(checkpoint.path), model, features)
    name = checkpoint.name or str(source).rstrip("/")
    if checkpoint.name is None and ("://" in name or expand_home(name).exists()):
        name = os.path.splitext(os.path.basename(name))[0]
    return LoadedModel(_name(name), model, class_names, source=source)


def _name(text):
    return re.sub(r"[^\w.+-]+", "-", text)

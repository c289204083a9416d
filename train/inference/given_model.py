"""Loads a model by directory, file or name, and computes its outputs for a data set."""

import contextlib
import dataclasses
import os
import pathlib
import re

import keras
import numpy as np

import keras_vit
import zoo
from keras_vit.weights import read_weights
from train.common.errors import RunError
from train.common.progress import progress_bar
from train.data import pipeline
from train.engine.loop import explaining_full_memory
from train.inference.heads import has_head
from train.inference.keras_files import load_model
from train.inference.run_directory import RunDirectory
from zoo.catalog import registry
from zoo.catalog.locate import fetch_card
from zoo.network import pair
from zoo.store import hub

# The remedy where the memory is full.
LESS_MEMORY = "lower --batch_size or --image_size."


@dataclasses.dataclass(frozen=True)
class GivenModel:
    """A loaded model and its metadata.

    Args:
        name: str, for the names of files.
        model: `keras.Model` from images in [-1, 1] to logits, or to features.
        class_names: tuple of str in the order of the head, None where unknown.
        config: dict, the recipe of the run that it comes from; empty without a run.
    """

    name: str
    model: keras.Model
    class_names: tuple[str, ...] | None = None
    config: dict = dataclasses.field(default_factory=dict)


def load(source, *, image_size=None, features=False):
    """Loads a model.

    Args:
        source: str, the directory of a finished run, a `.keras` file, or whatever
            `keras_vit.load_model` takes. A name of the zoo takes precedence over a
            directory of that name.
        image_size: int or (height, width) in pixels, to which the position embeddings
            are resized; by default that of the model.
        features: bool, whether to leave out the head: the outputs are then its inputs,
            those of `pre_logits` where the model has it.

    Returns:
        `GivenModel`.

    Raises:
        RunError: there is no such model, it is damaged, or it cannot be used.

    Example:

    >>> load("runs/digits").model.output_shape  # doctest: +SKIP
    (None, 10)
    """
    path = pathlib.Path(source).expanduser()
    try:
        card = zoo.catalog.named(source) if isinstance(source, str) else None
        if card is None and path.is_dir() and not (path / registry.CARD).is_file():
            run = RunDirectory(path)
            if run.model.is_file() or run.checkpoints.is_dir():
                return _of_run(run, image_size, features)
        if path.suffix == ".keras":
            return _of_keras_file(path, image_size, features)
        return _of_weights(source, card, image_size, features)
    except (ValueError, OSError, KeyError) as error:
        raise RunError(f"The model {source} cannot be used: {error}") from error


def answers(predictor, batches, split):
    """Returns labels (examples,) and outputs (examples, ...) of a split, in its order.

    Args:
        predictor: `keras_vit.Predictor`.
        batches: `tf.data.Dataset` of (images, labels), made from the split.
        split: `train.data.sources.splits.Split`.

    Raises:
        RunError: an image cannot be decoded, the memory is full, or an output is not
            finite.
    """
    all_labels, all_outputs = [], []
    with (
        progress_bar(total=split.num_examples, unit="image", desc="images") as bar,
        explaining_full_memory(LESS_MEMORY),
    ):
        for images, labels in pipeline.explained(batches, split):
            all_outputs.append(predictor(images))
            all_labels.append(labels.numpy())
            bar.update(len(all_labels[-1]))
    outputs = np.concatenate(all_outputs)
    finite = np.isfinite(outputs.reshape(len(outputs), -1)).all(axis=1)
    if not finite.all():
        raise RunError(
            f"The model's outputs for {np.sum(~finite):,} of {len(outputs):,} images "
            "are not finite: it has diverged in training, or its precision is too "
            "small for it. Pass another model."
        )
    return np.concatenate(all_labels), outputs


def image_size_of(loaded):
    """Returns the (height, width) of a model's images of three channels.

    Raises:
        RunError: the model takes other inputs, or several sizes.
    """
    shape = loaded.model.input_shape
    if len(shape) != 4 or None in shape[1:] or shape[3] != 3:
        raise RunError(
            f"The model {loaded.name} takes images of shape {shape[1:]}: give one that "
            "takes (height, width, 3) of a fixed size."
        )
    return shape[1:3]


def _of_run(run, image_size, features):
    run.require(run.model)
    loaded = _of_keras_file(run.model, image_size, features)
    return dataclasses.replace(
        loaded, name=_name(run.path.resolve().name), config=run.read_config()
    )


def _of_keras_file(path, image_size, features):
    model = load_model(path)
    _check_ends(path, model)
    if image_size is not None and model.input_shape[1:3] != pair(
        image_size, "image_size"
    ):
        model = keras_vit.at_image_size(model, image_size)
    if features:
        features_of = model.get_layer("head").input
        model = keras.Model(model.inputs[0], features_of, name=model.name)
    return GivenModel(_name(path.stem), model, _names_beside(path, model, features))


def _names_beside(path, model, features):
    """Returns the class names beside the file of a model, None without them."""
    run = RunDirectory(path.parent)
    if features or not run.class_names.is_file():
        return None
    names, outputs = run.read_class_names(), model.output_shape[-1]
    if len(names) != outputs:
        if not has_head(model):
            return None
        raise RunError(
            f"{run.class_names} has {len(names)} lines, but {path} has {outputs} "
            "classes: write one name per line, or move the file away if it belongs to "
            "another model."
        )
    return names


def _check_ends(path, model):
    inputs, outputs = (
        getattr(model, ends, None) or () for ends in ("inputs", "outputs")
    )
    if len(inputs) != 1 or len(outputs) != 1:
        raise RunError(
            f"The model {path} cannot be used: it has {len(inputs)} known inputs and "
            f"{len(outputs)} outputs, where one of each is needed. Save a functional "
            "keras.Model from images to logits."
        )


def _of_weights(source, card, image_size, features):
    checkpoint = read_weights(source if card is None else fetch_card(card))
    options = {"image_size": image_size}
    if features:
        options["include_top"] = False
        options["representation_size"] = checkpoint.representation_size
    model = keras_vit.load_model(checkpoint, **options)
    place = str(source).rstrip("/")
    file = pathlib.Path(place).expanduser()
    if card is None:
        card = _card(source, file)
    if isinstance(card, zoo.PublishedModel):
        return GivenModel(card.name, model, card.class_names)
    class_names = None
    if file.is_file():
        class_names = _names_beside(file, model, features)
    if "://" in place or file.exists():
        place = os.path.splitext(os.path.basename(place))[0]
    return GivenModel(_name(place), model, class_names)


def _card(source, folder):
    """Returns the card of a model on the hub or in a folder, None without one."""
    with contextlib.suppress(zoo.CatalogError):
        if isinstance(source, str) and hub.is_handle(source):
            return zoo.get(source)
        if (folder / registry.CARD).is_file():
            return registry.read(folder)
    return None


def _name(text):
    return re.sub(r"[^\w.+-]+", "-", text)

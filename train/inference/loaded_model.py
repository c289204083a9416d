"""Loads a model by directory, file or name; its outputs for a data set, its speed."""

import contextlib
import dataclasses
import os
import pathlib
import re
import time

import keras
import numpy as np

import keras_vit
import zoo
from keras_vit.weights.loading import read_weights
from train.common.errors import RunError
from train.common.progress import progress_bar
from train.data import pipeline
from train.engine.loop import explaining_full_memory
from train.inference.heads import has_head
from train.inference.keras_files import load_model
from train.inference.run_directory import RunDirectory
from zoo.catalog import registry
from zoo.catalog.locate import fetch_card, named
from zoo.network import pair
from zoo.store import hub

# The remedy where the memory is full.
LESS_MEMORY = "lower --batch_size or --image_size."


@dataclasses.dataclass(frozen=True)
class LoadedModel:
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
        `LoadedModel`.

    Raises:
        RunError: there is no such model, it is damaged, or it cannot be used.

    Example:

    >>> load("runs/digits").model.output_shape  # doctest: +SKIP
    (None, 10)
    """
    path = pathlib.Path(source).expanduser()
    try:
        card = named(source) if isinstance(source, str) else None
        if card is None and path.is_dir() and not (path / registry.CARD).is_file():
            run = RunDirectory(path)
            if run.model.is_file() or run.checkpoints.is_dir():
                run.require(run.model)
                name, config = _name(path.resolve().name), run.read_config()
                loaded = _of_keras_file(run.model, image_size, features)
                return dataclasses.replace(loaded, name=name, config=config)
        if path.suffix == ".keras":
            return _of_keras_file(path, image_size, features)
        return _of_weights(source, card, image_size, features)
    except (ValueError, OSError, KeyError) as error:
        raise RunError(f"The model {source} cannot be used: {error}") from error


def predict(predictor, batches, split):
    """Returns labels (examples,) and outputs (examples, ...) of a split, in its order.

    `batches` is a `tf.data.Dataset` of the split's (images, labels).
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


def images_per_second(predictors, *, rounds=1, seconds=1.0):
    """Returns the images per second of each predictor, by its median batch.

    Both are dicts by name. The predictors take turns of at least so many seconds, so
    that other load of the machine affects all of them. Each is compiled before.
    """
    batches = {}
    for name, predictor in predictors.items():
        shape = (predictor.batch_size, *predictor.model.input_shape[1:])
        batches[name] = np.zeros(shape, "float32")
        predictor(batches[name])
    times = {name: [] for name in predictors}
    for _ in range(rounds):
        for name, predictor in predictors.items():
            turn = []
            while len(turn) < 3 or sum(turn) < seconds:
                started = time.perf_counter()
                predictor(batches[name])
                turn.append(time.perf_counter() - started)
            times[name] += turn
    return {
        name: predictor.batch_size / float(np.median(times[name]))
        for name, predictor in predictors.items()
    }


def image_size_of(loaded):
    """Returns (height, width); refuses models of other channels or ranges."""
    check_range(loaded)
    shape = loaded.model.input_shape
    if len(shape) != 4 or None in shape[1:] or shape[3] != 3:
        raise RunError(
            f"The model {loaded.name} takes images of shape {shape[1:]}: give one that "
            "takes (height, width, 3) of a fixed size."
        )
    return shape[1:3]


def check_range(loaded):
    """Refuses models that begin with a layer for pixels up to 255.

    Keras's own do, and far smaller numbers would all look alike to them.
    """
    for layer in loaded.model.layers:
        if _takes_bytes(layer) and _reads_images(layer, loaded.model):
            raise RunError(
                f"The layer {layer.name} of the model {loaded.name} takes pixels up to "
                "255, but images come in [-1, 1]: save a model that calls it on "
                "keras.layers.Rescaling(127.5, 127.5)(images)."
            )


def _reads_images(layer, model):
    # A layer that is called twice has no single input.
    with contextlib.suppress(AttributeError, ValueError):
        return layer.input is model.inputs[0]
    return False


def _takes_bytes(layer):
    if isinstance(layer, keras.layers.Rescaling):
        return np.abs(layer.scale).max() < 0.1
    return isinstance(layer, keras.layers.Normalization) and np.max(layer.mean) > 2


def _of_keras_file(path, image_size, features):
    model = load_model(path)
    _check_ends(path, model)
    size = model.input_shape[1:3]
    if image_size is not None and size != pair(image_size, "image_size"):
        model = keras_vit.at_image_size(model, image_size)
    if features:
        features_of = model.get_layer("head").input
        model = keras.Model(model.inputs[0], features_of, name=model.name)
    return LoadedModel(_name(path.stem), model, _names_beside(path, model, features))


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
    ends = [len(getattr(model, end, None) or ()) for end in ("inputs", "outputs")]
    if ends != [1, 1]:
        raise RunError(
            "The model {} cannot be used: it has {} known inputs and {} outputs, where "
            "one of each is needed. Save a functional keras.Model from images to "
            "logits.".format(path, *ends)
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
    card = card or _card(source, file)
    if isinstance(card, zoo.PublishedModel):
        return LoadedModel(card.name, model, card.class_names)
    class_names = _names_beside(file, model, features) if file.is_file() else None
    if "://" in place or file.exists():
        place = os.path.splitext(os.path.basename(place))[0]
    return LoadedModel(_name(place), model, class_names)


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

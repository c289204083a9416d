"""The images that exports are compared on: those of a data set, or synthetic ones."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.structure import preparation_of, problem_type_of
from train.common.errors import RunError
from train.data import pipeline
from train.data.registry import kind_of
from train.data.sources.splits import Split, pick
from train.data.sources.subset import spread
from train.export.program import BATCH, write_images
from train.models import loaded_model
from train.models.classes import names_of
from train.models.exports.writing import has_head
from train.models.loaded_model import LoadedModel
from train.scoring import evaluation_data
from train.scoring.class_matching import match_classes
from zoo.network.head import ONE_CLASS
from zoo.network.preparation import asked_for
from zoo.store.progress import progress_bar

# These are the default numbers of images: from a data set, and synthetic.
OF_DATA_SET, SYNTHETIC = 500, 64
# Sizes of the random grids that are summed, from coarse to fine.
_GRIDS = (2, 4, 8, 16, 32)


@dataclasses.dataclass(frozen=True)
class SampleImages:
    """Images to compare exports on, in a file by `train.export.program.write_images`.

    `about` is what the report says of them; `class_names` are in the order of the head,
    and `labels` the true classes in it, both None where unknown. `calibration` are
    float32 images, none of which is in the file, or None.
    """

    path: str
    about: dict
    class_names: tuple[str, ...] | None
    labels: np.ndarray | None = None
    calibration: np.ndarray | None = None


def generate(loaded: LoadedModel, path: str, count: int | None) -> SampleImages:
    """Returns synthetic `SampleImages`, in a file at `path`."""
    shape = loaded.model.input_shape[1:]
    if None in shape:
        raise RunError(
            f"The model {loaded.name} takes images of any size, {shape}: pass "
            "--image_size."
        )
    count = count or SYNTHETIC
    batches = (
        synthetic(min(BATCH, count - start), shape, seed=start)
        for start in range(0, count, BATCH)
    )
    about = {"data_set": None, "count": write_images(path, batches)}
    return SampleImages(path, about, names_of(loaded))


def read(
    loaded: LoadedModel,
    path: str,
    count: int | None,
    *,
    calibration: int | None,
    central_crop: bool | None,
    **data: Any,
) -> SampleImages:
    """Returns `SampleImages` of a data set, spread evenly over the split.

    `calibration` is the number of images to read from the training split, or None;
    `**data` are arguments of `train.scoring.evaluation_data.load_split`.
    """
    image_size = loaded_model.image_shape_of(loaded)[:2]
    preparation = asked_for(central_crop, preparation_of(loaded.model))
    source, split = evaluation_data.load_split(loaded, **data)
    about: dict[str, object] = {
        "data_set": source.name,
        "split": split.name,
        "preparation": preparation,
    }
    class_names, places = loaded.class_names, None
    has_classes = has_head(loaded.model)
    if has_classes and problem_type_of(loaded.model) != ONE_CLASS:
        # Several labels, and numbers, are compared by their outputs alone.
        class_names, has_classes = names_of(loaded), False
        about["no_accuracy"] = "The model does not answer with one class per image."
    if has_classes:
        try:
            class_names, places, _ = match_classes(
                loaded.model.output_shape[1],
                class_names,
                source.class_names,
                kind_of(source.name).is_own,
            )
        except RunError as error:
            class_names = names_of(loaded)
            about["no_accuracy"] = str(error)
            print(f"The accuracy is not measured: {error}")

    def prepared(split: Split, places: np.ndarray, task: str) -> Iterator:
        """Yields batches of images and labels, prepared as for evaluation."""
        split = pick(split, places)
        batches = pipeline.evaluation_batches(
            split, image_size=image_size, batch_size=BATCH, preparation=preparation
        )
        with progress_bar(total=len(places), unit="image", desc=task) as bar:
            for images, labels in pipeline.explained(batches, split):
                yield images.numpy(), labels.numpy()
                bar.update(len(images))

    chosen = spread(split.num_examples, count or OF_DATA_SET)
    calibration_images = None
    if calibration is not None:
        train = source.train
        used = chosen if train.name == split.name else ()
        others = spread(train.num_examples, calibration, without=used)
        if not len(others):
            raise RunError(
                f"All {train.num_examples} images of {train.name} are compared, and "
                "none is left for calibration: lower --images, or pass another --split."
            )
        about["calibration"] = {"split": train.name, "count": len(others)}
        calibration_images = np.concatenate(
            [images for images, _ in prepared(train, others, "reading to calibrate")]
        )
    labels = []

    def batches() -> Iterator:
        for images, of_images in prepared(split, chosen, "reading to compare"):
            labels.append(of_images)
            yield images

    about["count"] = write_images(path, batches())
    if places is not None:
        places = places[np.concatenate(labels)]
    return SampleImages(path, about, class_names, places, calibration_images)


def synthetic(number: int, shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    """Returns float32 images of random waves, equally strong at all scales.

    >>> images = synthetic(2, (32, 48, 3))
    >>> images.shape, float(images.min()), float(images.max())
    ((2, 32, 48, 3), -1.0, 1.0)
    """
    *size, channels = shape
    rng = np.random.default_rng(seed)
    waves = sum(
        tf.image.resize(
            rng.normal(size=(number, grid, grid, channels)) / grid, size, "bicubic"
        ).numpy()
        for grid in _GRIDS
    )
    waves -= waves.min(axis=(1, 2, 3), keepdims=True)
    return (2 * waves / waves.max(axis=(1, 2, 3), keepdims=True) - 1).astype("float32")

"""What exports are tried on: images of a data set, or generated ones."""

import contextlib
import dataclasses
import functools

import numpy as np
import tensorflow as tf

from train.common.errors import RunError
from train.common.progress import progress_bar
from train.data import pipeline
from train.data.sources.splits import pick
from train.data.sources.subset import spread
from train.export.parity import Images
from train.export.runtimes import BATCH
from train.inference import evaluation_data, given_model
from train.inference.class_matching import imagenet_names, match_classes
from train.inference.heads import has_head

# How many images are compared unless somebody says: of a data set, and generated.
OF_DATA_SET, GENERATED = 500, 64
# From few waves an image to many.
_GRIDS = (2, 4, 8, 16, 32)


@dataclasses.dataclass(frozen=True)
class Trial:
    """What exports are tried on.

    Args:
        images: `train.export.parity.Images`.
        about: dict of what the report says of them.
        class_names: tuple of str in the order of the head, None where unknown.
        labels: integers, the right places in the head; None where there are none.
        calibration: float32 array of images, none of which is among `images`; None
            where none are needed.
    """

    images: Images
    about: dict
    class_names: tuple[str, ...] | None
    labels: np.ndarray | None = None
    calibration: np.ndarray | None = None


def on_clouds(given, path, count):
    """Makes a trial on generated images, for a model without data set.

    Args:
        given: `train.inference.given_model.GivenModel`.
        path: path of the file for the images.
        count: int, how many; None for 64.

    Returns:
        `Trial`.

    Raises:
        RunError: the model takes images of several sizes.
    """
    shape = given.model.input_shape[1:]
    if None in shape:
        raise RunError(
            f"The model {given.name} takes images of any size, {shape}: pass "
            "--image_size."
        )
    count = count or GENERATED
    batches = (
        clouds(min(BATCH, count - start), shape, seed=start)
        for start in range(0, count, BATCH)
    )
    about = {"data_set": None, "count": count}
    class_names = given.class_names or _imagenet_names(given.model)
    return Trial(Images(path, batches), about, class_names)


def on_data_set(given, path, count, *, calibration, central_crop, **data):
    """Makes a trial on images of a data set, spread evenly over the split.

    Args:
        given: `train.inference.given_model.GivenModel`.
        path: path of the file for the images.
        count: int, how many, or all if there are fewer; None for 500.
        calibration: int, how many images of the training split to read besides; None
            for none.
        central_crop: bool, see `train.inference.evaluation_data.center_crop`.
        **data: `dataset`, `data_dir`, `skip_corrupt` and `split`, see
            `train.inference.evaluation_data.load_split`.

    Returns:
        `Trial`.

    Raises:
        RunError: the data are not as needed, or no image is left to calibrate with.
    """
    image_size = given_model.image_size_of(given)
    source, part = evaluation_data.load_split(given, **data)
    about = {
        "data_set": source.name,
        "split": part.name,
        "preparation": "central crop" if central_crop else "squashed",
    }
    class_names, places = given.class_names, None
    if len(given.model.output_shape) == 2 and has_head(given.model):
        try:
            class_names, places = match_classes(
                given.model.output_shape[1], given.class_names, source.class_names
            )
        except RunError as error:
            class_names = class_names or _imagenet_names(given.model)
            about["no_accuracy"] = str(error)
            print(f"No accuracy will be known: {error}")
    chosen = spread(part.num_examples, count or OF_DATA_SET)
    prepare = functools.partial(
        _prepared, image_size=image_size, central_crop=central_crop
    )
    to_calibrate = None
    if calibration is not None:
        train = source.train
        used = chosen if train.name == part.name else ()
        others = spread(train.num_examples, calibration, without=used)
        if not len(others):
            raise RunError(
                f"All {train.num_examples} images of {train.name} are compared, and "
                "none is left to calibrate on: lower --images, or pass another "
                "--split."
            )
        about["calibration"] = {"split": train.name, "count": len(others)}
        to_calibrate = np.concatenate(
            [images for images, _ in prepare(train, others, "reading to calibrate")]
        )
    labels = []

    def batches():
        for images, found in prepare(part, chosen, "reading to compare"):
            labels.append(found)
            yield images

    kept = Images(path, batches())
    about["count"] = kept.count
    if places is not None:
        places = places[np.concatenate(labels)]
    return Trial(kept, about, class_names, places, to_calibrate)


def clouds(number, shape, seed=0):
    """Returns images of coloured clouds, with as much in large shapes as in small.

    Args:
        number: int.
        shape: (height, width, channels).
        seed: int.

    Returns:
        float32 array (number, height, width, channels) whose values reach from -1
        to 1 in each image.

    Example:

    >>> images = clouds(2, (32, 48, 3))
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
    low, high = (
        limit(waves, axis=(1, 2, 3), keepdims=True) for limit in (np.min, np.max)
    )
    return (2 * (waves - low) / (high - low) - 1).astype("float32")


def _prepared(split, places, what, *, image_size, central_crop):
    """Yields batches of images and labels, as for evaluation."""
    part = pick(split, places)
    if central_crop:
        part = evaluation_data.center_crop(part, image_size)
    batches = pipeline.evaluation_batches(part, image_size=image_size, batch_size=BATCH)
    with progress_bar(total=len(places), unit="image", desc=what) as bar:
        for images, labels in pipeline.explained(batches, part):
            yield images.numpy(), labels.numpy()
            bar.update(len(images))


def _imagenet_names(model):
    """The names of ImageNet's classes if a model has as many, and they can be had."""
    with contextlib.suppress(RunError):
        if has_head(model):
            return imagenet_names(model.output_shape[-1])
    return None

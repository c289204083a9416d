"""A predictor's outputs for the images of a data set, and its speed."""

import functools
import timeit
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import keras_vit
from train.common.errors import RunError, explaining_full_memory
from train.data import pipeline
from train.data.sources.splits import Split
from zoo.store.progress import progress_bar

# The remedy where the memory is full.
LESS_MEMORY = "lower --batch_size or --image_size."


def predictions(
    predictor: keras_vit.Predictor,
    batches: tf.data.Dataset,
    split: Split,
    desc: str = "images",
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields labels (batch,) and outputs (batch, ...) of a split, in its order.

    `batches` is a `tf.data.Dataset` of the split's (images, labels), `desc` what the
    progress bar is called. Outputs that are not finite are not yielded, nor what
    follows: a `RunError` at the end counts them.
    """
    broken = 0
    shown = {"total": split.num_examples, "unit": "image", "desc": desc}
    with (
        progress_bar(first="reading and compiling", **shown) as bar,
        explaining_full_memory(LESS_MEMORY),
    ):
        for images, labels in pipeline.explained(batches, split):
            outputs = predictor(images)
            finite = np.isfinite(outputs.reshape(len(outputs), -1)).all(axis=1)
            broken += np.sum(~finite)
            if not broken:
                yield labels.numpy(), outputs
            bar.update(len(outputs))
    if broken:
        raise RunError(
            f"The model's outputs for {broken:,} of {split.num_examples:,} images "
            "are not finite: it has diverged in training, or its precision is too "
            "small for it. Pass another model."
        )


def random_images(predictor: keras_vit.Predictor) -> np.ndarray:
    """Returns a batch of random images in [-1, 1] for a predictor."""
    shape = (predictor.batch_size, *predictor.model.input_shape[1:])
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def images_per_second(
    predictors: dict[str, keras_vit.Predictor], *, rounds: int = 1, seconds: float = 1.0
) -> dict[str, float]:
    """Returns the images per second of each predictor, by its median batch.

    Both are dicts by name. The predictors take turns of at least `seconds`, so
    that other load of the machine affects all of them. Each is compiled before.
    """
    times, steps = {name: [] for name in predictors}, {}
    for name, predictor in predictors.items():
        steps[name] = functools.partial(predictor, random_images(predictor))
        steps[name]()
    for _ in range(rounds):
        for name, step in steps.items():
            turn = []
            while len(turn) < 3 or sum(turn) < seconds:
                turn.append(timeit.timeit(step, number=1))
            times[name] += turn
    return {
        name: predictor.batch_size / float(np.median(times[name]))
        for name, predictor in predictors.items()
    }

"""The logits that a network in training gives to photos."""

import functools

import numpy as np
import tensorflow as tf

from train.data import pipeline
from train.data.sources.splits import Split
from train.data.transforms.preprocessing import squash
from train.engine import loop
from train.run.training import Run

# Probabilities of less are rounding.
_LEAST = 1e-12


def logits_of(
    run: Run, split: Split, through: tuple[int, int] | None = None
) -> np.ndarray:
    """Returns the logits of photos of a split, up to a constant for each photo.

    Args:
        run: `train.run.training.Run`, whose steps are taken.
        split: the photos.
        through: (height, width) that photos have on their way to the network's size, as
            in a model of several networks; by default they come from their own.
    """
    size = run.image_size

    def resized(image: tf.Tensor, label: tf.Tensor, _: tf.Tensor) -> tuple:
        return squash(image, size), label

    make = functools.partial(
        pipeline.evaluation_batches,
        split,
        image_size=through or size,
        batch_size=run.recipe.batch_size // run.trainer.micro_batches,
        finish=None if through in (None, size) else resized,
    )
    batches = pipeline.explained(run.devices.batches(make), split)
    kept, _ = loop.evaluate(run.trainer, batches, lambda _, answers: answers)
    return np.log(np.maximum(np.concatenate(kept), _LEAST))

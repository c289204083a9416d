"""The logits that a network in training gives to photos."""

import functools
import os
from collections.abc import Generator

import numpy as np

from train.data import pipeline
from train.data.sources.splits import Split
from train.data.transforms.preprocessing import resized
from train.engine import loop
from train.run.training import Run
from train.scoring.feature_cache import cached


def logits_of(
    run: Run,
    split: Split,
    cache: str | os.PathLike,
    through: tuple[int, int],
) -> np.ndarray:
    """Returns the logits of photos of a split, floats (photos, classes).

    Args:
        run: `train.run.training.Run`, whose steps are taken.
        split: the photos.
        cache: folder with a file of the logits of earlier calls, see
            `train.scoring.feature_cache`.
        through: (height, width) that photos have on their way to the network's size, as
            in a model of several networks.
    """
    size = run.image_size

    def compute(part: Split) -> Generator[np.ndarray]:
        make = functools.partial(
            pipeline.evaluation_batches,
            part,
            image_size=through,
            batch_size=run.recipe.batch_size // run.trainer.micro_batches,
            finish=None if through == size else resized(size),
        )
        batches = pipeline.explained(run.devices.batches(make), part)
        for _, logits, _ in loop.answered(run.trainer, batches):
            yield logits.astype(np.float32)

    return cached(cache, run.task.network, f"through {through}", split, compute)

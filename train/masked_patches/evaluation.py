"""Loss and accuracy of masked patch prediction, and of guessing without a model."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from train.data import pipeline
from train.data.pipeline import NO_LABEL
from train.data.sources.splits import Split
from train.engine.step import Trainer, one_behind
from train.masked_patches.patches import (
    COLOURS,
    Corruption,
    colour_classes,
    mean_colours,
)

# Count the colours of this many training images.
_COUNTED = 10_000


def evaluate(
    trainer: Trainer, batches: Iterable, on_batch: Callable | None = None
) -> dict[str, float]:
    """Returns the loss and accuracy over all corrupted patches, and those of each kind.

    The batches are those of `Corruption.finish`, the last and smaller one included.
    The dict has `examples`, `loss` and `accuracy`, and the latter two with `masked_`,
    `swapped_` and `kept_` before them, where there are patches of this kind.
    """
    parts = []
    sent = (
        (trainer.answers(inputs, colours), inputs["places"], inputs["sources"])
        for inputs, colours in batches
    )
    for answers, *drawn in one_behind(sent):
        colours, logits, _ = map(ops.convert_to_numpy, answers)
        places, sources = map(trainer.gather, drawn)
        counted = colours[:, 0] != NO_LABEL
        logits, colours = logits[counted].astype(np.float64), colours[counted]
        places, sources = places[counted], sources[counted]
        chosen = np.take_along_axis(sources, places, axis=1)
        logits -= logits.max(axis=-1, keepdims=True)
        picked = np.take_along_axis(logits, colours[..., None], axis=-1)[..., 0]
        losses = np.log(np.exp(logits).sum(axis=-1)) - picked
        hits = logits.argmax(axis=-1) == colours
        is_masked, is_kept = chosen == sources.shape[1], chosen == places
        parts.append((losses, hits, is_masked, is_kept))
        if on_batch is not None:
            on_batch(sum(len(batch[0]) for batch in parts))
    losses, hits, is_masked, is_kept = map(np.concatenate, zip(*parts, strict=True))
    kinds = {
        "": np.ones_like(is_kept),
        "masked_": is_masked,
        "swapped_": ~is_masked & ~is_kept,
        "kept_": is_kept,
    }
    results: dict[str, float] = {"examples": len(losses)}
    for kind, is_of in kinds.items():
        if is_of.any():
            results[f"{kind}loss"] = float(losses[is_of].mean())
            results[f"{kind}accuracy"] = float(hits[is_of].mean())
    return results


def training_frequencies(
    split: Split, corruption: Corruption, **settings: Any
) -> np.ndarray:
    """Returns the frequency of each colour in training images, float64 (512,).

    The settings are those of `train.data.pipeline.training_batches`, whose first
    10,000 images are counted, or as many as there are; one is added to each count.
    """

    def finish(image: tf.Tensor, label: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return colour_classes(mean_colours(image, corruption.grid_size))

    batches = pipeline.training_batches(split, finish=finish, **settings)
    count = -(-min(_COUNTED, split.num_examples) // settings["batch_size"])
    counts = np.ones(COLOURS)
    for colours in pipeline.explained(batches.take(count), split):
        counts += np.bincount(np.ravel(colours), minlength=COLOURS)
    return counts / counts.sum()


def by_chance(
    split: Split,
    corruption: Corruption,
    frequencies: np.ndarray,
    *,
    image_size: tuple[int, int],
    batch_size: int,
) -> dict[str, float]:
    """Returns the loss and accuracy of guesses without a model, as in `evaluate`.

    `constant_` is the training frequencies for every patch, the best guess without the
    image; `neighbours_` the mean colour of the uncorrupted patches among the eight
    around, or where there is none, of all uncorrupted ones.
    """

    def finish(image: tf.Tensor, label: tf.Tensor, seed: tf.Tensor) -> tuple:
        places, _ = corruption.draw(seed)
        return mean_colours(image, corruption.grid_size), places

    batches = pipeline.evaluation_batches(
        split, image_size=image_size, batch_size=batch_size, finish=finish
    )
    parts = []
    for batch in pipeline.explained(batches, split):
        colours, places = (values.numpy() for values in batch)
        shown = np.ones(colours.shape[:2])
        np.put_along_axis(shown, places, 0.0, axis=1)
        guesses = _from_neighbours(colours, shown, corruption.grid_size)
        true, guessed = (
            np.take_along_axis(colour_classes(of).numpy(), places, axis=1)
            for of in (colours, guesses)
        )
        parts.append((true, guessed))
    true, guessed = map(np.concatenate, zip(*parts, strict=True))
    return {
        "constant_loss": float(-np.log(frequencies[true]).mean()),
        "constant_accuracy": float((true == frequencies.argmax()).mean()),
        "neighbours_accuracy": float((true == guessed).mean()),
    }


def _from_neighbours(colours, shown, grid_size):
    """Returns the mean of the shown patches around each, (batch, patches, 3)."""
    weighted = np.concatenate([colours * shown[..., None], shown[..., None]], axis=-1)
    whole = weighted.sum(axis=1, keepdims=True)
    padded = np.pad(
        weighted.reshape(-1, *grid_size, 4), ((0, 0), (1, 1), (1, 1), (0, 0))
    )
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    around = windows.sum(axis=(-2, -1)).reshape(weighted.shape)
    around = np.where(around[..., 3:] > 0, around, whole)
    return (around[..., :3] / np.maximum(around[..., 3:], 1)).astype(np.float32)

"""The loop around the training step, and evaluation."""

import contextlib
import time

import keras
import numpy as np
import tensorflow as tf

from train.common.errors import DIVERGED, RunError
from train.data.pipeline import NO_LABEL


@contextlib.contextmanager
def explaining_full_memory(remedy):
    """Tells what to do where a model does not fit into the device's memory.

    Args:
        remedy: str.

    Raises:
        RunError: it does not.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, RuntimeError) as error:
        # JAX has no class of its own for it.
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise RunError(f"The device's memory is full: {remedy}") from error


def fit(trainer, batches, *, start_step, steps, callbacks):
    """Takes the steps that are left.

    Args:
        trainer: `Trainer`.
        batches: iterable of (images, labels), the first for step `start_step`.
        start_step: int, steps already taken.
        steps: int, steps in all.
        callbacks: functions of (step, metrics) called after each step, with the
            number of steps taken and a dict of floats: those of `Trainer.step`,
            `learning_rate`, and `seconds`, the wall time since the end of the step
            before, or since the beginning: waiting for images, compiling, and what the
            callbacks did after the step before are in it. Where one returns True, no
            further step is taken.

    Raises:
        RunError: the loss, or another of these numbers, is not finite.
    """
    before = time.perf_counter()
    batches = iter(batches)
    for step in range(start_step + 1, steps + 1):
        learning_rate = float(trainer.optimizer.learning_rate)
        images, labels = next(batches)
        metrics = {
            name: float(value) for name, value in trainer.step(images, labels).items()
        }
        metrics["learning_rate"] = learning_rate
        now = time.perf_counter()
        metrics["seconds"], before = now - before, now
        for name, value in metrics.items():
            check_finite(f"The {name} of step {step}", value)
        if metrics.get("loss_scale", 1.0) < 1.0:
            raise RunError(
                f"At step {step} gradients overflow whatever the scale of the loss: "
                "use --precision=mixed_bfloat16 or float32. The checkpoints before it "
                "are kept."
            )
        ends = [callback(step, metrics) for callback in callbacks]
        if any(ends):
            return


def check_finite(name, value):
    """Makes sure that a run has not diverged.

    Args:
        name: str, what the number is, and of which step.
        value: float.

    Raises:
        RunError: it is NaN or infinite.
    """
    if not np.isfinite(value):
        raise RunError(f"{name} is {value}: {DIVERGED}")


def evaluate(trainer, batches, on_batch=None):
    """Runs the model over all batches, the last and smaller one included.

    Args:
        trainer: `Trainer`, whose loss is computed.
        batches: iterable of (images, labels).
        on_batch: None, or a function of the number of examples done so far.

    Returns:
        Tuple of labels (examples,) int32 and probabilities (examples, classes)
        float32, as NumPy arrays, and as a float the mean over the examples of the loss
        that the trainer optimizes.
    """
    all_labels, all_logits = [], []
    done, loss = 0, 0.0
    for images, labels in batches:
        logits = trainer.predict(images)
        labels = trainer.gather(labels)
        counted = labels != NO_LABEL
        logits, labels = logits[counted], labels[counted]
        all_logits.append(logits)
        all_labels.append(labels)
        losses = keras.ops.convert_to_numpy(trainer.loss(logits, labels))
        loss += losses.sum(dtype="float64")
        done += len(labels)
        if on_batch is not None:
            on_batch(done)
    labels, logits = np.concatenate(all_labels), np.concatenate(all_logits)
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    return labels, probabilities, float(loss / done)

"""The loop around the training step, and evaluation."""

import contextlib
import time

import keras
import numpy as np
import tensorflow as tf

from train.data.pipeline import NO_LABEL
from train.errors import RunError


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
            `learning_rate`, and the step's `seconds`. Where one returns True, no
            further step is taken.

    Raises:
        RunError: the loss is no longer a number.
    """
    batches = iter(batches)
    for step in range(start_step + 1, steps + 1):
        learning_rate = float(trainer.optimizer.learning_rate)
        started = time.perf_counter()
        images, labels = next(batches)
        metrics = {
            name: float(value) for name, value in trainer.step(images, labels).items()
        }
        metrics["learning_rate"] = learning_rate
        metrics["seconds"] = time.perf_counter() - started
        for name in ("loss", "gradient_norm"):
            if not np.isfinite(metrics[name]):
                raise RunError(
                    f"The {name} of step {step} is {metrics[name]}: lower "
                    "--learning_rate, raise --warmup_steps or use "
                    "--precision=float32. The checkpoints before it are kept."
                )
        if metrics.get("loss_scale", 1.0) < 1.0:
            raise RunError(
                f"At step {step} gradients overflow whatever the scale of the loss: "
                "use --precision=mixed_bfloat16 or float32. The checkpoints before it "
                "are kept."
            )
        ends = [callback(step, metrics) for callback in callbacks]
        if any(ends):
            return


def evaluate(trainer, batches, on_batch=None):
    """Runs the model over all batches, the last and smaller one included.

    Args:
        trainer: `Trainer`.
        batches: iterable of (images, labels).
        on_batch: None, or a function of the number of examples done so far.

    Returns:
        Tuple of labels (examples,) int32 and probabilities (examples, classes)
        float32, as NumPy arrays, and the mean loss as a float.
    """
    all_labels, all_logits = [], []
    done = 0
    for images, labels in batches:
        logits = trainer.predict(images)
        labels = trainer.gather(labels)
        counted = labels != NO_LABEL
        all_logits.append(logits[counted])
        all_labels.append(labels[counted])
        done += len(all_labels[-1])
        if on_batch is not None:
            on_batch(done)
    labels, logits = np.concatenate(all_labels), np.concatenate(all_logits)
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    picked = keras.ops.log_softmax(logits)
    picked = np.take_along_axis(
        keras.ops.convert_to_numpy(picked), labels[:, None], axis=1
    )
    return labels, probabilities, float(-picked.mean())

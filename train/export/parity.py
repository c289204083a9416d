"""Exports beside the model: each run in its own runtime, in a process of its own."""

import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np

import keras_vit_start
from train.common.errors import RunError
from train.common.progress import progress_bar
from train.reports.classification import interval

_TIMED_SECONDS = 1.0
_LAST_LINES = 5


class Images:
    """Images in a file, from which any number of processes read them.

    Args:
        path: str or path of the file, which is written.
        batches: iterable of arrays (images, height, width, channels).

    Attributes:
        path: of the file.
        batches: int, how many.
        count: int, of the images.
    """

    def __init__(self, path, batches):
        self.path = pathlib.Path(path)
        self.batches = self.count = 0
        with self.path.open("wb") as file:
            for images in batches:
                np.save(file, np.asarray(images, "float32"))
                self.batches += 1
                self.count += len(images)


def answers(name, runtime, path, images, *, threads):
    """Runs a model in a process of its own, on the CPU.

    Args:
        name: str, what a person calls it.
        runtime: str, `"keras"`, `"saved_model"`, `"tflite"` or `"onnx"`.
        path: str or path of the model.
        images: `Images`.
        threads: int, that the runtime computes with.

    Returns:
        Tuple of the answers, a float32 array (images, ...), and a dict of facts:
        `version` of the runtime; `latency`, a dict of the median seconds of a batch of
        `"1"` and of `"8"`; `one_by_one`, whether the model takes no batches, so that
        8 images are 8 calls; and `peak_bytes`, the most memory that the process held.

    Raises:
        RunError: the model does not run; the message ends as its process did.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = os.path.join(folder, "answers.npy")
        settings = {
            "runtime": runtime,
            "path": os.fspath(path),
            "threads": threads,
            "images": os.fspath(images.path),
            "batches": images.batches,
            "answers": found,
            "seconds": _TIMED_SECONDS,
        }
        facts = _told(name, settings, images.count)
        return np.load(found), facts


def compare(found, expected, *, top_1, labels=None):
    """Compares what an export answers with what the model does.

    Logits agree where the largest one is of the same class. Features have no classes,
    and generated images none that stands out: then the agreement is the mean cosine
    between what the two answer to an image. An answer that is not finite agrees with
    nothing.

    Args:
        found: array (images, ...) of the export.
        expected: array (images, ...) of the model.
        top_1: bool, whether the agreement is that of the largest logits.
        labels: integers (images,), the right places in the logits; None if unknown.

    Returns:
        Dict of "largest_error", the largest absolute difference, None where an answer
        is not finite; "agreement", of classes with its 95% interval "agreement_low" and
        "agreement_high"; "not_finite", how many answers; and, with labels, "accuracy"
        with "accuracy_low" and "accuracy_high".

    Raises:
        ValueError: the answers are of different shapes.

    Example:

    >>> expected, found = np.array([[1, 2], [4, 3]]), np.array([[1, 2.5], [2.5, 3]])
    >>> compared = compare(found, expected, top_1=True)
    >>> compared["agreement"], compared["largest_error"]
    (0.5, 1.5)
    """
    if found.shape != expected.shape:
        raise ValueError(
            f"answers are of shape {found.shape}, where the model's are of "
            f"{expected.shape}"
        )
    finite = np.isfinite(found).reshape(len(found), -1).all(axis=1)
    if top_1:
        agrees = found.argmax(axis=1) == expected.argmax(axis=1)
    else:
        agrees = _cosines(found, expected)
    compared = {
        "largest_error": None,
        "agreement": float(np.where(finite, agrees, 0).mean()),
        "not_finite": int(np.sum(~finite)),
    }
    if top_1:
        low, high = interval(np.sum(finite & agrees), len(agrees))
        compared |= {"agreement_low": low, "agreement_high": high}
    if finite.all():
        compared["largest_error"] = float(np.abs(found - expected).max())
    if labels is not None:
        right = finite & (found.argmax(axis=1) == labels)
        low, high = interval(right.sum(), len(right))
        compared |= {
            "accuracy": float(right.mean()),
            "accuracy_low": low,
            "accuracy_high": high,
        }
    return compared


def _cosines(found, expected):
    found, expected = (
        array.reshape(len(array), -1).astype("float64") for array in (found, expected)
    )
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.sum(found * expected, axis=1) / lengths
    # Nothing but zeros has no direction; two of them are the same.
    return np.where(lengths > 0, cosines, np.all(found == expected, axis=1))


def _told(name, settings, count):
    """Starts the process, shows how far it is, and returns what it tells at last."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        # All on the CPU, or their times could not be compared.
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    command = keras_vit_start.python("train.export.runtimes", json.dumps(settings))
    with (
        tempfile.TemporaryFile("w+", errors="replace") as said,
        progress_bar(total=count, unit="image", desc=name) as bar,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        told = {}
        try:
            for line in process.stdout:
                told = json.loads(line)
                bar.update(told.get("done", 0))
            status = process.wait()
        finally:
            process.kill()  # where this process is stopped
        if "peak_bytes" not in told:
            said.seek(0)
            why = told.get("error") or _last_words(status, said.read())
            raise RunError(f"{name} does not run in its runtime: {why}")
    return told


def _last_words(status, said):
    # SIGKILL, which nobody but the kernel should have sent.
    reason = f"signal {-status}" if status < 0 else f"status {status}"
    hint = ", perhaps for want of memory" if status == -9 else ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"its process ended with {reason}{hint}: {' '.join(lines[-_LAST_LINES:])}"

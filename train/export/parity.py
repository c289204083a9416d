"""Runs exports in their runtimes, and compares outputs with the Keras model's."""

import json
import os
import subprocess
import tempfile

import numpy as np

import keras_vit_start
from train.common.errors import RunError
from train.scoring.metrics import share
from zoo.store.progress import progress_bar

_TIMED_SECONDS = 1.0
_LAST_LINES = 5


def run(
    name: str,
    path: str | os.PathLike,
    images: str | os.PathLike,
    *,
    threads: int,
    count: int | None = None,
) -> tuple[np.ndarray, dict]:
    """Runs a model in a process of its own, on the CPU, and shows its progress.

    `images` is the path of a file as in `train.export.program`. Returns the outputs,
    float32 (images, ...), and the last report of the process, see there.
    """
    answers = f"{images}-answers.npy"
    settings = {
        "path": os.fspath(path),
        "threads": threads,
        "images": os.fspath(images),
        "answers": answers,
        "seconds": _TIMED_SECONDS,
    }
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        # Run everything on the CPU, so that times can be compared.
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    command = keras_vit_start.python("train.export.program", json.dumps(settings))
    with (
        tempfile.TemporaryFile("w+", errors="replace") as stderr,
        progress_bar(total=count, unit="image", desc=name) as bar,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        report = {}
        try:
            for line in process.stdout:
                report = json.loads(line)
                bar.update(report.get("done", 0))
            status = process.wait()
        finally:
            process.kill()  # where this process is interrupted
        if "peak_bytes" not in report:
            stderr.seek(0)
            why = report.get("error") or _last_words(status, stderr.read())
            raise RunError(f"{name} does not run in its runtime: {why}")
    return np.load(answers), report


def compare(
    outputs: np.ndarray,
    expected: np.ndarray,
    *,
    top_1: bool,
    labels: np.ndarray | None = None,
) -> dict:
    """Compares the outputs of an export with those of the model.

    Logits agree where their largest is of the same class. Features have no classes, and
    generated images none that stands out: without `top_1` the agreement is the mean
    cosine similarity of the two outputs for an image. Outputs that are not finite agree
    with nothing. `labels` are the true classes, None where unknown.
    """
    if outputs.shape != expected.shape:
        raise ValueError(
            f"its outputs are of shape {outputs.shape}, the model's of {expected.shape}"
        )
    finite = np.isfinite(outputs).reshape(len(outputs), -1).all(axis=1)
    classes = outputs.argmax(axis=1)
    error = float(np.abs(outputs - expected).max()) if finite.all() else None
    compared = {"largest_error": error, "not_finite": int(np.sum(~finite))}
    if top_1:
        agrees = finite & (classes == expected.argmax(axis=1))
        compared |= share("agreement", agrees)
    else:
        cosines = np.where(finite, _cosines(outputs, expected), 0)
        compared["agreement"] = float(cosines.mean())
    if labels is not None:
        compared |= share("accuracy", finite & (classes == labels))
    return compared


def _cosines(outputs, expected):
    outputs, expected = (
        array.reshape(len(array), -1).astype("float64") for array in (outputs, expected)
    )
    lengths = np.linalg.norm(outputs, axis=1) * np.linalg.norm(expected, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.sum(outputs * expected, axis=1) / lengths
    # Zeros have no direction; two vectors of zeros are the same.
    return np.where(lengths > 0, cosines, np.all(outputs == expected, axis=1))


def _last_words(status, stderr):
    reason = f"signal {-status}" if status < 0 else f"status {status}"
    # Only the kernel should have sent SIGKILL.
    hint = ", perhaps for lack of memory" if status == -9 else ""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f"its process ended with {reason}{hint}: {' '.join(lines[-_LAST_LINES:])}"

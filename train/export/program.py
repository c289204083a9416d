"""The program that runs a model in the runtime of its format, one process per model.

`train.export.parity` starts it with one JSON object:

    {"path": ..., "threads": ..., "images": ..., "answers": ..., "seconds": ...}

"images" is a file of arrays, one batch each, read one at a time: the peak memory is
that of the model, not of the data. The outputs go to the file "answers". Lines of JSON
go to stdout: {"done": images} after each batch, and at the end {"error"}, or the
runtime's "version", "one_by_one", "latency", the median seconds of a batch of "1" and
of "8", and "peak_bytes", the largest memory of the process.
"""

import json
import os
import pathlib
import statistics
import sys
import timeit
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from train.common.errors import first_line
from train.models.exports import exported_model, tensorflow
from zoo.common.machine import peak_bytes

BATCH = 8
_WARM_UP = 2
_MIN_REPEATS = 5


def main() -> None:
    """Runs the model and reports its outputs, latency and memory."""
    # Reserve stdout for reports: what libraries print goes to stderr.
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def report(**message: Any) -> None:
        stdout.write(json.dumps(message) + "\n")
        stdout.flush()

    try:
        report(**_measured(json.loads(sys.argv[1]), report))
    except Exception as error:
        report(error=f"{type(error).__name__}: {first_line(error)}")
        sys.exit(1)


def _measured(settings, report):
    run, facts = load(settings["path"], settings["threads"])
    answers, timed = [], None
    for images in read_images(settings["images"]):
        if timed is None:
            timed = np.resize(images, (BATCH, *images.shape[1:]))
        answers.append(run(images))
        report(done=len(images))
    latency = {
        str(batch): _seconds(run, timed[:batch], settings["seconds"])
        for batch in (1, BATCH)
    }
    np.save(settings["answers"], np.concatenate(answers))
    return {"latency": latency, "peak_bytes": peak_bytes(), **facts}


def write_images(path: str | os.PathLike, batches: Iterable[np.ndarray]) -> int:
    """Writes arrays (images, height, width, channels) to a file; returns the images."""
    count = 0
    with open(path, "wb") as file:
        for images in batches:
            np.save(file, np.asarray(images, "float32"))
            count += len(images)
    return count


def read_images(path: str | os.PathLike) -> Iterator[np.ndarray]:
    """Yields the arrays of a file by `write_images`."""
    with open(path, "rb") as file:
        while file.peek(1):
            yield np.load(file)


def load(path: str | os.PathLike, threads: int) -> tuple[Callable, dict]:
    """Returns the function of a `.keras` or an exported file, and facts on its runtime.

    These are `version` and `one_by_one` as of an `ExportedModel`. No runtime but its
    own is imported: others would count in its memory.
    """
    path = pathlib.Path(path)
    if path.suffix == ".keras":
        return _keras(path, threads)
    loaded = exported_model.in_its_runtime(path, threads)
    return loaded.run, {"version": loaded.version, "one_by_one": loaded.one_by_one}


def _keras(path, threads):
    tf = tensorflow.tensorflow_on(threads)
    import keras

    import keras_vit

    model = keras.saving.load_model(path, compile=False)
    version = f"Keras {keras.__version__} on TensorFlow {tf.__version__}"
    predictor = keras_vit.Predictor(model, BATCH, engine="keras")
    return predictor, {"version": version, "one_by_one": False}


def _seconds(run, images, seconds):
    """Returns the median time of repeated calls."""
    timer = timeit.Timer(lambda: run(images))
    timer.timeit(_WARM_UP)
    times = []
    while len(times) < _MIN_REPEATS or sum(times) < seconds:
        times.append(timer.timeit(1))
    return statistics.median(times)


if __name__ == "__main__":
    main()

"""Which engine is the fastest, and which was, for a model and a machine."""

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence

import keras
import numpy as np

from zoo.common.limits import NOTE_BYTES
from zoo.common.machine import cpu_name, threads
from zoo.common.regular_files import read_text
from zoo.runtimes import RUNTIMES
from zoo.store import cache_dir


def seconds_of(
    answers: Mapping[str, Callable],
    images: np.ndarray,
    runs: int,
    limit: float,
    clock: Callable[[], float],
) -> dict[str, float]:
    """Returns the seconds that each function takes for images, its best run.

    They run by turns, at most `runs` times, and after the clock has passed the limit
    not once more.
    """
    times = dict.fromkeys(answers, math.inf)
    for run in range(runs):
        if run and clock() >= limit:
            break
        for name, answer in answers.items():
            times[name] = min(times[name], seconds(answer, images, clock))
    return times


def seconds(answer: Callable, images: np.ndarray, clock: Callable[[], float]) -> float:
    """Returns the seconds that a function takes for images."""
    started = clock()
    answer(images)
    return clock() - started


def path_of(
    model: keras.Model,
    images_shape: tuple[int, ...],
    precision: str,
    engines: Sequence[str],
) -> pathlib.Path:
    """Returns the path of the choice among engines.

    It is another one for a model of other layers or shapes, another processor, and
    other versions of the engines.
    """
    packages = {name for engine in engines for name in RUNTIMES[engine].packages}
    facts = {
        "processor": [cpu_name(), threads()],
        "keras": [keras.__version__, keras.backend.backend()],
        "packages": {name: _version(name) for name in sorted(packages)},
        "images": images_shape,
        "precision": precision,
        "layers": [
            [type(layer).__name__, layer.dtype_policy.name] for layer in model.layers
        ],
        "weights": [list(weight.shape) for weight in model.weights],
    }
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    return cache_dir() / "engines" / f"{name}.json"


def _version(package):
    # A package such as onnxruntime-gpu brings the module under another name.
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package.replace("_", "-"))
    return None


def read(
    path: pathlib.Path, engines: Collection[str]
) -> tuple[str | None, dict[str, float]]:
    """Returns the engine in a file, and the seconds of a batch by engine.

    Without a file that names one of `engines` they are None and empty.
    """
    # Brackets in brackets are a RecursionError.
    wrong = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
    with contextlib.suppress(OSError, *wrong):
        note = json.loads(read_text(path, NOTE_BYTES))
        engine, trials = note["engine"], note["trials"]
        if engine in engines:
            numbers = {
                k: s
                for k, s in trials.items()
                if isinstance(s, float) and 0 < s < math.inf
            }
            return engine, numbers
    return None, {}


def write(path: pathlib.Path, engine: str, trials: dict) -> None:
    """Writes a choice, whole or not at all; nothing where the cache is read-only."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".engine-") as beside:
            part = pathlib.Path(beside, path.name)
            text = json.dumps({"engine": engine, "trials": trials}, indent=1)
            part.write_text(text, "utf-8")
            os.replace(part, path)

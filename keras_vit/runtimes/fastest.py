"""Which engine was the fastest, kept in the cache folder for a model and a machine."""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import tempfile
from collections.abc import Collection, Sequence

import keras

from zoo.common.limits import NOTE_BYTES
from zoo.common.machine import cpu_name, threads
from zoo.common.regular_files import read_text
from zoo.runtimes import RUNTIMES
from zoo.store import cache_dir


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


def read(path: pathlib.Path, engines: Collection[str]) -> str | None:
    """Returns the engine in a file, None without a file that names one of `engines`."""
    # Brackets in brackets are a RecursionError.
    kinds = (OSError, ValueError, LookupError, TypeError, RecursionError)
    with contextlib.suppress(*kinds):
        engine = json.loads(read_text(path, NOTE_BYTES))["engine"]
        return engine if engine in engines else None
    return None


def write(path: pathlib.Path, engine: str, trials: dict) -> None:
    """Writes a choice, whole or not at all; nothing where the cache is read-only."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".engine-") as beside:
            part = pathlib.Path(beside, path.name)
            text = json.dumps({"engine": engine, "trials": trials}, indent=1)
            part.write_text(text, "utf-8")
            os.replace(part, path)

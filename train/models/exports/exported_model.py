"""Exported files, each run by its own runtime; Keras is never imported.

TensorFlow is imported for a SavedModel alone.
"""

import dataclasses
import importlib
import os
import pathlib

import numpy as np

from train.common import packages
from train.common.errors import RunError, first_line
from train.models.exports import onnxruntime, operations
from train.models.exports.description import ExportedModel
from train.models.run_directory import RunDirectory
from zoo.common import limits
from zoo.common.limits import check_image_size
from zoo.common.regular_files import expand_home, missing_remedy
from zoo.common.safe_text import named
from zoo.containers.opening import EXPORTS, SAVED_MODEL, two_kinds
from zoo.network.head import PROBABILITIES, PROBLEM_TYPES
from zoo.network.preparation import is_preparation
from zoo.store import digest

# By ending of a file, "" for folders: the module beside this one that loads it, and the
# package that it needs.
RUNTIMES = {
    ".tflite": ("litert", "ai_edge_litert"),
    ".onnx": ("onnxruntime", "onnxruntime"),
    "": ("tensorflow", "tensorflow"),
}
_OUTPUTS = ("logits", "probabilities", "features")


def find(source: str | os.PathLike) -> pathlib.Path | None:
    """Returns the path of the exported file that is meant, None for other models.

    `source` is a `.tflite` or `.onnx` file, the folder of a SavedModel, or a folder
    that holds a single one of these, as `train.export` writes it.
    """
    path = expand_home(source)
    is_file = path.suffix in EXPORTS or path.name == SAVED_MODEL
    if "://" in str(source) and not path.exists():
        return None
    if is_file and not path.is_dir():
        if not path.is_file():
            raise RunError(f"There is no file {path}: {missing_remedy(path)}")
        return _program(path)
    if not path.is_dir():
        return None
    held = RunDirectory(path).models()
    if held.run or held.card:
        return None
    if held.weights and held.exports:
        raise RunError(str(two_kinds(path, held.weights, held.exports[0])))
    if held.weights:
        return None
    paths = [path / name for name in held.exports] + _newest_versions(path)
    if len(paths) > 1:
        names = named(sorted(each.relative_to(path).as_posix() for each in paths))
        raise RunError(f"{path} has several exports, {names}: give one of them.")
    return _program(paths[0]) if paths else None


def _newest_versions(path):
    """Returns the folders that TensorFlow Serving would load of a folder's models."""
    newest = []
    for folder in (path, path / "saved_model"):
        # TensorFlow Serving takes the highest number.
        versions = [
            file.parent
            for file in folder.glob(f"*/{SAVED_MODEL}")
            if file.parent.name.isdecimal()
        ]
        newest += sorted(versions, key=lambda version: int(version.name))[-1:]
    return newest


def _program(path):
    """Returns the path that `load` takes: of a SavedModel, its folder."""
    return path.parent if path.name == SAVED_MODEL else path


def load(path: pathlib.Path, trust: bool = False) -> ExportedModel:
    """Loads an exported file that our writers have written; refuses others.

    `path` is what `find` returns. With `trust` a SavedModel may have operations that
    ours do not have, which may read and write files.
    """
    _, needed = RUNTIMES["" if path.is_dir() else path.suffix]
    packages.need(f"The model {path}", (needed,), extra="export")
    if path.is_dir() and not trust:
        operations.check(path)
    try:
        model = in_its_runtime(path)
        _check(model, path)
    except RunError:
        raise
    # The runtimes raise errors of any kind at damaged files.
    except Exception as error:
        raise RunError(
            f"The model {path} cannot be used ({type(error).__name__}: "
            f"{first_line(error)}): copy or export it again."
        ) from error
    names, beside = model.class_names, RunDirectory(path.parent)
    if model.output == "features":
        names = None
    elif names is None and beside.class_names.is_file():
        names = beside.read_class_names()
    if names is not None and len(names) != model.size:
        raise RunError(
            f"The model {path} has {model.size} classes and {len(names)} class names: "
            "export it again."
        )
    return dataclasses.replace(
        model,
        run=_explained(model.run, path),
        features=model.features and _explained(model.features, path),
        class_names=names,
    )


def in_its_runtime(path: pathlib.Path, threads: int | None = None) -> ExportedModel:
    """Returns the `ExportedModel` of a file that is known to be good; see `load`."""
    name, _ = RUNTIMES["" if path.is_dir() else path.suffix]
    runtime = importlib.import_module(f"train.models.exports.{name}")
    return runtime.load(str(path), threads)


def _explained(run, path):
    """Returns a function to outputs whose errors name the file."""

    def explained(images: np.ndarray) -> np.ndarray:
        try:
            return run(images)
        except (RunError, MemoryError):
            raise
        # The runtimes raise errors of any kind, of graphs that contradict themselves.
        except Exception as error:
            if "ResourceExhausted" in type(error).__name__:
                raise
            raise RunError(
                f"The model {path} cannot compute images of shape {images.shape[1:]}, "
                f"which it says it takes ({first_line(error)}): export it again."
            ) from error

    return explained


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the paths of the files that make up an export, sorted."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    if path.suffix != ".onnx":
        return [path]
    return [path, *onnxruntime.files(path)]


def digest_of(path: pathlib.Path) -> str:
    """Returns a text that two exports share if all their bytes are the same."""
    return "-".join(digest(one, "sha256")[:16] for one in files_of(path))


def _check(model, path):
    """Refuses files of others, whose images may have another range."""
    if len(model.output_shape) != 2:
        raise RunError(
            f"The model {path} gives outputs of shape {model.output_shape[1:]} for an "
            "image, not one number per class: export one that pools its tokens."
        )
    shape = model.image_shape
    if all(isinstance(side, int) for side in shape[:2]):
        check_image_size(shape[:2])
    if isinstance(model.size, int) and model.size > limits.CLASSES:
        raise ValueError(f"it has {model.size:,} classes")
    if len(model.thresholds) not in (0, model.size):
        raise ValueError(f"it has {len(model.thresholds):,} thresholds")
    is_ours = (
        model.output in _OUTPUTS
        and len(shape) == 3
        and all(isinstance(side, int) for side in (*shape, model.size))
        and shape[2] in (1, 3)
        and model.activation in ("linear", *PROBABILITIES)
        and model.problem_type in PROBLEM_TYPES
        and is_preparation(model.preparation)
    )
    if not is_ours:
        raise RunError(
            f"The model {path} is not as keras-vit export writes it (images {shape}, "
            f"output {model.output!r}, {model.activation!r}, {model.preparation!r}, "
            f"{model.problem_type!r}): export it again, or call its own runtime."
        )

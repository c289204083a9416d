"""Opens a checkpoint: a file of any kind, that of a folder, or those of an index."""

from __future__ import annotations

import fnmatch
import json
import os
import pathlib
import re
from typing import NamedTuple

import numpy as np

from zoo.common import limits, regular_files
from zoo.common.regular_files import open_regular
from zoo.containers import arrays, h5, npz, safetensors

EXTENSIONS = (".npz", ".safetensors", ".h5")
# The names that timm and transformers expect and write.
SAFETENSORS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS = "model-*-of-*.safetensors"
FILES_IN_FOLDERS = (SAFETENSORS, INDEX, "model.npz", "model.weights.h5")
# OpenCLIP's, where there is none of timm or transformers.
OPEN_CLIP = "open_clip_model.safetensors"
WEIGHTS = (*FILES_IN_FOLDERS, OPEN_CLIP)
# Names of libraries for what is not read in a folder: parts without their index,
# pickles, TensorFlow's and Flax's weights.
_OTHER_WEIGHTS = (
    "*.safetensors", "*.keras", "*.weights.h5", "tf_model*.h5", "flax_model*.msgpack",
    "pytorch_model*.bin", "open_clip_*.bin",
)  # fmt: skip
# Weights of any name and settings, which are another model's beside a SavedModel.
_BESIDE = ("*.npz", "config.json", "open_clip_config.json", "config.yaml")
# The endings of weights that are not read: pickles, which can run code, TensorFlow's
# checkpoints and Flax's.
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
UNREAD = (*PICKLES, ".data-00000-of-00001", ".msgpack")
# The card of a published model, whose folder may hold it in several formats.
CARD = "model.json"
# Files in the folder of a run, and of a SavedModel.
RUN_MODEL, CHECKPOINTS, SAVED_MODEL = "model.keras", "checkpoints", "saved_model.pb"
# The endings of files that are programs for other runtimes.
EXPORTS = (".onnx", ".tflite")
# A file beside the index: never a path, which could lead anywhere.
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Models(NamedTuple):
    """What a folder holds of a model: names of files, the first of each kind or None.

    Args:
        run: the model or the checkpoints of a run.
        card: the card of a published model.
        weights: those of a library, also where they are not read.
        exports: list of all SavedModels, `.onnx` and `.tflite` files.
    """

    run: str | None
    card: str | None
    weights: str | None
    exports: list[str]


def models_in(folder: str | os.PathLike) -> Models:
    """Returns what a folder holds of a model; subfolders do not count.

    Args:
        folder: path of a folder; another path has no model in it.

    Raises:
        CheckpointError: it has models of two kinds, of which one would be a guess: a
            `saved_model.pb` in a run, a published model or beside the weights or
            settings of a library, or such weights beside the model of a run.
    """
    try:
        names = sorted(one for one in os.listdir(folder) if not one.startswith("."))
    except OSError:
        names = []

    def first(*patterns):
        matches = (
            one for pattern in patterns for one in fnmatch.filter(names, pattern)
        )
        return next(matches, None)

    run, card = first(RUN_MODEL, CHECKPOINTS), first(CARD)
    exports = [one for one in names if one.endswith(EXPORTS) or one == SAVED_MODEL]
    names = [one for one in names if one != RUN_MODEL]
    weights = first(*WEIGHTS, *_OTHER_WEIGHTS)
    own = run or card or weights or first(*_BESIDE)
    if own and SAVED_MODEL in exports:
        raise two_kinds(folder, own, SAVED_MODEL)
    if run == RUN_MODEL and weights in WEIGHTS and not card:
        raise two_kinds(folder, weights, run)
    return Models(run, card, weights, exports)


def two_kinds(folder: str | os.PathLike, *names: str) -> arrays.CheckpointError:
    """Returns the error of a folder with models of two kinds, in files of two names."""
    return arrays.CheckpointError(
        f"{folder} has models of two kinds, {' and '.join(names)}, and which one is "
        "meant is not clear: move one away, or give the path of the file itself."
    )


def open_file(path: str | os.PathLike) -> arrays.OpenFile | Collected:
    """Opens a file, or the one in a folder; its first bytes decide on the kind."""
    if os.path.isdir(path):
        models_in(path)
        files = [os.path.join(path, name) for name in FILES_IN_FOLDERS]
        present = [file for file in files if os.path.exists(file)]
        if not present and os.path.exists(os.path.join(path, OPEN_CLIP)):
            present = [os.path.join(path, OPEN_CLIP)]
        if len(present) != 1:
            held = sorted(os.listdir(path))[: arrays.MOST_LISTED]
            raise arrays.CheckpointError(
                f"There is no checkpoint file {path}: it is a folder with "
                f"{len(present)} of {', '.join(FILES_IN_FOLDERS)}, pass the file. It "
                f"holds {', '.join(held) or 'nothing'}."
            )
        (path,) = present
    if os.path.isfile(path):
        with open_regular(path) as file:
            start = file.read(9)
        # A header's length and its JSON; first, since an index is JSON too.
        length = int.from_bytes(start[:8], "little")
        if start[8:] == b"{" and length <= os.path.getsize(path):
            return safetensors.Safetensors(path)
        if start.startswith(h5.MAGIC):
            return h5.H5(path)
        if start.startswith(b"{"):
            return _shards(path)
    return npz.Npz(path)


# PyTorch's prefixes to keys of parts that it compiles, shards or recomputes.
_MARKS = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
# Trainers' prefixes to every key of a model that they wrap.
_WRAPPERS = (
    "module.", "model.", "state_dict.", "net.", "network.", "backbone.", "encoder.",
    "ema.", "teacher.", "student.",
)  # fmt: skip


def read_json(file: os.PathLike) -> dict:
    """Reads a file of settings beside a checkpoint; {} where there is none."""
    if not os.path.lexists(file):
        return {}
    try:
        table = json.loads(regular_files.read_text(file, limits.JSON_BYTES))
        if not isinstance(table, dict):
            raise ValueError("no table")
    except (ValueError, OSError, RecursionError) as error:
        raise arrays.CheckpointError(f"{file} cannot be read ({error}).") from error
    return table


def unwrapped(
    file: arrays.OpenFile | Collected,
) -> tuple[arrays.OpenFile | Collected, list[str]]:
    """Returns a file without what trainers put into its keys, and what that is.

    Names are taken from before the keys only where every key begins with them.
    """
    names = {key: _MARKS.sub("", key) for key in file.keys}
    marks = sorted({mark for key in file.keys for mark in _MARKS.findall(key)})
    while prefix := _common(names.values()):
        marks.append(prefix)
        names = {key: names[key].removeprefix(prefix) for key in names}
    if not marks or len(set(names.values())) < len(names):
        return file, []
    places = {name: (file, key) for key, name in names.items()}
    return Collected(file.path, places, file.metadata), marks


def _common(names):
    """Returns a wrapper's name that all begin with, or ""."""
    fits = (w for w in _WRAPPERS if all(name.startswith(w) for name in names))
    return next(fits, "") if names else ""


class Collected:
    """The arrays of open files under the names of one checkpoint, as an `OpenFile`.

    Args:
        path: that of the checkpoint, for messages.
        places: {name: (open file, key of the array in it)}.
        metadata: as of `OpenFile`.
    """

    def __init__(self, path: str, places: dict[str, tuple], metadata: dict[str, str]):
        self.path, self.metadata, self._places = path, metadata, places

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self._places)

    def check(self, key: str) -> arrays.StoredArray | np.ndarray:
        """Returns an array, checked as its file does."""
        file, own = self._places[key]
        return file.check(own)


def _shards(path):
    """Opens the files of an index, as `save_pretrained` of transformers writes them."""

    def refuse(problems):
        what = "the index of the files beside it (download or save all of them again)"
        arrays.refuse(path, what, problems)

    path = os.fspath(path)
    places, folder = _places(path), pathlib.Path(path).parent
    names = sorted(set(places.values()))
    missing = [name for name in names if not os.path.isfile(folder / name)]
    refuse([f"{name} is not beside it" for name in missing])
    files = {name: safetensors.Safetensors(folder / name) for name in names}
    refuse(list(_misplaced(places, files)))
    metadata: dict[str, str] = {}
    for name, file in files.items():
        for entry, text in file.metadata.items():
            if metadata.setdefault(entry, text) != text:
                refuse([f"the header of {name} says another {entry}"])
    whole = {key: (files[name], key) for key, name in places.items()}
    return Collected(path, whole, metadata)


def _misplaced(places, files):
    """Yields the differences between an index and the files."""
    held = {(key, name) for name, file in files.items() for key in file.keys}
    for key, name in sorted(places.items() - held):
        yield f"{name} does not hold {key}"
    for key, name in sorted(held - places.items()):
        place = places.get(key)
        where = f"places in {place}" if place else "does not name"
        yield f"{name} holds {key}, which it {where}"


def _places(path):
    places = read_json(path).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise arrays.CheckpointError(
            f"{path} is not the index of a checkpoint, whose weight_map says which "
            "file holds which array: pass the file that holds the arrays."
        )
    for name in places.values():
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            raise arrays.CheckpointError(
                f"{path} names {name!r}, which is not a file beside it, and nothing "
                "else is read: save the checkpoint again."
            )
    return places

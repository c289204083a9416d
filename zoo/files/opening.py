"""Opens a checkpoint: a file of any kind, that of a folder, or those of an index."""

from __future__ import annotations

import os
import pathlib
import re

from zoo.files import archive, description, h5, safetensors
from zoo.regular_files import open_regular

EXTENSIONS = (".npz", ".safetensors", ".h5")
# The names that timm and transformers expect and write.
SAFETENSORS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS = "model-*-of-*.safetensors"
FILES_IN_FOLDERS = (SAFETENSORS, INDEX, "model.npz", "model.weights.h5")
# OpenCLIP's, where there is none of timm or transformers.
OPEN_CLIP = "open_clip_model.safetensors"
# A file beside the index: never a path, which could lead anywhere.
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def open_file(path: str | os.PathLike) -> archive.OpenFile | Shards:
    """Opens a file, or the one in a folder; its first bytes decide on the kind."""
    if os.path.isdir(path):
        files = [os.path.join(path, name) for name in FILES_IN_FOLDERS]
        found = [file for file in files if os.path.exists(file)]
        if not found and os.path.exists(os.path.join(path, OPEN_CLIP)):
            found = [os.path.join(path, OPEN_CLIP)]
        if len(found) != 1:
            held = sorted(os.listdir(path))[: archive.MOST_LISTED]
            raise archive.CheckpointError(
                f"There is no checkpoint file {path}: it is a folder with "
                f"{len(found)} of {', '.join(FILES_IN_FOLDERS)}, pass the file. It "
                f"holds {', '.join(held) or 'nothing'}."
            )
        (path,) = found
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
            return Shards(path)
    return archive.Archive(path)


# What trainers and compilers put before every key of a model that they wrap.
_WRAPPERS = ("module.", "_orig_mod.", "model.", "state_dict.", "net.", "network.")


def without_prefix(file) -> tuple[archive.OpenFile | Shards | Unwrapped, str]:
    """Returns a file without what trainers put before all of its keys, and that prefix.

    The prefix is empty, and the file the same, where a key is without.
    """
    prefix, rest = "", file.keys
    while rest:
        wrapper = next(filter(rest[0].startswith, _WRAPPERS), None)
        if wrapper is None or not all(key.startswith(wrapper) for key in rest):
            break
        prefix += wrapper
        rest = [key.removeprefix(wrapper) for key in rest]
    return (Unwrapped(file, prefix) if prefix else file), prefix


class Unwrapped:
    """An open file whose keys all begin with a prefix, without it."""

    def __init__(self, file, prefix: str):
        self.path, self.metadata = file.path, file.metadata
        self._file, self._prefix = file, prefix

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return [key.removeprefix(self._prefix) for key in self._file.keys]

    def check(self, key: str) -> archive.StoredArray:
        """Returns an array, checked as the file does."""
        return self._file.check(self._prefix + key)


class Shards:
    """The open files of one checkpoint, with the interface of `Safetensors`.

    Source: `save_pretrained(folder, max_shard_size=...)` of transformers.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self._places = _places(self.path)
        folder = pathlib.Path(path).parent
        names = sorted(set(self._places.values()))
        missing = [name for name in names if not os.path.isfile(folder / name)]
        self._refuse([f"{name} is not beside it" for name in missing])
        self._files = {name: safetensors.Safetensors(folder / name) for name in names}
        self._refuse(list(self._misplaced()))
        self.metadata: dict[str, str] = {}
        for name, file in self._files.items():
            for entry, text in file.metadata.items():
                if self.metadata.setdefault(entry, text) != text:
                    self._refuse([f"the header of {name} says another {entry}"])

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self._places)

    def check(self, key: str) -> archive.StoredArray:
        """Returns an array, checked as in `Safetensors.check`."""
        return self._files[self._places[key]].check(key)

    def _misplaced(self):
        """Yields the differences between the index and the files."""
        held = {(key, name) for name, file in self._files.items() for key in file.keys}
        places = self._places.items()
        for key, name in sorted(places - held):
            yield f"{name} does not hold {key}"
        for key, name in sorted(held - places):
            place = self._places.get(key)
            where = f"places in {place}" if place else "does not name"
            yield f"{name} holds {key}, which it {where}"

    def _refuse(self, problems):
        what = "the index of the files beside it (download or save all of them again)"
        archive.refuse(self.path, what, problems)


def _places(path):
    places = description.read_json(path).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise archive.CheckpointError(
            f"{path} is not the index of a checkpoint, whose weight_map says which "
            "file holds which array: pass the file that holds the arrays."
        )
    for name in places.values():
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            raise archive.CheckpointError(
                f"{path} names {name!r}, which is not a file beside it, and nothing "
                "else is read: save the checkpoint again."
            )
    return places

"""Which file holds a checkpoint, and of which kind it is."""

from __future__ import annotations

import os

from zoo.files import h5, safetensors, shards
from zoo.files.archive import Archive, CheckpointError, OpenFile

# The name that timm and transformers look for.
SAFETENSORS = "model.safetensors"
_MOST_LISTED = 10
# What a folder holds its arrays in.
FILES_IN_FOLDERS = (SAFETENSORS, shards.INDEX, "model.npz", "model.weights.h5")


def open_file(path: str | os.PathLike) -> OpenFile | shards.Shards:
    """Opens a file, or that of a folder, by what it begins with.

    Raises:
        CheckpointError: there is no such file, a folder holds none or several, or it is
            of another kind or damaged.

    Example:
        >>> from zoo.files import opening
        >>> len(opening.open_file("tests/goldens/token.npz").keys)
        56
    """
    if os.path.isdir(path):
        found = [
            os.path.join(path, name)
            for name in FILES_IN_FOLDERS
            if os.path.isfile(os.path.join(path, name))
        ]
        if len(found) != 1:
            held = sorted(os.listdir(path))[:_MOST_LISTED]
            raise CheckpointError(
                f"There is no checkpoint file {path}: it is a folder with "
                f"{len(found)} of {', '.join(FILES_IN_FOLDERS)}, pass the file. It "
                f"holds {', '.join(held) or 'nothing'}."
            )
        (path,) = found
    if os.path.isfile(path):
        # Before the index: the length it begins with may be any byte.
        if safetensors.is_safetensors(path):
            return safetensors.Safetensors(path)
        if h5.is_h5(path):
            return h5.H5(path)
        if shards.is_index(path):
            return shards.Shards(path)
    return Archive(path)

"""Opens a checkpoint file of any kind, or the one in a folder."""

from __future__ import annotations

import os

from zoo.files import h5, safetensors, shards
from zoo.files.archive import Archive, CheckpointError, OpenFile

EXTENSIONS = (".npz", ".safetensors", ".h5")
# The name that timm and transformers expect.
SAFETENSORS = "model.safetensors"
_MOST_LISTED = 10
FILES_IN_FOLDERS = (SAFETENSORS, shards.INDEX, "model.npz", "model.weights.h5")


def open_file(path: str | os.PathLike) -> OpenFile | shards.Shards:
    """Opens a file, or the one in a folder; its first bytes decide on the kind."""
    if os.path.isdir(path):
        files = [os.path.join(path, name) for name in FILES_IN_FOLDERS]
        found = [file for file in files if os.path.isfile(file)]
        if len(found) != 1:
            held = sorted(os.listdir(path))[:_MOST_LISTED]
            raise CheckpointError(
                f"There is no checkpoint file {path}: it is a folder with "
                f"{len(found)} of {', '.join(FILES_IN_FOLDERS)}, pass the file. It "
                f"holds {', '.join(held) or 'nothing'}."
            )
        (path,) = found
    if os.path.isfile(path):
        # First, since its length may begin with the byte of an index.
        if safetensors.is_safetensors(path):
            return safetensors.Safetensors(path)
        if h5.is_h5(path):
            return h5.H5(path)
        if shards.is_index(path):
            return shards.Shards(path)
    return Archive(path)

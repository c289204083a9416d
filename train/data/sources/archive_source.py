"""A user's own images in an archive of folders."""

import dataclasses
from typing import Any

from train.data.archives import unpacked
from train.data.options import DataOptions
from train.data.sources.folder_source import load_folder
from train.data.sources.splits import Source


def load_archive(dataset: str, fraction: float | None, options: DataOptions) -> Source:
    """Loads the folder that is packed in an archive, as `load_folder` does."""
    folder = str(unpacked(dataset))
    source = load_folder(folder, fraction, options)
    splits: dict[str, Any] = {
        part: dataclasses.replace(split, name=split.name.replace(folder, dataset))
        for part, split in source.splits().items()
    }
    return dataclasses.replace(source, name=dataset, **splits)

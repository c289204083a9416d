"""A user's own images in an archive of folders."""

import dataclasses
import pkgutil
from typing import Any

from train.data.archives import unpacked
from train.data.options import DataOptions
from train.data.registry import kind_of
from train.data.sources.folder_source import load_folder
from train.data.sources.splits import Source


def load_archive(dataset: str, fraction: float | None, options: DataOptions) -> Source:
    """Loads the folder that is packed in an archive: of classes, or with masks."""
    folder = str(unpacked(dataset))
    kind = kind_of(folder)
    load = pkgutil.resolve_name(kind.loader) if kind.name == "masks" else load_folder
    source = load(folder, fraction, options)
    splits: dict[str, Any] = {
        part: dataclasses.replace(split, name=split.name.replace(folder, dataset))
        for part, split in source.splits().items()
    }
    return dataclasses.replace(source, name=dataset, **splits)

"""The names of photos in files: relative to their data set, so that it can be moved."""

import functools
import os
from collections.abc import Iterable, Sequence

from train.data.archives import unpacked
from train.data.registry import kind_of
from zoo.common.regular_files import expand_home


def folder_of(dataset: str) -> str | None:
    """Returns the folder that a data set's own files are in, None for other data."""
    kind = kind_of(dataset)
    if not kind.is_own:
        return None
    if kind.name == "archive":
        return os.path.abspath(unpacked(dataset))
    path = expand_home(dataset)
    return os.path.abspath(path if path.is_dir() else path.parent)


def relative(names: Iterable[str], dataset: str) -> list[str]:
    """Returns the names of photos as files have them: "daisy/1.jpg" of photos/."""
    folder = folder_of(dataset)
    if folder is None:
        return list(names)
    shortened = []
    for name in names:
        path = os.path.abspath(name)
        # Photos of a CSV file may be anywhere.
        is_within = path.startswith(folder + os.sep)
        path = os.path.relpath(path, folder) if is_within else path
        shortened.append(path.replace(os.sep, "/"))
    return shortened


class Places:
    """Finds photos by their names: relative to the data set, or as a shell has them.

    Args:
        names: those of the photos, in order.
        dataset: str.
    """

    def __init__(self, names: Sequence[str], dataset: str):
        self._folder = folder_of(dataset)
        self._places = {self._full(name): place for place, name in enumerate(names)}

    def find(self, name: str) -> int | None:
        """Returns the place of a photo, None if there is none of this name."""
        meant = self._meant(name)
        if found := [path for path in meant if path in self._places]:
            return self._places[found[0]]
        # The data set, the folder or the photo may be a link.
        real = (self._real_places.get(os.path.realpath(path)) for path in meant)
        return next((place for place in real if place is not None), None)

    def file(self, name: str) -> str | None:
        """Returns the path of the file that a name means, None if there is none."""
        return next(filter(os.path.isfile, self._meant(name)), None)

    @functools.cached_property
    def _real_places(self):
        if self._folder is None:
            return {}
        return {os.path.realpath(path): place for path, place in self._places.items()}

    def _meant(self, name):
        within = name if self._folder is None else os.path.join(self._folder, name)
        return self._full(within), self._full(name)

    def _full(self, name):
        return name if self._folder is None else os.path.abspath(name)

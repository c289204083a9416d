"""Copies of photos in a folder per class."""

import filecmp
import os
import pathlib
import re
import shutil

from train.common.errors import RunError
from train.common.files import make_folder

# Of a folder's name: with a number it stays below what disks take, 255 bytes.
_MOST_CHARACTERS = 60
# Names that Windows keeps for itself.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


class SortedCopies:
    """A folder with a folder per class, which photos are copied to.

    A file is never overwritten: where its name is taken by another photo, a number is
    added to the name. A photo that is there already is not copied again.

    Args:
        folder: str or path, made if missing.
        class_names: sequence of str, of all classes.
    """

    def __init__(self, folder, class_names):
        self.folder = make_folder(folder, "--sort_into")
        self._names = folder_names(class_names)
        self._temporary = self.folder / f".keras-vit-{os.getpid()}.tmp"

    def add(self, photo, name):
        """Copies a photo, a path, to the folder of a class; returns where it is."""
        folder = self.folder / self._names[name]
        try:
            folder.mkdir(exist_ok=True)
            return self._copied(photo, folder)
        except OSError as error:
            raise RunError(
                f"Cannot copy {photo} to {folder}: {error.strerror or error}. Free "
                "space or mend the permissions, or pass another --sort_into."
            ) from error

    def _copied(self, photo, folder):
        stem, ending = os.path.splitext(os.path.basename(photo))
        is_copied, number = False, 1
        try:
            while True:
                target = folder / (f"{stem}-{number}" if number > 1 else stem)
                target = target.with_name(target.name + ending)
                if os.path.lexists(target):
                    if target.is_file() and filecmp.cmp(photo, target, shallow=False):
                        return target
                    number += 1
                    continue
                if not is_copied:
                    shutil.copyfile(photo, self._temporary)
                    shutil.copystat(photo, self._temporary)
                    is_copied = True
                if _take(self._temporary, target):
                    return target
        finally:
            self._temporary.unlink(missing_ok=True)


def folder_names(class_names):
    """Returns a safe and distinct name of a folder for each name of a class, a dict.

    >>> folder_names(["red/green", "Red:Green", "..", "cat"])
    {'red/green': 'red_green', 'Red:Green': 'Red_Green-2', '..': '_', 'cat': 'cat'}
    """
    taken, names = set(), {}
    for class_name in class_names:
        safe = stem = _safe(class_name)
        number = 1
        # Some disks do not know capitals.
        while safe.casefold() in taken:
            number += 1
            safe = f"{stem}-{number}"
        taken.add(safe.casefold())
        names.setdefault(class_name, safe)
    return names


def _safe(name):
    name = "".join(c if c.isprintable() else "_" for c in name)
    name = re.sub(r'[<>:"/\\|?*]+', "_", name)[:_MOST_CHARACTERS]
    # Hidden folders, and those that Windows cannot open.
    name = re.sub(r"^[.\s]+", "_", name).rstrip(". ")
    return f"_{name}" if not name or _RESERVED.fullmatch(name) else name


def _take(temporary, target):
    """Moves a file to a name unless that is taken; returns whether it was free."""
    try:
        # Unlike a move, it fails where the name is taken.
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:  # a disk without links
        if os.path.lexists(target):
            return False
        pathlib.Path(temporary).rename(target)
    return True

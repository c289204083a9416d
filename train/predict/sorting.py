"""Copies of photos in a folder per class."""

import contextlib
import filecmp
import hashlib
import os
import pathlib
import re
import shutil
import stat
from collections.abc import Iterable

import filelock

from train.common.errors import RunError
from train.common.files import make_folder
from zoo.common.regular_files import file_lock

# Keep this much of a name before a number or digest: disks take 255 bytes.
_MOST_CHARACTERS = 60
# No two of a million paths share a digest of this length.
_DIGEST_BYTES = 8
# Killed processes leave files of such names, with their number.
_TEMPORARY = re.compile(r"\.keras-vit-\d{1,10}\.tmp")
_LOCK, _LOCK_SECONDS = ".keras-vit.lock", 600
# Windows keeps these names for itself.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


class SortedCopies:
    """A folder with a folder per class, which photos are copied to.

    A file is never overwritten: where its name is taken by another photo, a digest of
    the photo's path is added to the name, the same after an interruption. A photo that
    is there already is not copied again. `class_names` are those of all classes;
    photos with one of the `marks` go to a folder of its own, such as `_unsure`.
    """

    def __init__(self, folder, class_names, marks=()):
        self.folder = make_folder(folder, "--sort_into")
        self._names = folder_names((*class_names, *map(_of_mark, marks)))
        self._remove_left()
        self._temporary = self.folder / f".keras-vit-{os.getpid()}.tmp"

    def _remove_left(self):
        """Removes what killed processes left, if no other copies to the folder."""
        with contextlib.suppress(RunError, OSError), self._alone():
            for name in os.listdir(self.folder):
                path = self.folder / name
                if _TEMPORARY.fullmatch(name) and stat.S_ISREG(path.lstat().st_mode):
                    path.unlink()

    @contextlib.contextmanager
    def _alone(self):
        """Waits for other processes that copy a photo to the folder."""
        try:
            lock = file_lock(self.folder / _LOCK)
            lock.acquire(timeout=_LOCK_SECONDS, poll_interval=0.005)
        except filelock.Timeout as error:
            raise RunError(
                f"Another process has been copying to {self.folder} for "
                f"{_LOCK_SECONDS} seconds: wait for it or stop it."
            ) from error
        except NotImplementedError:  # a disk without locks
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def add(self, photo: str, name: str, mark: str | None = None) -> pathlib.Path:
        """Copies a photo, a path, to the folder of a class; returns where it is.

        With a mark that is not empty, it goes to the folder of that.
        """
        folder = self.folder / self._names[_of_mark(mark) if mark else name]
        try:
            with self._alone():
                folder.mkdir(exist_ok=True)
                return self._copied(photo, folder)
        except OSError as error:
            raise RunError(
                f"Cannot copy {photo} to {folder}: {error.strerror or error}. Free "
                "space or mend the permissions, or pass another --sort_into."
            ) from error

    def _copied(self, photo, folder):
        stem, ending = os.path.splitext(os.path.basename(photo))
        name = os.fsencode(os.path.abspath(photo))
        digest = hashlib.blake2b(name, digest_size=_DIGEST_BYTES).hexdigest()
        longer = f"{stem[:_MOST_CHARACTERS]}-{digest}{ending}"
        targets = [folder / f"{stem}{ending}", folder / longer]
        try:
            for target in targets:
                if os.path.lexists(target):
                    if target.is_file() and filecmp.cmp(photo, target, shallow=False):
                        return target
                    continue
                shutil.copyfile(photo, self._temporary)
                shutil.copystat(photo, self._temporary)
                if _take(self._temporary, target):
                    return target
        finally:
            self._temporary.unlink(missing_ok=True)
        raise RunError(
            f"Cannot copy {photo}: {targets[0]} and {targets[1]} are other files. Move "
            "them away, or pass another --sort_into."
        )


def folder_names(class_names: Iterable[str]) -> dict[str, str]:
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


def _of_mark(mark):
    # No class is called so; the folder is `_unsure`.
    return f"\0{mark}"


def _safe(name):
    name = "".join(c if c.isprintable() else "_" for c in name)
    name = re.sub(r'[<>:"/\\|?*]+', "_", name)[:_MOST_CHARACTERS]
    # Avoid hidden folders, and those that Windows cannot open.
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

"""Archives of photos, unpacked once into the cache.

What others packed is not trusted: no file leaves the folder, links are refused, and
numbers and sizes are bounded while they are unpacked, whatever is declared.
"""

import contextlib
import functools
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from train.common.errors import RunError, first_line
from train.common.files import explained, scratch_folder
from zoo.common.limits import (
    ARCHIVE_DIRECTORY_BYTES,
    ARCHIVE_MEMBERS,
    ARCHIVE_RATIO,
    PHOTO_BYTES,
    TooLargeError,
)
from zoo.common.regular_files import expand_home, open_regular
from zoo.common.safe_text import is_safe, printable
from zoo.store import cache_dir
from zoo.store.progress import progress_bar

_BLOCK = 2**20
# tarfile reads the headers of extensions whole; names have 4 KB at most.
_TAR_HEADER_BYTES = 2**22
# Small archives of flat drawings may be this much larger than the ratio allows.
_SLACK = 2**24
# Finder adds this folder to what it packs.
_SYSTEM_FOLDER = "__MACOSX"
# A bar before that would only flicker.
_BAR_SECONDS = 3


class Member(NamedTuple):
    """A file or folder in an archive, which `open` opens."""

    name: str
    is_folder: bool
    size: int
    # Why it is refused, empty for files and folders.
    problem: str
    open: Callable[[], IO[bytes] | None]


def unpacked(path: str | os.PathLike) -> pathlib.Path:
    """Returns the folder of an archive's files, which the first call unpacks.

    It is in the cache, under a digest of the archive, so that it always has what the
    archive has. Where all is in one folder of folders, as what is called like the
    archive often is, that is the one. Raises a `RunError` for what cannot be unpacked,
    or should not be: nothing is left of it then.
    """
    path, cache = expand_home(path), cache_dir() / "data"
    remedy = "Free space, or set KERAS_VIT_CACHE to another folder"
    with explained(f"unpack {path} into {cache}", remedy):
        stem = re.sub(r"[^\w.+-]+", "_", path.name)[:100].lstrip(".")
        folder = cache / f"{stem}-{_digest(path)}"
        if not folder.is_dir():
            cache.mkdir(parents=True, exist_ok=True)
            with scratch_folder("archive", within=cache) as scratch:
                new = pathlib.Path(scratch, "new")
                new.mkdir()
                _unpack(path, new)
                _take(new, folder)
    return _below_single_folders(folder)


def _digest(path):
    digest = hashlib.blake2b(digest_size=8)
    with open_regular(path) as file, _bar(f"reading {path.name}", path) as bar:
        while block := file.read(_BLOCK):
            digest.update(block)
            bar.update(len(block))
    return digest.hexdigest()


def _bar(title, path):
    settings = {"unit": "B", "unit_scale": True, "delay": _BAR_SECONDS}
    return progress_bar(total=os.path.getsize(path), desc=title, **settings)


def _take(new, folder):
    try:
        new.rename(folder)
    except OSError:
        # Another process may have unpacked the same archive meanwhile.
        if not folder.is_dir():
            raise


def _below_single_folders(folder):
    """Returns the first folder below that has other than one folder of folders."""
    while True:
        below = [path for path in folder.iterdir() if path.is_dir()]
        if len(below) != 1 or not any(path.is_dir() for path in below[0].iterdir()):
            return folder
        [folder] = below


def _unpack(path, folder):
    """Unpacks an archive into an empty folder."""
    free = shutil.disk_usage(folder).free
    left = min(ARCHIVE_RATIO * os.path.getsize(path) + _SLACK, free)
    count = 0
    try:
        with open_regular(path) as file, _bar(f"unpacking {path.name}", path) as bar:
            for member in members(path, file):
                count, left = count + 1, left - member.size
                if count > ARCHIVE_MEMBERS:
                    raise TooLargeError(f"it has more than {ARCHIVE_MEMBERS:,} files")
                if not 0 <= member.size <= PHOTO_BYTES or left < 0:
                    raise TooLargeError(
                        f"{printable(member.name, 200)} has {member.size:,} bytes, and "
                        "its files are more than the disk or photos can have"
                    )
                if parts := _parts(path, member):
                    _write(member, folder.joinpath(*parts))
                bar.update(file.tell() - bar.n)
    except RunError:
        raise
    except (FileExistsError, NotADirectoryError) as error:
        name = os.path.relpath(error.filename, folder)
        raise RunError(
            f"{path} has {printable(name)} twice, or as a file and a folder: pack it "
            "again, or unpack it yourself and pass the folder."
        ) from error
    except TooLargeError as error:
        raise RunError(
            f"{path} is not unpacked, as {error}: unpack it yourself if you trust it, "
            "and pass the folder."
        ) from error
    # Damaged archives also raise these, of which some are errors of the system, too.
    except (
        *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error),
        *(EOFError, ValueError, RuntimeError, LookupError, OverflowError),
    ) as error:
        reason = first_line(error) or type(error).__name__
        raise RunError(
            f"{path} is damaged, or of another kind than its name says ({reason}): "
            "download or pack it again, or unpack it yourself and pass the folder."
        ) from error


def members(path: pathlib.Path, file: IO[bytes]) -> Iterator[Member]:
    """Yields the members of an archive, a path that is open as `file`."""
    ending = path.name.lower()
    if ending.endswith(".zip"):
        # Reading takes as much memory as it asks for.
        most = min(ARCHIVE_DIRECTORY_BYTES, os.path.getsize(path))
        yield from _of_zip(_Bounded(file, most))
        return
    with contextlib.ExitStack() as stack:
        if not ending.endswith(".tar"):
            file = stack.enter_context(gzip.GzipFile(fileobj=file))
        yield from _of_tar(_Bounded(file, _TAR_HEADER_BYTES))


def _of_zip(file):
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            kind, problem = stat.S_IFMT(info.external_attr >> 16), ""
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                problem = "is a link or a device"
            elif info.flag_bits & 1:
                problem = "is encrypted"
            elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                problem = "is compressed by other means than deflate"
            yield Member(
                info.filename,
                # Some packers of Windows write backslashes.
                info.filename.endswith(("/", "\\")),
                info.file_size,
                problem,
                functools.partial(archive.open, info),
            )


def _of_tar(file):
    end = -1
    with tarfile.TarFile(fileobj=file) as archive:
        while (info := archive.next()) is not None:
            if info.offset <= end:
                raise tarfile.ReadError("it leads back to its beginning")
            end = info.offset
            is_usual = info.isfile() or info.isdir()
            yield Member(
                info.name,
                info.isdir(),
                info.size,
                "" if is_usual else "is a link or a device",
                functools.partial(archive.extractfile, info),
            )
            # Each takes 1 KB, and is not needed any more.
            archive.members.clear()


class _Bounded:
    """A file of which no more than `most` bytes are read at once.

    What a header declares would be read whole.
    """

    mode = "rb"

    def __init__(self, file, most):
        self._file, self._most = file, most

    def read(self, size: int = -1) -> bytes:
        """Reads as files do; refuses to read more."""
        read = self._file.read(
            self._most + 1 if size < 0 else min(size, self._most + 1)
        )
        if len(read) > self._most:
            raise TooLargeError(f"a header in it has more than {self._most:,} bytes")
        return read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _parts(path, member):
    """Returns the folders and the name of a member, none of those that are left out."""
    name = member.name.replace("\\", "/")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    shown = printable(member.name, 200)
    if name.startswith("/") or ".." in parts or re.match("[A-Za-z]:", name):
        raise RunError(
            f"{path} has the path {shown}, which leads out of its folder, and is "
            "not unpacked: pack it again."
        )
    if member.problem:
        raise RunError(
            f"{path} is not unpacked, as {shown} {member.problem}: pack it again "
            "with files and folders alone."
        )
    if not is_safe(name):
        raise RunError(
            f"{path} has the path {shown}, with control characters or bytes that "
            "are not UTF-8: rename it, and pack it again."
        )
    return [] if is_hidden(name) else parts


def is_hidden(name: str) -> bool:
    """Returns whether a file in an archive is hidden, or the system's own.

    >>> is_hidden("__MACOSX/cat.jpg"), is_hidden("./cats/cat.jpg")
    (True, False)
    """
    parts = [part for part in name.replace("\\", "/").split("/") if part != "."]
    return any(part.startswith(".") or part == _SYSTEM_FOLDER for part in parts)


def _write(member, path):
    if member.is_folder:
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with member.open() as source, path.open("xb") as file:
        shutil.copyfileobj(source, file, _BLOCK)

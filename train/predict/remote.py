"""Photos and shards on other machines, which fsspec opens by their URLs."""

import contextlib
import errno
import os
import pathlib
from collections.abc import Callable, Generator
from typing import IO

from train.common import packages
from train.common.errors import RunError, first_line
from train.common.files import scratch_folder
from zoo.common.limits import PHOTO_BYTES
from zoo.common.safe_text import printable

_BLOCK = 2**20


def is_url(place: str) -> bool:
    """Returns whether a place is a URL, not a path.

    >>> is_url("s3://bucket/cat.jpg"), is_url("cat.jpg")
    (True, False)
    """
    return "://" in place and not os.path.exists(place)


def content_of(photo: str | bytes) -> str | bytes:
    """Returns the bytes of a photo at a URL; paths and contents as they are.

    Raises an `OSError` where there is none, or it cannot be read. No photo has more
    than 1 GiB.
    """
    if not isinstance(photo, str) or not is_url(photo):
        return photo
    files, path = _file_system(photo)
    with _explained(photo), files.open(path, "rb") as file:
        return read_bounded(file, PHOTO_BYTES)


def read_bounded(file: IO[bytes], most: int) -> bytes:
    """Returns what an open file has; raises an `OSError` where that is too much."""
    blocks, size = [], 0
    # One call may return less than it is asked for, and some files refuse large ones.
    while block := file.read(_BLOCK):
        blocks.append(block)
        size += len(block)
        if size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return b"".join(blocks)


def files_of(url: str, is_file: Callable[[str], bool]) -> list[str]:
    """Returns the URLs of the files that a URL means: a folder, a pattern or a file.

    `is_file` says whether the end of a URL is the name of a file; of another one the
    storage is asked.
    """
    files, path = _file_system(url)
    with _explained(url):
        # Other characters of patterns are part of some URLs.
        if "*" in path:
            found = files.glob(path)
        elif not url.endswith("/") and (is_file(path) or not files.isdir(path)):
            return [url]
        else:
            found = files.find(path)
        return [files.unstrip_protocol(path) for path in sorted(found)]


@contextlib.contextmanager
def local_file(place: str) -> Generator[pathlib.Path]:
    """Yields the path of a file, of a URL that of a copy, which is then removed."""
    if not is_url(place):
        yield pathlib.Path(place)
        return
    with scratch_folder("shard") as folder:
        path = pathlib.Path(folder, "copy" + "".join(pathlib.Path(place).suffixes))
        files, name = _file_system(place)
        with _explained(place):
            files.get_file(name, str(path))
        yield path


def _file_system(url):
    packages.need(f"The URL {url}", ("fsspec",), extra="ray")
    import fsspec

    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise RunError(
            f"The URL {printable(url)} cannot be opened: {first_line(error)}"
        ) from error


@contextlib.contextmanager
def _explained(url):
    """Turns errors of fsspec and what it opens files by into an `OSError`."""
    try:
        yield
    except OSError as error:
        # An error of the system has a number, one of a library a text alone.
        reason = error.strerror or first_line(error) or type(error).__name__
        raise OSError(f"{printable(url)}: {reason}") from error
    # Each kind of storage has errors of its own.
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise OSError(f"{printable(url)}: {reason}") from error

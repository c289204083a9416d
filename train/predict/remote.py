"""Photos and shards on other machines, which fsspec opens by their URLs."""

import contextlib
import os
import pathlib
from collections.abc import Generator, Iterator

from train.common import packages
from train.common.errors import RunError, first_line
from train.common.files import scratch_folder
from zoo.common.limits import PHOTO_BYTES
from zoo.common.safe_text import printable


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
    with _explained(photo):
        files, path = _file_system(photo)
        with files.open(path, "rb") as file:
            content = file.read(PHOTO_BYTES + 1)
    if len(content) > PHOTO_BYTES:
        raise OSError(f"{printable(photo)} has more than {PHOTO_BYTES:,} bytes")
    return content


def files_of(url: str) -> Iterator[str]:
    """Yields the URLs of the files that a URL means: a folder, a pattern or a file."""
    with _explained(url):
        files, path = _file_system(url)
        # Other characters of patterns are part of some URLs.
        if "*" in path:
            found = files.glob(path)
        elif os.path.splitext(path)[1]:
            found = [path]
        else:
            found = files.find(path)
        yield from (files.unstrip_protocol(path) for path in sorted(found))


@contextlib.contextmanager
def local_file(place: str) -> Generator[pathlib.Path]:
    """Yields the path of a file, of a URL that of a copy, which is then removed."""
    if not is_url(place):
        yield pathlib.Path(place)
        return
    with scratch_folder("shard") as folder:
        path = pathlib.Path(folder, "copy" + "".join(pathlib.Path(place).suffixes))
        with _explained(place):
            files, name = _file_system(place)
            files.get_file(name, str(path))
        yield path


def _file_system(url):
    try:
        packages.need(f"The URL {url}", ("fsspec",), extra="ray")
    except RunError as error:
        raise OSError(str(error)) from error
    import fsspec

    return fsspec.core.url_to_fs(url)


@contextlib.contextmanager
def _explained(url):
    """Turns errors of fsspec and what it opens files by into an `OSError`."""
    try:
        yield
    except OSError as error:
        # Those of the system have a number, and those of libraries a text alone.
        reason = error.strerror or first_line(error) or type(error).__name__
        raise OSError(f"{printable(url)}: {reason}") from error
    # Each kind of storage has errors of its own.
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise OSError(f"{printable(url)}: {reason}") from error

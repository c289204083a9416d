"""Photos and shards on other machines, which fsspec opens by their URLs."""

import contextlib
import errno
import functools
import os
import pathlib
import time
from collections.abc import Callable, Generator
from typing import IO

from train.common import packages
from train.common.errors import RunError, first_line
from train.common.files import scratch_folder
from zoo.common.limits import PHOTO_BYTES
from zoo.common.safe_text import printable

_BLOCK = 2**20
# Packages by which fsspec opens these, as pip calls them.
_PACKAGES = {
    "gcs": "gcsfs",
    "gs": "gcsfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
    "s3": "s3fs",
}
# Seconds before a read is tried again that failed in a way that may pass: by these
# statuses, or by errors of these names, which libraries share.
_PAUSES = (1, 2, 4, 8)
_BUSY = {408, 429, 500, 502, 503, 504}
_BROKEN = {"TimeoutError", "Timeout", "TimeoutException", "ConnectionResetError"}
_BROKEN |= {"ServerDisconnectedError", "ClientPayloadError", "RemoteProtocolError"}
# File systems that try again themselves, hf where it does not copy whole files.
_PATIENT = {"gcs", "gs", "hf", "s3", "s3a"}


def is_url(place: str) -> bool:
    """Returns whether a place is a URL, not a path.

    >>> is_url("s3://bucket/cat.jpg"), is_url("cat.jpg")
    (True, False)
    """
    return "://" in place and not os.path.exists(place)


def content_of(photo: str | bytes) -> str | bytes:
    """Returns the bytes of a photo at a URL; paths and contents as they are.

    Raises an `OSError` where there is none, or it cannot be read, and a `ValueError` of
    a URL of no kind that is known, of a folder and of a pattern. No photo has more than
    1 GiB.
    """
    if not isinstance(photo, str) or not is_url(photo):
        return photo
    files, path = _file_system(photo)

    def read() -> bytes:
        with files.open(path, "rb") as file:
            content = read_bounded(file, PHOTO_BYTES)
            _check_size(files, path, len(content), getattr(file, "size", None))
            return content

    content, problem = b"", None
    try:
        with _explained(photo):
            content = read() if _is_patient(files) else _tried(read)
    except OSError as error:
        problem = error
    # Some folders can be read, and have nothing.
    if not content and _is_of_several(files, path):
        raise ValueError(
            f"{printable(photo)} is a folder or a pattern, and photos in a list are "
            "files: pass it as an argument of the command instead."
        ) from problem
    if problem is not None:
        raise problem
    return content


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


def files_of(url: str, is_file: Callable[[str], bool]) -> list[tuple[str, bool]]:
    """Returns the URLs of the files that a URL means: a folder, a pattern or a file.

    With each it says whether the file itself is meant, or is one in a folder. Hidden
    files and folders are left out. `is_file` says whether the end of a URL is the name
    of a file; of another one the storage is asked. Raises an `OSError` or a
    `ValueError`, also where a folder in another one cannot be listed.
    """
    # Instances in the cache are those of others in this process, too.
    files, path = _file_system(url, skip_instance_cache=True)
    _raise_in_walks(files)

    def listed() -> list[tuple[str, bool]]:
        # Other characters of patterns are part of some URLs.
        if "*" in path:
            found = _matches(files, path)
        elif not url.endswith("/") and (is_file(path) or not _is_folder(files, path)):
            return [(url, True)]
        else:
            found = dict.fromkeys(_visible(files.find(path), path), False)
        # S3 and Google Storage may have an empty file of the name `folder/`.
        paths = sorted(path for path in found if not path.endswith("/"))
        return [(files.unstrip_protocol(path), found[path]) for path in paths]

    with _explained(url):
        return listed() if _is_patient(files) else _tried(listed)


def _raise_in_walks(files):
    """Has a file system raise errors: fsspec leaves out folders it cannot list."""
    name = "_walk" if files.async_impl else "walk"
    walk = getattr(type(files), name)
    setattr(files, name, functools.partial(walk, files, on_error="raise"))


def _is_folder(files, path):
    """Returns whether a path is a folder; unlike `isdir`, raises what goes wrong."""
    # A page of links is a file, too.
    return files.info(path)["type"] == "directory" or files.isdir(path)


def _is_of_several(files, path):
    """Returns whether a path is known to be a pattern or a folder."""
    # Pages of links are files, too.
    with contextlib.suppress(Exception):
        return "*" in path or ("http" not in files.protocol and files.isdir(path))
    return False


def _matches(files, pattern):
    """Returns the files that a pattern means, with whether they fit it themselves."""
    top = pattern.partition("*")[0].rpartition("/")[0]
    # A bracket may be that of a name.
    entries = files.glob(pattern.replace("[", "[[]"), detail=True)
    if "[" in pattern:
        entries |= files.glob(pattern, detail=True)
    found = {}
    for path in _visible(entries, top):
        if entries[path]["type"] != "directory":
            found[path] = True
        # With two stars, what is in a folder fits, too.
        elif "**" not in pattern:
            for file in _visible(files.find(path), top):
                found.setdefault(file, False)
    return found


def _visible(paths, top):
    """Returns paths, without those that are hidden below the folder `top`."""
    top = top.rstrip("/")
    # At the root of some storage paths begin without a slash.
    return [path for path in paths if "/." not in f"/{path.removeprefix(top)}"]


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
            _tried(lambda: files.get_file(name, str(path)))
            expected = files.info(name).get("size")
            _check_size(files, name, path.stat().st_size, expected)
        yield path


def _check_size(files, path, size, expected):
    """Raises an `OSError` of a file that has ended early."""
    if expected is None or size >= expected:
        return
    # Google Storage unpacks such files, and knows the size of what it has.
    if files.info(path).get("contentEncoding") != "gzip":
        raise OSError(errno.EIO, f"it ends after {size:,} of {expected:,} bytes")


def _file_system(url, **options):
    packages.need(f"The URL {url}", ("fsspec",), extra="ray")
    import fsspec

    if "::" in url:
        raise ValueError(f"{printable(url)}: chained URLs (::) are not read")
    try:
        return fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        package = _PACKAGES.get(url.partition("://")[0])
        remedy = f": pip install {package}" if package else ""
        raise RunError(
            f"The URL {printable(url)} cannot be opened: {first_line(error)}{remedy}."
        ) from error
    except ValueError as error:
        raise ValueError(f"{printable(url)}: {first_line(error)}") from error


def _is_patient(files):
    """Returns whether a file system tries again by itself what may pass."""
    protocols = [files.protocol] if isinstance(files.protocol, str) else files.protocol
    return not _PATIENT.isdisjoint(protocols)


def _tried(read):
    """Returns what `read` returns, tried again after errors that may pass."""
    for pause in _PAUSES:
        try:
            return read()
        # Each kind of storage has errors of its own.
        except Exception as error:
            if not _may_pass(error):
                raise
        time.sleep(pause)
    return read()


def _may_pass(error):
    """Returns whether an error, or what has caused it, may be gone in a moment."""
    if error is None:
        return False
    if (status := _status(error)) is not None:
        return status in _BUSY
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & _BROKEN) or _may_pass(error.__cause__)


def _status(error):
    """Returns the status that a server has answered with, None for other errors."""
    for place in (error, getattr(error, "response", None)):
        for name in ("status", "status_code", "code"):
            if isinstance(status := getattr(place, name, None), int):
                return status
    return None


@contextlib.contextmanager
def _explained(url):
    """Turns errors of fsspec and what it opens files by into an `OSError`."""
    try:
        yield
    except OSError as error:
        # An error of the system has a number, one of a library a text alone.
        reason = error.strerror or first_line(error) or type(error).__name__
        if isinstance(error, FileNotFoundError) and not error.strerror:
            # Most libraries give the path alone; that of HTTP raises no other error.
            reason = f"it is not there ({reason})"
            if _status(error.__cause__) not in (None, 404):
                reason = f"it is not sent ({first_line(error.__cause__)})"
        raise OSError(f"{printable(url)}: {reason}") from error
    # Each kind of storage has errors of its own.
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise OSError(f"{printable(url)}: {reason}") from error

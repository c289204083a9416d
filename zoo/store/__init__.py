"""Downloads and their cache: a URL to a verified local file.

Environment:
    KERAS_VIT_CACHE: folder of the downloads, else `$XDG_CACHE_HOME/keras_vit`, else
        `~/.cache/keras_vit`.
    KERAS_VIT_OFFLINE: `1` never uses the network.
    KERAS_VIT_MIRROR: a base URL that replaces `https://storage.googleapis.com`.

A download is checked against the length and MD5 that its server sends (Google has no
MD5 of files uploaded in parts, and their CRC-32C is not computed), what the caller
expects, and the SHA-256 of the first download. The cache has each file beside its
record, `NAME.json`, and unfinished downloads and locks in its folder `.transfers`.
"""

import base64
import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import warnings

from zoo.common import limits
from zoo.common.regular_files import (
    NotRegularError,
    expand_home,
    file_lock,
    missing_remedy,
    open_regular,
    read_bytes,
    read_text,
)
from zoo.common.safe_text import PrintableError, brief, printable
from zoo.libraries.description import MALFORMED
from zoo.store.part import Part, TransferError

_BUCKETS = "https://storage.googleapis.com"
# Published sizes are rounded to as little as two digits.
_SIZE_TOLERANCE = 0.02
# For files of unknown size; larger than any model that is read here.
_MOST_BYTES = 20 * 10**9
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
# Before a process that waits for another one prints that, and before it gives up where
# that one receives nothing.
_NOTICE_SECONDS = 3
_STALL_SECONDS = 600
# Unfinished downloads older than this are deleted.
_KEEP_SECONDS = 30 * 24 * 3600


class StoreError(PrintableError, OSError):
    """A file that is not available, or has unexpected content."""


@dataclasses.dataclass(frozen=True)
class CachedFile:
    """A file in the cache, with its URL, size in bytes and hexadecimal SHA-256."""

    path: pathlib.Path
    url: str
    size: int
    sha256: str


def cache_dir() -> pathlib.Path:
    """Returns the folder of the downloads, which may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = os.environ.get("KERAS_VIT_CACHE") or os.path.join(base, "keras_vit")
    return expand_home(cache)


def cached() -> list[CachedFile]:
    """Returns the downloaded files by path, without those copied there by hand."""
    files = (note.with_suffix("") for note in sorted(cache_dir().glob("*.json")))
    return [_record(file) for file in files if file.is_file()]


def fetch(
    source: str | os.PathLike,
    *,
    file_size: int | None = None,
    sha256: str | None = None,
    most_bytes: int = _MOST_BYTES,
) -> pathlib.Path:
    """Returns a local file for a path or a URL, downloading it the first time.

    Args:
        source: a path, which must exist, or an `http(s)://` URL.
        file_size: int, expected bytes; 2% more or less are accepted.
        sha256: str, expected hexadecimal checksum.
        most_bytes: int, limit of a download without `file_size`. A server that
            promises or sends more than it, or than 1.02 of `file_size`, is left at
            once, and nothing of the file is kept.

    Returns:
        A `pathlib.Path`: the path itself, or the file in the cache.

    Raises:
        StoreError: no such file; no network; the server refuses, or sends a web page,
            the wrong number of bytes, wrong bytes or other ones than the first time; a
            full disk or an unwritable cache; offline and not in the cache.

    Example:
        >>> zoo.fetch("tests/goldens/token.npz").name
        'token.npz'
    """
    path = expand_home(source, "source")
    source = os.fspath(source)
    if "://" not in source:
        if not os.path.isfile(path):
            raise StoreError(f"There is no file {path}: {missing_remedy(path)}")
        _check_content(path, source, file_size, sha256)
        return path
    if not source.startswith(("http://", "https://")):
        raise StoreError(
            f"Cannot fetch {source}: expected a local path or an http(s) URL "
            f"(gs://bucket/file is {_BUCKETS}/bucket/file)."
        )
    path = _cached_path(source)
    if os.path.exists(path):
        _check_cached(path, source, file_size, sha256)
        return path
    by_hand = f"Or else: Download {source} by hand and save it as {path}."
    if offline():
        raise StoreError(
            f"{source} is not in the cache and KERAS_VIT_OFFLINE is set: unset it. "
            f"{by_hand}"
        )
    with _cache_explained(source, path, file_size, by_hand):
        _download(source, path, file_size, sha256, most_bytes)
    return path


def latest(url: str, most_bytes: int) -> bytes:
    """Downloads a small file that may change, each time, and returns its bytes.

    The copy of the last download is returned with `KERAS_VIT_OFFLINE`, and, with a
    warning, where the network, the server or the cache fails.
    """
    from zoo.store import transport

    copy = latest_copy(url)
    if offline():
        if not copy.is_file():
            raise StoreError(
                f"{url} was never fetched and KERAS_VIT_OFFLINE is set: unset it."
            )
        return read_bytes(copy, most_bytes)
    try:
        with _cache_explained(url, copy):
            copy.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(
                dir=copy.parent, prefix=".latest-"
            ) as folder:
                part = Part(pathlib.Path(folder, "part"), url)
                transport.download(part, None, most_bytes)
                os.replace(part.path, copy)
    except StoreError as error:
        if not copy.is_file():
            raise
        warnings.warn(f"{error} The copy of the last download is used.", stacklevel=2)
    return read_bytes(copy, most_bytes)


def latest_copy(url: str) -> pathlib.Path:
    """Returns where `latest` keeps its last download of a URL."""
    path = _cached_path(url)
    return path.with_name(f"{path.name}.latest")


def verify(path: str | os.PathLike) -> str:
    """Checks every byte of a downloaded file, and returns its hexadecimal SHA-256.

    Args:
        path: a file that `fetch` returned for a URL.

    Raises:
        StoreError: no record of the download, or the file has changed since.

    Example:
        >>> path = zoo.fetch(zoo.get("vit-b16/sam").url)  # doctest: +SKIP
        >>> zoo.verify(path)  # doctest: +SKIP
    """
    path = expand_home(path)
    record = _record(path)
    if record is None or not path.is_file():
        raise StoreError(
            f"There is no record of a download of {path}: only files that zoo.fetch "
            "downloaded can be verified."
        )
    sha256 = digest(path, "sha256")
    _check_digest(path, "sha256", sha256, record.sha256)
    return sha256


def offline() -> bool:
    """Returns whether `KERAS_VIT_OFFLINE` forbids the network."""
    return os.environ.get("KERAS_VIT_OFFLINE", "0") not in ("", "0")


def _cached_path(url):
    """Returns where the file of a URL is kept."""
    try:
        # The digest is unique, the rest readable.
        digest = hashlib.sha256(url.encode()).hexdigest()[:32]
    except UnicodeEncodeError as error:
        raise StoreError(f"Cannot fetch {url!a}: it is not a URL.") from error
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", re.split(r"[?#]", url)[0].split("/")[-1])
    # Windows drops trailing dots.
    return cache_dir() / f"{digest}-{name[-160:].rstrip('.')}"


def _record_path(path):
    return path.with_name(f"{path.name}.json")


def _record(path):
    """Returns the `CachedFile` that was recorded at the download, or None."""
    note = _record_path(path)
    if not note.exists():
        return None
    try:
        record = json.loads(read_text(note, limits.NOTE_BYTES))
        values = record["url"], record["bytes"], record["sha256"]
        if [type(value) for value in values] != [str, int, str]:
            raise ValueError("its values have wrong types")
        return CachedFile(path, *values)
    except (NotRegularError, *MALFORMED) as error:
        raise StoreError(
            f"The record {note} is unreadable ({brief(error)}): delete it and {path}, "
            "and fetch again."
        ) from error


def _check_cached(path, url, file_size, sha256):
    """Checks the size of a cached file; one copied there by hand has no record."""
    if not path.is_file():
        raise StoreError(f"{path} is in the way of {url}: it is not a file, move it.")
    record = _record(path)
    size = path.stat().st_size
    if record is not None and size != record.size:
        raise StoreError(
            f"{path} has {size} bytes but {record.size} were downloaded from "
            f"{url}: delete it and fetch again."
        )
    _check_content(path, url, file_size, sha256, record and record.sha256)


def _download(url, path, file_size, sha256, most_bytes):
    """Downloads a URL beside its final name, checks it and moves it there."""
    from zoo.store import transport

    folder = path.parent / ".transfers"
    folder.mkdir(parents=True, exist_ok=True)
    mirror, server = os.environ.get("KERAS_VIT_MIRROR"), url
    if mirror and url.startswith(f"{_BUCKETS}/"):
        server = mirror.rstrip("/") + url.removeprefix(_BUCKETS)
    part = Part(folder / f"{path.name}.part", server)
    _sweep(folder)
    with _locked(url, part):
        if os.path.exists(path):  # by the process that held the lock
            _check_cached(path, url, file_size, sha256)
            return
        first = _record(path)
        try:
            if file_size is not None:
                most_bytes = int((1 + _SIZE_TOLERANCE) * file_size)
            transport.download(part, path.name.partition("-")[2][:32], most_bytes)
            for md5 in part.md5s:
                own_md5 = bytes.fromhex(digest(part.path, "md5"))
                _check_digest(url, "md5", base64.b64encode(own_md5).decode(), md5)
            content_hash = digest(part.path, "sha256")
            _check_content(part.path, url, file_size, sha256, content_hash)
            if first is not None and content_hash != first.sha256:
                raise StoreError(
                    f"{url} has sha256 {content_hash}, but {first.sha256} when it was "
                    f"first downloaded: someone replaced it. If that is right, delete "
                    f"{_record_path(path)} and fetch again."
                )
            record = {"url": url, "bytes": part.size, "sha256": content_hash}
            with open_regular(part.record, "wb") as stream:
                stream.write(json.dumps(record).encode())
            with open_regular(part.path, "rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(part.record, _record_path(path))
            os.replace(part.path, path)
            part.delete()
        except OSError as error:
            # Wrong bytes are of no use, and on a full disk nothing fits beside them.
            if isinstance(error, StoreError) or error.errno in FULL_DISK:
                part.delete()
            raise


@contextlib.contextmanager
def _locked(url, part):
    """Holds the lock of a download; the system releases that of a killed process."""
    import filelock

    lock, held, size = file_lock(part.path.with_suffix(".lock")), None, None
    while held is None:
        seconds = _NOTICE_SECONDS if size is None else _STALL_SECONDS
        try:
            held = lock.acquire(timeout=seconds)
        except filelock.Timeout as error:
            if size is None:
                waiting = f"Waiting for another process to download {url}"
                print(printable(waiting), file=sys.stderr)
            elif size == part.size:
                raise StoreError(
                    f"Another process holds {lock.lock_file} and has received nothing "
                    f"of {url} for {seconds} seconds: end that process and try again."
                ) from error
            size = part.size
    with held:
        yield


def _sweep(folder):
    """Deletes downloads that were begun long ago and never finished."""
    import filelock

    for note in folder.glob("*.part.json"):
        part = Part(note.with_suffix(""), "")
        with contextlib.suppress(FileNotFoundError, filelock.Timeout):
            if time.time() - note.stat().st_mtime > _KEEP_SECONDS:
                with file_lock(part.path.with_suffix(".lock")).acquire(timeout=0):
                    part.delete()


@contextlib.contextmanager
def _cache_explained(url, path, file_size=None, by_hand=""):
    """Turns errors of the network and the cache into `StoreError`."""
    try:
        yield
    except StoreError:
        raise
    except TransferError as error:
        raise StoreError(f"{error} {by_hand}".rstrip()) from error
    except OSError as error:
        text = (
            f"Cannot write to the cache {path.parent} ({error}): set KERAS_VIT_CACHE "
            "to a folder that can be written."
        )
        if error.errno in FULL_DISK:
            size = f" ({file_size / 2**20:.0f} MiB)" if file_size else ""
            text = (
                f"The disk is full: {url}{size} does not fit in {path.parent}. Free "
                "some space, or set KERAS_VIT_CACHE to a folder on another disk."
            )
        raise StoreError(text) from error


def _check_content(path, name, file_size, sha256, own=None):
    """Checks a file's size and, if it is expected, its SHA-256, which may be known."""
    size = path.stat().st_size
    if file_size is not None and abs(size - file_size) > _SIZE_TOLERANCE * file_size:
        raise StoreError(
            f"{name} has {size} bytes, expected about {file_size}: it is cut short or "
            f"another file. If {path} exists, delete it and fetch again."
        )
    if sha256 is not None:
        _check_digest(name, "sha256", own or digest(path, "sha256"), sha256.lower())


def digest(path: str | os.PathLike, algorithm: str) -> str:
    """Returns the hexadecimal checksum of a file; `algorithm` as in `hashlib.new`."""
    hasher = hashlib.new(algorithm, usedforsecurity=False)
    with open_regular(path) as file:
        while block := file.read(2**20):
            hasher.update(block)
    return hasher.hexdigest()


def _check_digest(name, algorithm, own, expected):
    if own != expected:
        raise StoreError(
            f"{name} has {algorithm} {own}, expected {expected}: it was damaged or "
            "replaced on the way. Delete it if it is a local file, and fetch again."
        )

"""Local files from URLs: downloaded once, checked, never half there.

Environment:
    KERAS_VIT_CACHE: folder of the downloads, else `$XDG_CACHE_HOME/keras_vit`, else
        `~/.cache/keras_vit`.
    KERAS_VIT_OFFLINE: `1` never touches the network.
    KERAS_VIT_MIRROR: a base URL used in place of `https://storage.googleapis.com`.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import pathlib
import re
import tempfile
import urllib.parse

_BUCKETS = "https://storage.googleapis.com"
# Published sizes are rounded to as little as two digits.
_SIZE_TOLERANCE = 0.02


class StoreError(OSError):
    """A file that could not be had, or is not what it should be."""


def fetch(
    source: str | os.PathLike,
    *,
    file_size: int | None = None,
    sha256: str | None = None,
) -> pathlib.Path:
    """Returns a local file for a path or a URL, downloading it the first time.

    Args:
        source: a path, which must exist, or an `http(s)://` URL.
        file_size: int, bytes the file should have within 2%.
        sha256: str, hexadecimal checksum the file should have.

    Returns:
        A `pathlib.Path`: the path itself, or the file in the cache.

    Raises:
        StoreError: no such file; no network; the server refuses, or sends a web page,
            the wrong number of bytes or the wrong bytes; a full disk or an unwritable
            cache; offline and not in the cache.

    Example:
        >>> import zoo
        >>> zoo.fetch("tests/goldens/token.npz").name
        'token.npz'
    """
    source = os.fspath(source)
    if "://" not in source:
        path = pathlib.Path(source).expanduser()
        if not os.path.isfile(path):
            raise StoreError(f"There is no file {path}: check the path.")
        _check_size(path, source, file_size)
        if sha256 is not None:
            _check_digest(source, "sha256", _digest(path, "sha256"), sha256.lower())
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
    by_hand = f"Download {source} by hand and save it as {path}."
    if os.environ.get("KERAS_VIT_OFFLINE", "0") not in ("", "0"):
        raise StoreError(
            f"{source} is not in the cache and KERAS_VIT_OFFLINE is set: unset it, "
            f"or else: {by_hand}"
        )
    _download(source, path, file_size, sha256, by_hand)
    return path


def verify(path: str | os.PathLike) -> str:
    """Checks every byte of a cached file against what was downloaded.

    Args:
        path: a file that `fetch` returned for a URL.

    Returns:
        str, its hexadecimal sha256.

    Raises:
        StoreError: no record of the download, or the file has changed since.

    Example:
        >>> import zoo
        >>> path = zoo.fetch(zoo.get("vit-b16/sam").url)  # doctest: +SKIP
        >>> zoo.verify(path)  # doctest: +SKIP
    """
    path = pathlib.Path(path)
    record = _record(path)
    if record is None or not path.is_file():
        raise StoreError(
            f"There is no record of a download of {path}: only files that zoo.fetch "
            "downloaded can be verified."
        )
    found = _digest(path, "sha256")
    _check_digest(path, "sha256", found, record["sha256"])
    return found


def _cached_path(url):
    """Returns where a URL's file is kept: one flat name per URL."""
    cache = os.environ.get("KERAS_VIT_CACHE")
    if not cache:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        cache = os.path.join(base, "keras_vit")
    # The digest tells URLs apart; the rest is for people to read.
    digest = hashlib.sha256(url.encode()).hexdigest()[:32]
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", re.split(r"[?#]", url)[0].split("/")[-1])
    return pathlib.Path(cache).expanduser() / f"{digest}-{name[-160:]}"


def _record_path(path):
    return path.with_name(path.name + ".json")


def _record(path):
    """Returns what was noted when a file was downloaded, or None."""
    note = _record_path(path)
    if not note.exists():
        return None
    try:
        record = json.loads(note.read_text())
        return {"bytes": int(record["bytes"]), "sha256": str(record["sha256"])}
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"The record {note} is unreadable ({error!r}): delete it and {path}, and "
            "fetch again."
        ) from error


def _check_cached(path, url, file_size, sha256):
    """Checks a cached file cheaply; a file put there by hand has no record."""
    if not path.is_file():
        raise StoreError(f"{path} is in the way of {url}: it is not a file, move it.")
    record = _record(path)
    size = path.stat().st_size
    if record is not None and size != record["bytes"]:
        raise StoreError(
            f"{path} has {size} bytes but {record['bytes']} were downloaded from "
            f"{url}: delete it and fetch again."
        )
    _check_size(path, url, file_size)
    if sha256 is not None:
        found = record["sha256"] if record else _digest(path, "sha256")
        _check_digest(path, "sha256", found, sha256.lower())


def _download(url, path, file_size, sha256, by_hand):
    """Downloads a URL beside its final name, checks it and moves it there."""
    import requests

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, so that the last step is one atomic rename.
        with tempfile.TemporaryDirectory(
            dir=path.parent, prefix=".download-"
        ) as folder:
            part = pathlib.Path(folder) / "part"
            headers = _transfer(url, part, path.name)
            _check_download(part, url, headers, file_size)
            found = _digest(part, "sha256")
            if sha256 is not None:
                _check_digest(url, "sha256", found, sha256.lower())
            note = pathlib.Path(folder) / "record"
            size = part.stat().st_size
            note.write_text(json.dumps({"url": url, "bytes": size, "sha256": found}))
            os.replace(note, _record_path(path))
            os.replace(part, path)
    except requests.HTTPError as error:
        status = error.response.status_code
        why = "there is no such file" if status == 404 else error.response.reason
        raise StoreError(
            f"The server refused {error.response.url} with status {status} ({why}): "
            "check the URL, and KERAS_VIT_MIRROR if it is set."
        ) from error
    except requests.ConnectionError as error:
        host = urllib.parse.urlsplit(url).netloc
        raise StoreError(
            f"The connection to {host} failed or broke off: check the network and try "
            f"again. Or else: {by_hand}"
        ) from error
    except requests.RequestException as error:
        raise StoreError(
            f"Could not download {url} ({error}). Check the network and try again. "
            f"Or else: {by_hand}"
        ) from error
    except StoreError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            size = f" ({file_size / 2**20:.0f} MiB)" if file_size else ""
            raise StoreError(
                f"The disk is full: {url}{size} does not fit in {path.parent}. Free "
                "some space, or set KERAS_VIT_CACHE to a folder on another disk."
            ) from error
        raise StoreError(
            f"Cannot write to the cache {path.parent} ({error}): set KERAS_VIT_CACHE "
            "to a folder that can be written."
        ) from error


def _transfer(url, part, label):
    """Downloads a URL to a file and returns the server's headers."""
    import pooch
    import tqdm

    mirror = os.environ.get("KERAS_VIT_MIRROR")
    if mirror and url.startswith(_BUCKETS + "/"):
        url = mirror.rstrip("/") + url[len(_BUCKETS) :]
    headers = {}

    def keep_headers(response, **_):
        headers.clear()
        headers.update({k.lower(): v for k, v in response.headers.items()})

    # pooch sets the total to the server's, but first asks bool(bar), which is
    # whether the total is positive.
    name = label.partition("-")[2][:32]
    with tqdm.tqdm(total=1, unit="B", unit_scale=True, desc=name) as bar:
        download = pooch.HTTPDownloader(
            progressbar=bar,
            chunk_size=2**20,
            # Compressed on the way, its length and checksum would not be the file's.
            headers={"Accept-Encoding": "identity"},
            hooks={"response": keep_headers},
        )
        download(url, str(part), None)
    return headers


def _check_download(part, url, headers, file_size):
    """Checks a fresh download against what the server and the catalogue say."""
    with open(part, "rb") as file:
        start = file.read(512).lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        raise StoreError(
            f"The server sent a web page instead of {url}: log in if the network asks "
            "for it, or check the URL."
        )
    # A server that unpacks the stored file describes the packed one.
    packings = ("content-encoding", "x-goog-stored-content-encoding")
    if all(headers.get(name, "identity") == "identity" for name in packings):
        size, length = part.stat().st_size, headers.get("content-length")
        if length is not None and size != int(length):
            raise StoreError(
                f"{url} came with {size} of {length} bytes: the transfer broke off, "
                "try again."
            )
        for md5 in re.findall(r"md5=([\w+/=]+)", headers.get("x-goog-hash", "")):
            found = base64.b64encode(bytes.fromhex(_digest(part, "md5"))).decode()
            _check_digest(url, "md5", found, md5)
    _check_size(part, url, file_size)


def _check_size(path, name, file_size):
    size = path.stat().st_size
    if file_size is not None and abs(size - file_size) > _SIZE_TOLERANCE * file_size:
        raise StoreError(
            f"{name} has {size} bytes, expected about {file_size}: it is cut short or "
            f"another file. If {path} exists, delete it and fetch again."
        )


def _digest(path, algorithm):
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _check_digest(name, algorithm, found, expected):
    if found != expected:
        raise StoreError(
            f"{name} has {algorithm} {found}, expected {expected}: it was damaged or "
            "replaced on the way. Delete it if it is a local file, and fetch again."
        )

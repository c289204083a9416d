"""Fingerprints of photos that were read before, in the cache folder.

A cache that cannot be read or written costs time alone.
"""

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np

from train.data.fingerprints import SIDE, Fingerprint, fingerprints
from train.data.sources.splits import Split, is_of_files, pick
from zoo.photos.headers import Header
from zoo.store import cache_dir

_NAME = "fingerprints.sqlite"
# Another number where a fingerprint of the same photo becomes another one.
_TABLE = "photos_1"
# Photos that are kept, the last ones: each takes about 1 KB.
_MOST = 200_000
_ERRORS = (sqlite3.Error, OSError, ValueError, TypeError)
# Values that a statement of SQLite takes.
_AT_ONCE = 500


def known(split: Split) -> list[Fingerprint]:
    """Returns the fingerprints of a split, those of its own files from the cache.

    A file is known by its path, size and time of change, a record by its hash. Those
    that are missing are computed, with a progress bar, and kept.
    """
    if not has_keys(split):
        return fingerprints(split)
    keys = _keys(split)
    by_key = _read(keys)
    missing = [place for place, key in enumerate(keys) if key not in by_key]
    if missing:
        read = fingerprints(pick(split, missing))
        new = {keys[place]: one for place, one in zip(missing, read, strict=True)}
        _write({key: one for key, one in new.items() if not one.unread})
        by_key |= new
    return [by_key[key] for key in keys]


def has_keys(split: Split) -> bool:
    """Returns whether examples are known without reading all of them."""
    return is_of_files(split) or split.hashes is not None


def _keys(split):
    """Returns what the cache knows each example by; nothing is decoded.

    With other --bits a photo looks otherwise.
    """
    bits = b"" if split.bits is None else f" {split.bits} bits".encode()
    if is_of_files(split):
        return [_key_of_file(path) + bits for path in split.arrays[0]]
    return [b"record" + hash.tobytes() + bits for hash in split.hashes]


def _key_of_file(path):
    path = os.path.abspath(path)
    try:
        status = os.stat(path)
        change = f"{status.st_size} {status.st_mtime_ns}"
    except OSError:
        change = "missing"
    text = f"{change} {path}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).digest()


@contextlib.contextmanager
def _opened() -> Iterator[sqlite3.Connection]:
    """Yields the database, which is made."""
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(folder / _NAME)) as database, database:
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {_TABLE} (key BLOB UNIQUE, digest BLOB, "
            "small BLOB, has_details INTEGER, header TEXT)"
        )
        yield database


def _read(keys: Sequence[bytes]) -> dict[bytes, Fingerprint]:
    by_key = {}
    with contextlib.suppress(*_ERRORS), _opened() as database:
        for start in range(0, len(keys), _AT_ONCE):
            part = keys[start : start + _AT_ONCE]
            places = ",".join("?" * len(part))
            rows = database.execute(
                f"SELECT * FROM {_TABLE} WHERE key IN ({places})", part
            )
            by_key |= {row[0]: _fingerprint(*row[1:]) for row in rows}
    return by_key


def _fingerprint(digest, small, has_details, head):
    picture = np.frombuffer(small, np.uint8).reshape(SIDE, SIDE)
    return Fingerprint(digest, picture, bool(has_details), Header(*json.loads(head)))


def _write(new: dict[bytes, Fingerprint]) -> None:
    rows = [
        (key, one.digest, one.small.tobytes(), one.has_details, json.dumps(one.header))
        for key, one in new.items()
    ]
    with contextlib.suppress(*_ERRORS), _opened() as database:
        statement = f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?, ?, ?)"
        database.executemany(statement, rows)
        database.execute(
            f"DELETE FROM {_TABLE} WHERE rowid <= "
            f"(SELECT MAX(rowid) FROM {_TABLE}) - {_MOST}"
        )

"""A file of features, which knows each photo by a digest of its content."""

import contextlib
import hashlib
import os
import pathlib
import time
import zipfile
from collections.abc import Callable, Generator, Iterator

import keras
import numpy as np

from train.common.errors import RunError, first_line
from train.common.files import make_folder, whole_file
from train.data.contents import DIGEST_BYTES, digests
from train.data.sources.splits import Split, pick

# A killed process loses no more than this.
_SECONDS_BETWEEN_WRITES = 60.0
_FLAG = "folder of features"

# Yields the features of a split, batch by batch.
Compute = Callable[[Split], Generator[np.ndarray]]


def cached(
    folder: str | os.PathLike,
    model: keras.Model,
    view: str,
    split: Split,
    compute: Compute,
) -> np.ndarray:
    """Returns features, float32 (photos, size); those of known photos are read.

    The file's name in the folder is a digest of the weights, of what the model
    computes and of the `view`, how photos come to it; a row is found by the content of
    its photo. Neither can be out of date. New rows are written about every minute, so
    that a run that is killed goes on from there.
    """
    digest = _digest(model, view)
    path = make_folder(folder, _FLAG) / f"features-{digest}.npz"
    keys = [row.tobytes() for row in digests(split)]
    known = _File(path, model.output_shape[-1])
    first = {key: place for place, key in reversed([*enumerate(keys)])}
    missing = sorted(place for key, place in first.items() if key not in known.rows)
    if missing:
        with contextlib.closing(compute(pick(split, missing))) as parts:
            known.add(parts, [keys[place] for place in missing])
    return known.features()[[known.rows[key] for key in keys]]


class _File:
    """The rows of a file, and those that are added until it is written again."""

    def __init__(self, path: pathlib.Path, size: int):
        self.path = path
        self.parts = [np.zeros((0, size), np.float32)]
        # A photo's digest -> the number of its row.
        self.rows: dict[bytes, int] = {}
        if path.exists():
            self._read(size)

    def features(self) -> np.ndarray:
        self.parts = [np.concatenate(self.parts)]
        return self.parts[0]

    def add(self, parts: Iterator[np.ndarray], keys: list[bytes]) -> None:
        """Adds rows as they come, and writes them, also when something fails."""
        done, written = 0, time.monotonic()
        try:
            for part in parts:
                self.parts.append(part)
                for key in keys[done : done + len(part)]:
                    self.rows[key] = len(self.rows)
                done += len(part)
                if time.monotonic() - written > _SECONDS_BETWEEN_WRITES:
                    self._write()
                    written = time.monotonic()
        finally:
            if done:
                self._write()

    def _write(self):
        keys = np.frombuffer(b"".join(self.rows), np.uint8).reshape(-1, DIGEST_BYTES)
        with whole_file(self.path, _FLAG) as temporary:
            np.savez(temporary, digests=keys, features=self.features())

    def _read(self, size):
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                features, keys = arrays["features"], arrays["digests"]
            if (features.shape, keys.shape) != (
                (len(keys), size),
                (len(features), DIGEST_BYTES),
            ):
                raise ValueError("its arrays do not belong together")
        except (ValueError, LookupError, OSError, zipfile.BadZipFile) as error:
            raise RunError(
                f"{self.path} is damaged ({first_line(error)}): remove it, and its "
                "features are computed again."
            ) from error
        self.parts = [features]
        self.rows = {row.tobytes(): place for place, row in enumerate(keys)}


def _digest(model, view):
    digest = hashlib.sha256(f"{model.to_json()}\n{view}\n".encode())
    for weight in model.get_weights():
        digest.update(f"{weight.dtype} {weight.shape}\n".encode())
        digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()[:32]

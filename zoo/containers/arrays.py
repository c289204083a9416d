"""Arrays in open files: read when they are used, and checked before.

`OpenFile` is the base class of the readers of all formats. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import threading
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from zoo.common.limits import NAME_LENGTH
from zoo.common.regular_files import NotRegularError, missing_remedy, open_regular
from zoo.common.safe_text import PrintableError

_WEIGHTS = ("<f4", ">f4", "<f2", ">f2", "|V2")
_BLOCK_BYTES = 2**19
# Names and problems in a message.
MOST_LISTED = 20
# Errors of wrong code, which are never called damage of a file.
BUGS = (AssertionError, AttributeError, NameError)


class CheckpointError(PrintableError, ValueError):
    """A file that is not a checkpoint, is damaged, or has unexpected arrays."""


def refuse(path: str | os.PathLike, what: str, problems: list[str]) -> None:
    """Raises a `CheckpointError` that lists the problems, if there are any."""
    if problems:
        listed = problems[:MOST_LISTED]
        if more := problems[MOST_LISTED:]:
            listed.append(f"and {len(more)} more")
        raise CheckpointError("\n  ".join([f"{path} is not {what}:", *listed]))


@dataclasses.dataclass(frozen=True, eq=False)
class StoredArray:
    """An array in a file, which `numpy.asarray` reads; `offset` is its first byte."""

    archive: OpenFile
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __array__(self, dtype=None, copy=None):
        array = np.empty(self.shape, self.dtype)
        self.archive.read_into(array.reshape(-1).view(np.uint8), self.offset)
        return array if dtype is None else array.astype(dtype)

    def __iter__(self) -> Iterator[StoredArray]:
        shape = self.shape[1:]
        size = math.prod(shape) * self.dtype.itemsize
        for index in range(self.shape[0]):
            offset = self.offset + index * size
            yield dataclasses.replace(self, offset=offset, shape=shape)

    def reshape(self, shape: Iterable[int]) -> StoredArray:
        return dataclasses.replace(self, shape=tuple(shape))


class StoredArrays(Mapping):
    """Float32 arrays by name, each read from its file every time it is accessed."""

    def __init__(self, parts):
        self._parts = parts

    def __getitem__(self, name: str) -> np.ndarray:
        return to_float32(np.asarray(self._parts[name]))

    def __contains__(self, name):
        return name in self._parts

    def __iter__(self):
        return iter(self._parts)

    def __len__(self):
        return len(self._parts)

    def only(self, names: Iterable[str]) -> StoredArrays:
        """Returns the arrays of some names, without reading any."""
        return StoredArrays({name: self._parts[name] for name in names})

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by name, without reading any."""
        return {name: tuple(part.shape) for name, part in self._parts.items()}


class OpenFile:
    """An open file of arrays; it is closed together with the last of its arrays."""

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self.metadata: dict[str, str] = {}
        # The arrays that a reader found, and their CRC-32 where the file has one.
        self._arrays: dict[str, StoredArray | np.ndarray] = {}
        self._checksums: dict[str, int] = {}
        try:
            self._file: Any = open_regular(path)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"There is no checkpoint file {path}: {missing_remedy(path)}"
            ) from error
        except NotRegularError as error:
            raise CheckpointError(str(error)) from error
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        self._written = self._time_of_writing()

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self._arrays)

    def check(self, key: str) -> StoredArray | np.ndarray:
        """Returns an array after reading all of it and comparing its CRC-32, if any."""
        array, expected = self._arrays[key], self._checksums.get(key)
        checksum, finite = self._scan(array, None if expected is None else 0)
        if checksum != expected:
            self._refuse_checksum(f"{key!r}")
        if not finite:
            self._refuse_infinite(key)
        return array

    def read_into(self, data: np.ndarray, offset: int) -> None:
        """Fills a uint8 array with the bytes from an offset on."""
        with self._lock:
            self._file.seek(offset)
            whole = self._file.readinto(data) == data.size
            if not whole or self._time_of_writing() != self._written:
                raise CheckpointError(
                    f"{self.path} was changed while it was being read: read it again."
                )

    def _check_name(self, name):
        """Refuses names that no error message could show."""
        if len(name) > NAME_LENGTH or not name.isprintable():
            raise ValueError(f"an array is called {name[:99]!a}")

    def _scan(self, array, checksum=None):
        """Returns the CRC-32 of a checksum and an array, and whether it is finite."""
        blocks = [array] if isinstance(array, np.ndarray) else self._blocks(array)
        finite = True
        for block in blocks:
            if checksum is not None:
                checksum = zlib.crc32(block, checksum)
            if array.dtype.str in _WEIGHTS:
                numbers = to_float32(block.view(array.dtype))
                finite = finite and bool(np.isfinite(numbers).all())
        return checksum, finite

    def _refuse_checksum(self, what):
        raise CheckpointError(
            f"{self.path} was changed by another program that kept its metadata, or is "
            f"damaged: {what} has another CRC-32 than when it was written. Have that "
            "program leave the metadata out, or delete the file and download or save "
            "it again."
        )

    def _blocks(self, array):
        """Yields the bytes of a `StoredArray`; each block reuses the memory."""
        size = math.prod(array.shape) * array.dtype.itemsize
        block = np.empty(min(size, _BLOCK_BYTES), np.uint8)
        for start in range(0, size, _BLOCK_BYTES):
            data = block[: size - start]
            self.read_into(data, array.offset + start)
            yield data

    def _refuse_infinite(self, key):
        raise CheckpointError(
            f"{self.path} holds NaN or infinity under {key!r}, so its training "
            "failed: take an earlier checkpoint."
        )

    def _time_of_writing(self):
        return os.fstat(self._file.fileno()).st_mtime_ns

    @contextlib.contextmanager
    def _damage_explained(self):
        try:
            yield
        except (CheckpointError, *BUGS):
            raise
        # On damaged bytes zipfile, HDF5 and NumPy's header parser raise most errors.
        except Exception as error:
            raise CheckpointError(
                f"{self.path} is damaged or cut short ({error}): delete it and "
                "download or save it again."
            ) from error


def to_float32(array: np.ndarray) -> np.ndarray:
    """Returns a float32, float16 or bfloat16 array as float32; others are a TypeError.

    NumPy reads bfloat16 as void of two bytes.
    """
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        # bfloat16 is the upper half of a float32.
        bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32)
        bits <<= 16  # in place, for less memory
        return bits.view(np.float32).reshape(array.shape)
    if array.dtype.kind == "f" and array.dtype.itemsize <= 4:
        return array.astype(np.float32, copy=False)
    raise TypeError(f"dtype {array.dtype}, not float32, float16 or bfloat16")


def wrong_dtypes(arrays: dict) -> list[str]:
    """Returns a problem for each array that `to_float32` refuses."""
    problems = []
    for name, array in arrays.items():
        try:
            to_float32(np.empty(0, array.dtype))
        except TypeError as error:
            problems.append(f"{name} has {error}")
    return problems

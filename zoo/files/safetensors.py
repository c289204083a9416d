"""The arrays of a `.safetensors` file, which stay in it until they are asked for.

The format is a JSON header that says where each array lies, and then their bytes. It
has no checksums: of any file, what can be checked is that the arrays fill it without a
gap. Files that are written here carry checksums in their metadata, where other readers
leave them alone:

- `keras_vit_crc32`: a JSON table, the CRC-32 of each array's bytes by its name;
- `keras_vit_header_crc32`: that of the places of all arrays and of our own metadata, as
  JSON with sorted keys. What other programs add to the metadata is their own.

A program that splits a file and copies its metadata makes files of fewer arrays, of
which those that are there are checked.
"""

from __future__ import annotations

import json
import math
import os
import re
import zlib

import numpy as np

from zoo.files.archive import CheckpointError, OpenFile, StoredArray
from zoo.files.description import METADATA_KEY

# bfloat16 is void of two bytes, as NumPy reads it from an .npz.
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "V2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
_LENGTH_BYTES = 8
# Many times that of the largest model, and in memory thirty times as much.
_MAX_HEADER_BYTES = 2**20
_MOST_AXES = 8
_METADATA = "__metadata__"
_CHECKSUMS = "keras_vit_crc32"
_HEADER_CHECKSUM = "keras_vit_header_crc32"
# Of the metadata, what the checksum of the header is computed of.
_OWN_METADATA = (METADATA_KEY, _CHECKSUMS)
_CHECKSUM = re.compile("[0-9a-f]{8}")


class Safetensors(OpenFile):
    """An open `.safetensors` file.

    Args:
        path: str or path.

    Raises:
        CheckpointError: there is no such file, it is of another kind or damaged.

    Source: https://github.com/huggingface/safetensors#format.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from zoo.files import safetensors
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/a.safetensors"
        ...     safetensors.write(path, {"cls": np.ones((1, 1, 8))})
        ...     safetensors.Safetensors(path).keys
        ['cls']
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(path)
        size = os.path.getsize(path)
        with self._damage_explained():
            length = int.from_bytes(self._file.read(_LENGTH_BYTES), "little")
            if not 2 <= length <= size - _LENGTH_BYTES:
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            if length > _MAX_HEADER_BYTES:
                raise CheckpointError(
                    f"{path} has a header of {length} bytes, which no Vision "
                    "Transformer needs: save its arrays alone."
                )
            header = json.loads(
                self._file.read(length).decode(), object_pairs_hook=_without_twins
            )
            if not isinstance(header, dict):
                raise ValueError("its header is no table")
            self._checksums = self._read_checksums(header)
            self.metadata = _metadata(header.pop(_METADATA, {}))
            start = _LENGTH_BYTES + length
            self._arrays = {
                name: self._stored(name, entry, start) for name, entry in header.items()
            }
            self._check_layout(start, size)

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self._arrays)

    def check(self, key: str) -> StoredArray:
        """Returns an array, whose place was checked with all others.

        Raises:
            CheckpointError: it holds NaN or infinity, or is not what its checksum was
                computed of.
        """
        return self._finite(key, self._arrays[key], self._checksums.get(key))

    def _read_checksums(self, header):
        """Takes the checksums out of a header, which must be what they are of."""
        metadata = header.get(_METADATA)
        if not isinstance(metadata, dict):
            return {}
        arrays = set(header) - {_METADATA}
        checksums = json.loads(metadata.get(_CHECKSUMS, "{}"))
        if _CHECKSUMS in metadata:
            if not isinstance(checksums, dict) or not arrays <= set(checksums):
                self._refuse_checksum("its list of checksums")
            for text in checksums.values():
                if not isinstance(text, str) or not _CHECKSUM.fullmatch(text):
                    self._refuse_checksum("its list of checksums")
        expected = metadata.get(_HEADER_CHECKSUM, _header_checksum(header))
        is_part = len(arrays) < len(checksums)
        if not is_part and expected != _header_checksum(header):
            self._refuse_checksum("its header")
        for name in (_CHECKSUMS, _HEADER_CHECKSUM):
            metadata.pop(name, None)
        return {name: int(text, 16) for name, text in checksums.items()}

    def _stored(self, name, entry, start):
        self._check_name(name)
        if not isinstance(entry, dict) or set(entry) != {
            "dtype",
            "shape",
            "data_offsets",
        }:
            raise ValueError(f"the header of {name} is no dtype, shape and place")
        if entry["dtype"] not in _DTYPES:
            raise CheckpointError(
                f"{self.path}: {name} has dtype {entry['dtype']}, not one of "
                f"{', '.join(_DTYPES)}: save it as float32."
            )
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
            raise ValueError(
                f"{name} has shape {shape!s:.99} and place {offsets!s:.99}"
            )
        if 0 in shape:
            raise ValueError(f"{name} is empty")
        if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name} does not fill its place {offsets}")
        return StoredArray(self, start + offsets[0], dtype, tuple(shape))

    def _check_layout(self, start, size):
        end = start
        for array in sorted(self._arrays.values(), key=lambda array: array.offset):
            if array.offset != end:
                raise ValueError("its arrays overlap or leave gaps")
            end += math.prod(array.shape) * array.dtype.itemsize
        if end != size:
            raise ValueError(f"{size} bytes, not {end}")


def is_safetensors(path: str | os.PathLike) -> bool:
    """Says whether a file begins as a `.safetensors` does, whatever its name."""
    with open(path, "rb") as file:
        start = file.read(_LENGTH_BYTES + 1)
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    return start[_LENGTH_BYTES:] == b"{" and length <= os.path.getsize(path)


def write(
    path: str | os.PathLike,
    arrays: dict[str, np.ndarray],
    metadata: dict[str, str] | None = None,
) -> None:
    """Writes a `.safetensors` file, with a checksum of each array and of the header.

    Args:
        path: the file; whoever needs it whole or not at all writes it elsewhere first.
        arrays: dict of name to float array, stored as float32.
        metadata: dict of str to str.

    Example:
        See `Safetensors`.
    """
    metadata = dict(metadata or {})
    header: dict[str, object] = {_METADATA: metadata}
    arrays = {
        name: np.ascontiguousarray(arrays[name], "<f4") for name in sorted(arrays)
    }
    end = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    checksums = {name: f"{zlib.crc32(array):08x}" for name, array in arrays.items()}
    metadata[_CHECKSUMS] = json.dumps(checksums, separators=(",", ":"))
    metadata[_HEADER_CHECKSUM] = _header_checksum(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    # Readers that map the file want the arrays at multiples of their size.
    text += b" " * (-len(text) % _LENGTH_BYTES)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little"))
        file.write(text)
        for array in arrays.values():
            file.write(array.data)


def _header_checksum(header):
    """The checksum of what is ours in a header, however it is spelled."""
    metadata = {
        name: text for name, text in header[_METADATA].items() if name in _OWN_METADATA
    }
    text = json.dumps(
        {**header, _METADATA: metadata}, sort_keys=True, separators=(",", ":")
    )
    return f"{zlib.crc32(text.encode()):08x}"


def _without_twins(pairs):
    table: dict[str, object] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"two arrays are called {name}")
        table[name] = value
    return table


def _metadata(table):
    values = table.values() if isinstance(table, dict) else [None]
    if not all(isinstance(value, str) for value in values):
        raise ValueError("its metadata are not all text")
    return table


def _counts(numbers):
    """Says whether these are numbers whose product is soon computed."""
    return (
        isinstance(numbers, list)
        and len(numbers) <= _MOST_AXES
        and all(type(number) is int and 0 <= number < 2**63 for number in numbers)
    )

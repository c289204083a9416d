"""Reader and writer of `.safetensors` files that bounds headers and adds checksums.

Why not the library of that name: decisions in docs/design.md. The format is a JSON
header with the place of each array, followed by their bytes. It has no checksums.
`write` adds them to the metadata, which other readers ignore:

- `keras_vit_crc32`: a JSON table of each array's name to the CRC-32 of its bytes;
- `keras_vit_header_crc32`: the CRC-32 of the places of all arrays and of our metadata,
  as JSON with sorted keys. Metadata that other programs add are not included.

Programs that split a file and copy its metadata make files of fewer arrays; in these
the remaining arrays are checked.
"""

import json
import math
import os
import re
import zlib
from typing import Any

import numpy as np

from zoo.common.limits import AXES, SAFETENSORS_HEADER_BYTES
from zoo.common.safe_text import brief
from zoo.containers.arrays import CheckpointError, OpenFile, StoredArray

# bfloat16 is void of two bytes, as NumPy reads it from an .npz file.
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
_METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}
# The entry of ours in the header.
METADATA_KEY = "keras_vit"
_CHECKSUMS = "keras_vit_crc32"
_HEADER_CHECKSUM = "keras_vit_header_crc32"
# The metadata that are included in the checksum of the header.
_OWN_METADATA = {METADATA_KEY, _CHECKSUMS}
_CHECKSUM = re.compile("[0-9a-f]{8}")


class Safetensors(OpenFile):
    """An open `.safetensors` file.

    Source: https://github.com/huggingface/safetensors#format.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(path)
        size = os.path.getsize(path)
        with self._damage_explained():
            length = int.from_bytes(self._file.read(_LENGTH_BYTES), "little")
            if not 2 <= length <= size - _LENGTH_BYTES:
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            if length > SAFETENSORS_HEADER_BYTES:
                raise CheckpointError(
                    f"{path} has a header of {length} bytes, more than any Vision "
                    "Transformer needs: save its arrays alone."
                )
            text = self._file.read(length).decode()
            header = json.loads(text, object_pairs_hook=_without_twins)
            if not isinstance(header, dict):
                raise ValueError("its header is not a table")
            metadata = header.setdefault(_METADATA, {})
            if not _is_table_of_text(metadata):
                raise ValueError("its metadata are not all text")
            self._checksums = self._read_checksums(header)
            self.metadata = header.pop(_METADATA)
            start = _LENGTH_BYTES + length
            self._arrays = {
                name: self._stored(name, entry, start) for name, entry in header.items()
            }
            self._check_layout(start, size)

    def _read_checksums(self, header):
        """Removes the checksums from a header, after comparing its own."""
        metadata, arrays = header[_METADATA], header.keys() - {_METADATA}
        checksums = json.loads(metadata.get(_CHECKSUMS, "{}"))
        if _CHECKSUMS in metadata and not (
            _is_table_of_text(checksums)
            and arrays <= checksums.keys()
            and all(map(_CHECKSUM.fullmatch, checksums.values()))
        ):
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
        if not isinstance(entry, dict) or set(entry) != _FIELDS:
            raise ValueError(f"the entry of {name} is not dtype, shape and place")
        if entry["dtype"] not in _DTYPES:
            raise CheckpointError(
                f"{self.path}: {name} has dtype {entry['dtype']}, not one of "
                f"{', '.join(_DTYPES)}: save it as float32."
            )
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not (_are_counts(shape) and _are_counts(offsets)) or len(offsets) != 2:
            raise ValueError(
                f"{name} has shape {brief(shape)} and place {brief(offsets)}"
            )
        if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name} does not fill its place {offsets}")
        return StoredArray(self, start + offsets[0], dtype, tuple(shape))

    def _check_layout(self, start, size):
        end = start
        places = [
            (array.offset, math.prod(array.shape) * array.dtype.itemsize)
            for array in self._arrays.values()
        ]
        # An empty array has the place of the one behind it.
        for offset, length in sorted(places):
            if offset != end:
                raise ValueError("its arrays overlap or leave gaps")
            end += length
        if end != size:
            raise ValueError(f"{size} bytes, not {end}")


def write(
    path: str | os.PathLike,
    arrays: dict[str, np.ndarray],
    metadata: dict[str, str] | None = None,
) -> None:
    """Writes arrays as float32, with a checksum of each and of the header.

    The file may be seen half-written: callers write it elsewhere and move it.
    """
    metadata = dict(metadata or {})
    header: dict[str, Any] = {_METADATA: metadata}
    arrays = {
        name: np.ascontiguousarray(arrays[name], "<f4") for name in sorted(arrays)
    }
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        shape, place = list(array.shape), [start, end]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": place}
    checksums = {
        name: f"{zlib.crc32(array.data):08x}" for name, array in arrays.items()
    }
    metadata[_CHECKSUMS] = json.dumps(checksums, separators=(",", ":"))
    metadata[_HEADER_CHECKSUM] = _header_checksum(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    # Readers that map the file need aligned arrays.
    text += b" " * (-len(text) % _LENGTH_BYTES)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little"))
        file.write(text)
        for array in arrays.values():
            file.write(array.data)


def _header_checksum(header):
    """Returns the CRC-32 of our part of a header, whatever the order of its keys."""
    own = {
        name: header[_METADATA][name]
        for name in _OWN_METADATA & header[_METADATA].keys()
    }
    table = {**header, _METADATA: own}
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def _without_twins(pairs):
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"two arrays are called {name}")
        table[name] = value
    return table


def _is_table_of_text(table):
    return isinstance(table, dict) and all(isinstance(v, str) for v in table.values())


def _are_counts(numbers):
    """Returns whether these are few integers, not negative and below 2^63."""
    return (
        isinstance(numbers, list)
        and len(numbers) <= AXES
        and all(type(number) is int and 0 <= number < 2**63 for number in numbers)
    )

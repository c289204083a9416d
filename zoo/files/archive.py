"""Safe reader of `.npz` files, and the base class of the readers of other formats.

Arrays stay in the file until they are used. Every byte is checked once before the first
array is used, and nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import struct
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from zoo.files import dialects
from zoo.limits import NAME_LENGTH, UNPACKED_RATIO, ZIP_DIRECTORY_BYTES, ZIP_MEMBERS
from zoo.regular_files import NotRegularError, missing_remedy, open_regular
from zoo.text import PrintableError

_WEIGHTS = ("<f4", ">f4", "<f2", ">f2", "|V2")
# NumPy parses headers as Python literals, which some releases of Python 3.11 cannot do
# in several threads at once (python/cpython#106905).
_parsing = threading.Lock()
_BLOCK_BYTES = 2**19
# Names and problems in a message.
MOST_LISTED = 20
# Errors of wrong code, which are never called damage of a file.
BUGS = (AssertionError, AttributeError, NameError)


class CheckpointError(PrintableError, ValueError):
    """A file that is not a checkpoint, is damaged, or has unexpected arrays."""


def refuse(path, what: str, problems: list[str]) -> None:
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

    def reshape(self, shape) -> StoredArray:
        return dataclasses.replace(self, shape=tuple(shape))


class StoredArrays(Mapping):
    """Float32 arrays by name, each read from its file every time it is accessed."""

    def __init__(self, parts):
        self._parts = parts

    def __getitem__(self, name) -> np.ndarray:
        return dialects.to_float32(np.asarray(self._parts[name]))

    def __contains__(self, name):
        return name in self._parts

    def __iter__(self):
        return iter(self._parts)

    def __len__(self):
        return len(self._parts)

    def only(self, names) -> StoredArrays:
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
            self._file = open_regular(path)
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
                numbers = dialects.to_float32(block.view(array.dtype))
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


class _Directory(io.FileIO):
    """A file for `zipfile` that bounds the directory before it is parsed."""

    is_read = False

    def read(self, size=-1):
        if self.is_read:
            return super().read(size)
        if size > ZIP_DIRECTORY_BYTES:
            raise ValueError(f"its directory has {size} bytes")
        # Without a size, zipfile reads the end, which has 64 KB at most.
        data = super().read(size if size >= 0 else ZIP_DIRECTORY_BYTES)
        members = data.count(b"PK\x01\x02")
        if members > ZIP_MEMBERS:
            raise ValueError(f"it has {members} members")
        return data


class Archive(OpenFile):
    """An open `.npz` file."""

    def __init__(self, path: str | os.PathLike):
        super().__init__(path)
        self._members: dict[str, tuple[zipfile.ZipInfo, int]] = {}
        start = self._file.read(4)
        if not start:
            raise CheckpointError(f"{path} is empty: download or save it again.")
        if start.startswith(b"\x80"):
            raise CheckpointError(
                f"{path} is a pickle, which can run code when read and is never "
                "loaded: save its arrays as .safetensors or .npz."
            )
        if not start.startswith(b"PK"):
            raise CheckpointError(
                f"{path} is neither an .npz file nor .safetensors or .h5 (it starts "
                f"with {start!r}): check the path, and if it was downloaded, delete it "
                "and download it again."
            )
        with self._damage_explained():
            # A handle of its own: threads move the position of both.
            directory = _Directory(path)
            weakref.finalize(self, directory.close)
            self._zip = zipfile.ZipFile(directory)
            self._zip_lock = threading.Lock()
            directory.is_read = True
            size = os.fstat(self._file.fileno()).st_size
            members = sorted(self._zip.infolist(), key=lambda m: m.header_offset)
            unpacked = sum(member.file_size for member in members)
            if unpacked > UNPACKED_RATIO * size:
                raise ValueError(f"{size} bytes hold {unpacked}")
            end = 0
            for member in members:
                self._check_name(member.filename)
                # Else the same bytes could be unpacked again and again.
                if member.header_offset < end:
                    raise ValueError(f"{member.filename} overlaps another array")
                # The header before its bytes repeats the name, at a length of its own.
                self._file.seek(member.header_offset + 26)
                sizes = struct.unpack("<HH", self._file.read(4))
                start = member.header_offset + 30 + sum(sizes)
                end = start + member.compress_size
                key = member.filename.removesuffix(".npy")
                if key in self._members:
                    raise ValueError(f"two arrays are called {key}")
                self._members[key] = member, start

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self._members)

    def check(self, key: str, *, finite: bool = True) -> StoredArray | np.ndarray:
        """Returns an array after reading all of it, as an array if it is compressed.

        NaN and infinity are refused where `finite` is true.
        """
        member, start = self._members[key]
        with self._damage_explained():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{key} has compression {member.compress_type}")
            plain = member.compress_type == zipfile.ZIP_STORED
            if plain and member.compress_size != member.file_size:
                raise ValueError(f"{key} has two sizes")
            with self._opened(member) as stream:
                shape, fortran_order, dtype = self._header(key, stream)
                header_size = stream.tell()
                size = header_size + math.prod(shape) * dtype.itemsize
                if min(shape, default=0) < 0 or member.file_size != size:
                    raise ValueError(f"{key} has {member.file_size} bytes, not {size}")
                if size == header_size:
                    raise ValueError(f"{key} is empty")
            if plain and not fortran_order:
                header = StoredArray(self, start, np.dtype("u1"), (header_size,))
                array = StoredArray(self, start + header_size, dtype, shape)
                checksum = zlib.crc32(np.asarray(header))
                checksum, is_finite = self._scan(array, checksum)
                if checksum != member.CRC:
                    raise ValueError(f"{key} has another CRC-32")
            else:
                with self._opened(member) as stream:
                    array = np.lib.format.read_array(stream, allow_pickle=False)
                is_finite = self._scan(array)[1]
            if finite and not is_finite:
                self._refuse_infinite(key)
            return array

    @contextlib.contextmanager
    def _opened(self, member):
        # Python 3.13.0 skips part of a header from where another thread is reading.
        with self._zip_lock, self._zip.open(member) as stream:
            yield stream

    def _header(self, key, stream):
        if key in ("metadata.json", "config.json", "model.weights.h5"):
            raise CheckpointError(
                f"{self.path} is a model saved by Keras: keras.saving.load_model reads "
                "it once keras_vit is imported."
            )
        if key.endswith("data.pkl"):
            raise CheckpointError(
                f"{self.path} is a pickle of PyTorch, which can run code when read and "
                "is never loaded: save its state dict as .safetensors."
            )
        if not stream.peek().startswith(np.lib.format.MAGIC_PREFIX):
            raise CheckpointError(f"{self.path} holds {key!r}, which is not an array.")
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):  # headers of later ones may have four gigabytes
            raise ValueError(f"{key} has array format {version}")
        with _parsing:
            header = np.lib.format.read_array_header_1_0(stream)
        if header[2].hasobject:
            raise CheckpointError(
                f"{self.path} holds pickled Python objects under {key!r}, which can "
                "run code when read and are never loaded: save plain arrays instead."
            )
        if header[2].subdtype or header[2].names:
            raise ValueError(f"{key} holds {header[2]}")
        return header

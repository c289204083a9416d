"""Safe reader of `.npz` files.

Every byte is checked once before the first array is used.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import struct
import threading
import weakref
import zipfile
import zlib

import numpy as np

from zoo.common.limits import UNPACKED_RATIO, ZIP_DIRECTORY_BYTES, ZIP_MEMBERS
from zoo.containers.arrays import CheckpointError, OpenFile, StoredArray

# NumPy parses headers as Python literals, which some releases of Python 3.11 cannot do
# in several threads at once (python/cpython#106905).
_parsing = threading.Lock()


class _Directory(io.FileIO):
    """A file for `zipfile` that bounds the directory before it is parsed."""

    is_read = False

    def read(self, size: int | None = -1) -> bytes:
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


class Npz(OpenFile):
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
                checksum = zlib.crc32(np.asarray(header).data)
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
                "it once keras_vit is imported; keras-vit publish makes weights of the "
                "run that saved it."
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

"""Features of photos, collected row by row into an `.npz` file."""

import itertools
import json
import shutil
import zipfile
from collections.abc import Sequence

import numpy as np

from train.common.errors import RunError
from train.common.files import explained, make_folder, whole_file
from zoo.common.regular_files import expand_home, open_regular

_BLOCK = 4096


class FeatureFile:
    """An `.npz` file of features, whose rows are kept on disk until it is written.

    The file has `features`, float32 (photos, size), and `files`, the paths of the
    photos, a str each. Until then hidden files beside it have both. It goes on with
    `count` photos of an earlier start; a `RunError` says that these are not there.
    """

    def __init__(self, path, size, count=0):
        self.path = expand_home(path)
        self.size, self.count, self._longest = size, count, 1
        self._is_finished = False
        make_folder(self.path.parent, "--features")
        self._hidden = [
            self.path.with_name(f".{self.path.name}.{part}")
            for part in ("features", "files")
        ]
        if count:
            self._go_on()
        # Do not buffer, so that rows are one write.
        self._files = [
            open_regular(path, "ab" if count else "wb", buffering=0)
            for path in self._hidden
        ]

    def append(self, files: Sequence[str], features: np.ndarray) -> None:
        """Appends rows: paths as text, and float32 (photos, size)."""
        lines = "".join(f"{json.dumps(file)}\n" for file in files).encode()
        rows = np.ascontiguousarray(features, "<f4").tobytes()
        with explained(f"write {self.path}", "Free space, or pass another --features"):
            for file, content in zip(self._files, (rows, lines), strict=True):
                content = memoryview(content)
                while content:
                    content = content[file.write(content) :]
        self._longest = max(self._longest, *map(len, files))
        self.count += len(files)

    def finish(self) -> None:
        kind = f"<U{self._longest}"
        with (
            whole_file(self.path, "--features") as temporary,
            zipfile.ZipFile(temporary, "w") as archive,
        ):
            with (
                self._hidden[0].open("rb") as rows,
                _array(archive, "features", "<f4", (self.count, self.size)) as to,
            ):
                shutil.copyfileobj(rows, to)
            with _array(archive, "files", kind, (self.count,)) as to:
                names = self._names()
                while block := list(itertools.islice(names, _BLOCK)):
                    to.write(np.array(block, kind).tobytes())
        self._is_finished = True

    def close(self, keep: bool) -> None:
        """Closes the hidden files; with `keep` unfinished ones stay, to go on with."""
        for file in self._files:
            file.close()
        # Remove the names first: without them both are made of the finished file.
        for path in () if keep and not self._is_finished else reversed(self._hidden):
            path.unlink(missing_ok=True)

    def _names(self):
        with self._hidden[1].open("rb") as file:
            yield from map(json.loads, file)

    def _go_on(self):
        """Cuts the hidden files to `count` rows, or makes them from a finished file."""
        rows, names = self._hidden
        try:
            if not names.exists() and self.path.exists():
                _unpack(self.path, rows, names)
            if rows.stat().st_size < 4 * self.size * self.count:
                raise ValueError("there are fewer rows")
            end = 0
            with names.open("rb") as file:
                for _ in range(self.count):
                    line = file.readline()
                    end += len(line)
                    self._longest = max(self._longest, len(json.loads(line)))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise RunError(
                f"The features of the first {self.count:,} photos are not beside "
                f"{self.path} ({error}): leave --resume out, and pass other files."
            ) from error
        with rows.open("r+b") as file:
            file.truncate(4 * self.size * self.count)
        with names.open("r+b") as file:
            file.truncate(end)


def _array(archive, name, kind, shape):
    """Opens an array of an `.npz` file for its bytes."""
    to = archive.open(f"{name}.npy", "w", force_zip64=True)
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(to, header)
    return to


def _unpack(path, rows, names):
    """Writes the hidden files of a finished one, each whole, and last that of names."""
    with (
        zipfile.ZipFile(path) as archive,
        whole_file(names, "--features") as new_names,
        whole_file(rows, "--features") as new_rows,
    ):
        with archive.open("features.npy") as array, new_rows.open("wb") as to:
            _header(array)
            shutil.copyfileobj(array, to)
        with archive.open("files.npy") as array, new_names.open("w") as to:
            kind = _header(array)
            while block := array.read(_BLOCK * kind.itemsize):
                to.writelines(
                    f"{json.dumps(name)}\n"
                    for name in np.frombuffer(block, kind).tolist()
                )


def _header(array):
    np.lib.format.read_magic(array)
    return np.lib.format.read_array_header_1_0(array)[2]

"""Checkpoints of a run: every variable, written whole, read without unpickling."""

import collections
import functools
import operator
import pathlib
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
from keras import ops

from train.common.errors import DIVERGED, RunError, first_line
from train.common.files import checkpoint_steps, make_folder, whole_file
from zoo.containers.arrays import CheckpointError
from zoo.containers.npz import Npz

# The ending of a checkpoint that is a folder.
SHARDS = ".shards"
_RANGES = re.compile("([0-9]{1,12}:[0-9]{1,12}(,[0-9]{1,12}:[0-9]{1,12})*)?")


class Checkpoints:
    """The checkpoints in a folder, which is made; the newest two are kept.

    A thread writes them, one after the other, from copies of the variables. Where a
    file cannot be written, or a variable is not finite, the next method that is called
    raises a `RunError`, and the checkpoints before are kept.

    Both kinds are read: `step-00000010.npz`, which this class writes, and the folders
    `step-00000010.shards` of `train.engine.sharded_checkpoints`.
    """

    ending = ".npz"

    def __init__(self, folder):
        self.folder = make_folder(folder)
        self._writer = ThreadPoolExecutor(1)
        self._written = None

    def wait(self) -> None:
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def steps(self) -> list:
        """Returns the steps that have a checkpoint, in order."""
        self.wait()
        return self._steps()

    def _steps(self):
        return checkpoint_steps(self.folder)

    def save(self, step: int, variables: Sequence[keras.Variable]) -> None:
        """Writes the variables after a step, then drops all but the newest two."""
        self._start(_name(step), variables)

    def restore(self, variables: Sequence[keras.Variable]) -> int:
        """Assigns the newest checkpoint, and returns its step; 0 if there is none."""
        step = max(self.steps(), default=0)
        if step:
            self._read(self._path(step), variables)
        return step

    def save_best(self, variables: Sequence[keras.Variable]) -> None:
        self._start(self._name_of_best(), variables)

    def restore_best(self, variables: Sequence[keras.Variable]) -> None:
        self.require_best()
        self._read(self._best, variables)

    def require_best(self) -> None:
        """Raises a `RunError` where those of the best validation are missing."""
        self.wait()
        if not self._best.exists():
            raise RunError(
                f"{self._best} is missing, which holds the weights of the best "
                f"validation: {self._remedy(self._best)}."
            )

    def _start(self, name, variables):
        self.wait()
        path = self.folder / f"{name}{self.ending}"
        copies = self._copied(_keyed(variables))
        self._written = self._writer.submit(self._write, path, copies)

    def _name_of_best(self):
        return "best"

    def _copied(self, variables):
        """Returns what `_write` takes, from variables by key."""
        return {key: to_numpy(variable) for key, variable in variables.items()}

    def _write(self, path, arrays):
        check_finite(path, arrays)
        with whole_file(path) as temporary:
            np.savez(temporary, **arrays)
        self._tidy(path)

    def _tidy(self, written):
        """Removes the checkpoints that one replaces, which is written."""
        others = [self._path(step) for step in self._steps()[:-2]]
        if written.name.startswith("best"):
            others += [path for path in self._bests() if path != written]
        for path in others:
            if path.is_dir():
                # Not to be taken for a checkpoint that lacks files.
                path = path.rename(path.with_name(f".{path.name}.tmp"))
                shutil.rmtree(path)
            else:
                path.unlink()

    def _read(self, path, variables):
        targets = _keyed(variables)
        shapes = {key: tuple(variable.shape) for key, variable in targets.items()}
        try:
            stored = StoredVariables(path)
            if shapes != stored.shapes:
                raise RunError(
                    f"The checkpoint {path} is of another model than this run's: pass "
                    "another --run_dir."
                )
            for key, variable in targets.items():
                for index in self._indices(variable):
                    stored.check(key, index)
            for key, variable in targets.items():
                self._assign(variable, functools.partial(stored.read, key))
        except (CheckpointError, OSError) as error:
            raise RunError(
                f"The checkpoint {path} is damaged ({_reason(error, path)}): "
                f"{self._remedy(path)}."
            ) from error

    def _indices(self, variable):
        """Returns the parts of a variable that this process needs, tuples of slices."""
        return [(slice(None),) * len(variable.shape)]

    def _assign(self, variable, read):
        """Assigns what `read` returns of each part."""
        [index] = self._indices(variable)
        variable.assign(read(index))

    def _remedy(self, path):
        if path == self._best:
            return (
                f"copy it from a backup, or delete {self.folder} and give the command "
                "again to train anew, or pass another --run_dir"
            )
        others = [step for step in self._steps() if self._path(step) != path]
        goes_on = f"go on after step {others[-1]:,}" if others else "begin again"
        return f"delete it to {goes_on}, or pass another --run_dir"

    @property
    def _best(self):
        def written(path: pathlib.Path) -> int:
            return path.stat().st_mtime_ns

        return max(self._bests(), key=written, default=self.folder / "best.npz")

    def _bests(self):
        paths = (self.folder / "best.npz", *self.folder.glob(f"best-*{SHARDS}"))
        return [path for path in paths if path.exists()]

    def _path(self, step):
        folder = self.folder / f"{_name(step)}{SHARDS}"
        return folder if folder.exists() else self.folder / f"{_name(step)}.npz"


class StoredVariables:
    """The variables in a checkpoint: a file, or a folder of files with parts of them.

    A part is called as its variable and where it begins and ends along each axis, such
    as `0003/head/kernel@0:64,0:10`. Raises a `CheckpointError` where parts are missing.
    """

    def __init__(self, path):
        # Lists of (start, shape, file, name of the array) for each variable.
        self._parts = collections.defaultdict(list)
        self._checked = {}
        self.shapes = {}
        if path.suffix == SHARDS:
            for file in map(Npz, _files(path)):
                for name in file.keys:
                    self._add(file, name)
        else:
            file = Npz(path)
            for key in file.keys:
                # Accept weights that are not finite: the run goes on as it would have.
                array = self._checked[key] = file.check(key, finite=False)
                shape = self.shapes[key] = tuple(array.shape)
                self._parts[key].append(((0,) * len(shape), shape, file, key))
        for key, parts in self._parts.items():
            if not _are_whole(parts, self.shapes[key]):
                raise CheckpointError(f"{path} lacks parts of {key}")

    def _add(self, file, name):
        key, _, text = name.rpartition("@")
        if not _RANGES.fullmatch(text):
            raise CheckpointError(f"{file.path} has an array called {name!r}")
        ends = [tuple(map(int, part.split(":"))) for part in text.split(",") if part]
        start = tuple(first for first, _ in ends)
        end = tuple(last for _, last in ends)
        shape = tuple(map(operator.sub, end, start))
        before = self.shapes.get(key, end)
        if min(shape, default=1) < 1 or len(before) != len(end):
            raise CheckpointError(f"{file.path} has an array called {name!r}")
        self.shapes[key] = tuple(map(max, before, end))
        self._parts[key].append((start, shape, file, name))

    def check(self, key: str, index: tuple[slice, ...]) -> None:
        """Reads all bytes of the arrays that have something of a variable's part."""
        for _, shape, file, name in self._overlapping(key, index):
            if name not in self._checked:
                array = self._checked[name] = file.check(name, finite=False)
                if tuple(array.shape) != shape:
                    raise CheckpointError(f"{file.path} has another shape of {name}")

    def read(self, key: str, index: tuple[slice, ...]) -> np.ndarray:
        """Returns a part of a variable, of which `check` has read the bytes."""
        bounds = self._bounds(key, index)
        parts = [
            (start, np.asarray(self._checked[name]))
            for start, _, _, name in self._overlapping(key, index)
        ]
        _, first = parts[0]
        shape = tuple(high - low for low, high in bounds)
        if first.shape == shape:
            return first
        whole = np.empty(shape, first.dtype)
        for start, array in parts:
            inside, place = [], []
            for (low, high), at, length in zip(bounds, start, array.shape, strict=True):
                begin, end = max(low, at), min(high, at + length)
                inside.append(slice(begin - at, end - at))
                place.append(slice(begin - low, end - low))
            whole[tuple(place)] = array[tuple(inside)]
        return whole

    def _bounds(self, key, index):
        sides = zip(index, self.shapes[key], strict=True)
        return [part.indices(side)[:2] for part, side in sides]

    def _overlapping(self, key, index):
        bounds = self._bounds(key, index)
        return [
            part
            for part in self._parts[key]
            if all(
                low < first + length and first < high
                for (low, high), first, length in zip(bounds, *part[:2], strict=True)
            )
        ]


def _are_whole(parts, shape):
    """Returns whether parts fill an array as the fields of a table do."""
    starts = {start for start, *_ in parts}
    fields = 1
    for axis, side in enumerate(shape):
        ranges = sorted({(part[0][axis], part[1][axis]) for part in parts})
        ends = [start + length for start, length in ranges]
        if [start for start, _ in ranges] != [0, *ends[:-1]] or ends[-1] != side:
            return False
        fields *= len(ranges)
    return len(starts) == len(parts) == fields


def _files(folder):
    """Returns the files of a folder of parts, of which none may be missing."""
    paths = sorted(folder.glob("device-*-of-*.npz"))
    counts = {path.stem.rpartition("-")[2] for path in paths}
    if counts != {str(len(paths))}:
        raise CheckpointError(f"{folder} lacks files: it has {len(paths)}")
    return paths


def check_finite(path: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
    """Raises a `RunError` where an array of a checkpoint is not finite."""
    for key, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise RunError(
                f"{path} was not written, for {key} is not finite: {DIVERGED}"
            )


def _name(step):
    return f"step-{step:08d}"


def _reason(error, path):
    """Returns what is wrong with a file, without the advice for downloads."""
    if error.__cause__ is not None:
        return first_line(error.__cause__)
    return first_line(str(error).removeprefix(f"{path} ").partition(": ")[0])


def to_numpy(variable: Any) -> np.ndarray:
    """Returns the values of a variable or array, bfloat16 as float32."""
    # NumPy has no bfloat16; float32 holds all of its values.
    if variable.dtype == "bfloat16":
        variable = ops.cast(variable, "float32")
    return ops.convert_to_numpy(variable)


def _keyed(variables):
    # Keras numbers seed generators through the process, not within the model.
    paths = [re.sub(r"(?<=seed_generator)_\d+", "", item.path) for item in variables]
    return {
        f"{index:04d}/{path}": variable
        for index, (path, variable) in enumerate(zip(paths, variables, strict=True))
    }

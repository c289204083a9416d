"""Checkpoints of a run: every variable, written whole, read without unpickling."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
from keras import ops

from train.common.errors import DIVERGED, RunError, first_line
from train.common.files import checkpoint_steps, make_folder, whole_file
from zoo.containers.arrays import CheckpointError
from zoo.containers.npz import Npz


class Checkpoints:
    """The checkpoints in a folder, which is made; the newest two are kept.

    A thread writes them, one after the other, from copies of the variables. Where a
    file cannot be written, or a variable is not finite, the next method that is called
    raises a `RunError`, and the checkpoints before are kept.
    """

    def __init__(self, folder):
        self.folder = make_folder(folder)
        self._best = self.folder / "best.npz"
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
        self._start(self._path(step), variables)

    def restore(self, variables: Sequence[keras.Variable]) -> int:
        """Assigns the newest checkpoint, and returns its step; 0 if there is none."""
        step = max(self.steps(), default=0)
        if step:
            self._read(self._path(step), variables)
        return step

    def save_best(self, variables: Sequence[keras.Variable]) -> None:
        self._start(self._best, variables)

    def restore_best(self, variables: Sequence[keras.Variable]) -> None:
        self.require_best()
        self._read(self._best, variables)

    def require_best(self) -> None:
        """Raises a `RunError` where those of the best validation are missing."""
        self.wait()
        if not self._best.is_file():
            raise RunError(
                f"{self._best} is missing, which holds the weights of the best "
                f"validation: {self._remedy(self._best)}."
            )

    def _start(self, path, variables):
        self.wait()
        arrays = {
            key: _to_numpy(variable) for key, variable in _keyed(variables).items()
        }
        self._written = self._writer.submit(self._write, path, arrays)

    def _write(self, path, arrays):
        for key, array in arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise RunError(
                    f"{path} was not written, for {key} is not finite: {DIVERGED}"
                )
        with whole_file(path) as temporary:
            np.savez(temporary, **arrays)
        for old in self._steps()[:-2]:
            self._path(old).unlink()

    def _read(self, path, variables):
        targets = _keyed(variables)
        shapes = {key: tuple(variable.shape) for key, variable in targets.items()}
        try:
            file = Npz(path)
            # Accept weights that are not finite: the run goes on as it would have.
            arrays = {key: file.check(key, finite=False) for key in file.keys}
            if shapes != {key: tuple(array.shape) for key, array in arrays.items()}:
                raise RunError(
                    f"The checkpoint {path} is of another model than this run's: pass "
                    "another --run_dir."
                )
            for key, variable in targets.items():
                variable.assign(np.asarray(arrays[key]))
        except (CheckpointError, OSError) as error:
            raise RunError(
                f"The checkpoint {path} is damaged ({_reason(error, path)}): "
                f"{self._remedy(path)}."
            ) from error

    def _remedy(self, path):
        if path == self._best:
            return (
                f"copy it from a backup, or delete {self.folder} and give the command "
                "again to train anew, or pass another --run_dir"
            )
        others = [step for step in self._steps() if self._path(step) != path]
        goes_on = f"go on after step {others[-1]:,}" if others else "begin again"
        return f"delete it to {goes_on}, or pass another --run_dir"

    def _path(self, step):
        return self.folder / f"step-{step:08d}.npz"


def _reason(error, path):
    """Returns what is wrong with a file, without the advice for downloads."""
    if error.__cause__ is not None:
        return first_line(error.__cause__)
    return first_line(str(error).removeprefix(f"{path} ").partition(": ")[0])


def _to_numpy(variable):
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

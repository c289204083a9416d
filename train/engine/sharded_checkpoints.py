"""Checkpoints of variables in parts: each process writes what its devices hold."""

import os
import pathlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from train.common.errors import RunError
from train.common.files import (
    MEND,
    explained,
    move,
    remove_temporaries,
    whole_file,
)
from train.engine.checkpoints import SHARDS, Checkpoints, check_finite, to_numpy

# Wait so long for the files of other processes.
_SECONDS = 600


class ShardedCheckpoints(Checkpoints):
    """Checkpoints that are folders, such as `step-00000010.shards`.

    A folder has one file for each device, with the parts of variables that this device
    is the first to hold. All processes save and restore at the same steps. They write
    their files side by side into a hidden folder, which the first process renames once
    all files are there.
    """

    ending = SHARDS

    def __init__(self, folder):
        super().__init__(folder)
        if jax.process_index() == 0:
            # A kill may have left the name of what will be written. No other process
            # writes before all have read the newest checkpoint.
            remove_temporaries(self.folder)
        bests = (path.stem for path in self.folder.glob(f"best-*{SHARDS}"))
        numbers = [int(name[5:]) for name in bests if name[5:].isdecimal()]
        self._best_number = max(numbers, default=0)

    def _name_of_best(self):
        self._best_number += 1
        return f"best-{self._best_number:08d}"

    def _copied(self, variables):
        """Returns the arrays of each device's file, by the file's name."""
        count = jax.device_count()
        files: dict[str, dict] = {
            f"device-{device.id}-of-{count}.npz": {} for device in jax.local_devices()
        }
        for key, variable in variables.items():
            for shard in variable.value.addressable_shards:
                if shard.replica_id == 0:
                    ranges = [
                        part.indices(side)[:2]
                        for part, side in zip(shard.index, variable.shape, strict=True)
                    ]
                    text = ",".join(f"{start}:{stop}" for start, stop in ranges)
                    file = files[f"device-{shard.device.id}-of-{count}.npz"]
                    file[f"{key}@{text}"] = to_numpy(shard.data)
        return files

    def _write(self, path, files):
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            self._write_parts(path, temporary, files)
        except BaseException:
            # Others may still write into it, and are told by the first.
            if jax.process_index() == 0:
                shutil.rmtree(temporary, ignore_errors=True)
            raise

    def _write_parts(self, path, temporary, files):
        with explained(f"write {path}", f"{MEND}, or pass another --run_dir"):
            temporary.mkdir(exist_ok=True)
        with ThreadPoolExecutor(len(files)) as pool:
            for written in [
                pool.submit(_write_file, temporary / name, path, arrays)
                for name, arrays in files.items()
            ]:
                written.result()
        is_chief = jax.process_index() == 0
        count = jax.device_count()
        names = {f"device-{device.id}-of-{count}.npz" for device in jax.devices()}
        deadline = time.monotonic() + _SECONDS
        while not (names <= _names(temporary) if is_chief else path.exists()):
            if time.monotonic() > deadline:
                raise RunError(
                    f"{path} was not written, for other processes did not write "
                    f"their files into {temporary}: pass a --run_dir on a disk that "
                    "all of them share, and see what they print."
                )
            time.sleep(0.05)
        if is_chief:
            with explained(f"write {path}", f"{MEND}, or pass another --run_dir"):
                move(temporary, path)
            self._tidy(path)

    def _indices(self, variable):
        sharding = variable.value.sharding
        indices = sharding.addressable_devices_indices_map(tuple(variable.shape))
        # Slices cannot be members of sets.
        return list({str(index): index for index in indices.values()}.values())

    def _assign(self, variable, read):
        shape = tuple(variable.shape)
        sharding = variable.value.sharding
        variable.assign(jax.make_array_from_callback(shape, sharding, read))


def _write_file(place, path, arrays):
    check_finite(path, arrays)
    with whole_file(place) as temporary:
        np.savez(temporary, **arrays)


def _names(folder: pathlib.Path) -> set:
    return set(os.listdir(folder)) if folder.is_dir() else set()

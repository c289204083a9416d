"""Reading and writing `.npz` checkpoints under the released names.

Whatever dialect a file is in, `read` gives the same arrays under the same names, and
accounts for every key. Nothing is ever unpickled.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from zoo import dialects, released_names
from zoo.archive import Archive, CheckpointError, StoredArrays


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """The arrays of one checkpoint and the sizes that their shapes tell.

    Args:
        path: str, where they came from, for messages.
        arrays: mapping of released name to float32 array; that of a file reads an
            array each time it is asked for one. Group normalisation scales and biases
            are vectors here (files hold them as (1, 1, 1, C)).
        stored_grid: (height, width) in patches where the file states it, else None.

    Raises:
        CheckpointError: arrays missing, unknown or of inconsistent shapes.

    Example:
        >>> import zoo
        >>> checkpoint = zoo.read("tests/goldens/token.npz")
        >>> checkpoint.hidden_size, checkpoint.num_layers, checkpoint.grid_size
        (48, 3, (4, 4))
    """

    path: str
    arrays: Mapping[str, np.ndarray] = dataclasses.field(repr=False)
    stored_grid: tuple[int, int] | None = None

    def __post_init__(self):
        _refuse(self.path, self._measured[1])
        grid = self.stored_grid
        if self.num_positions < 1:
            _refuse(self.path, ["the position embedding has no rows for patches"])
        if grid is not None and (
            len(grid) != 2 or min(grid) < 1 or math.prod(grid) != self.num_positions
        ):
            problem = f"a grid of {grid} patches for {self.num_positions} positions"
            _refuse(self.path, [problem])

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays' shapes by name, known without reading one."""
        if isinstance(self.arrays, StoredArrays):
            return self.arrays.shapes
        return {name: array.shape for name, array in self.arrays.items()}

    @functools.cached_property
    def _measured(self):
        return released_names.measure(self.shapes)

    @property
    def _sizes(self):
        return self._measured[0]

    @property
    def hidden_size(self) -> int:
        """Width of the encoder."""
        return self._sizes["hidden_size"]

    @property
    def num_layers(self) -> int:
        """Number of encoder blocks."""
        return released_names.count_blocks(self.arrays)

    @property
    def num_heads(self) -> int:
        """Attention heads of each block."""
        return self._sizes["num_heads"]

    @property
    def mlp_dim(self) -> int:
        """Hidden width of each block's MLP."""
        return self._sizes["mlp_dim"]

    @property
    def patch_size(self) -> tuple[int, int]:
        """(height, width) of the embedding's kernel, in pixels or stem cells."""
        return self._sizes["patch_height"], self._sizes["patch_width"]

    @property
    def classes(self) -> int | None:
        """Outputs of the head, None without a head."""
        return self._sizes.get("classes")

    @property
    def representation_size(self) -> int | None:
        """Width of `pre_logits`, None without it."""
        return self._sizes.get("representation_size")

    @property
    def class_token(self) -> bool:
        """Whether there is a class token."""
        return released_names.CLASS_TOKEN in self.arrays

    @property
    def num_positions(self) -> int:
        """Rows of the position embedding, less the class token's."""
        return self._sizes["positions"] - self.class_token

    @property
    def grid_size(self) -> tuple[int, int] | None:
        """(height, width) in patches; None if not stated and not a square number."""
        side = math.isqrt(self.num_positions)
        square = (side, side) if side * side == self.num_positions else None
        return self.stored_grid or square

    @property
    def zero_head(self) -> bool:
        """Whether there is a head and all of it is zero."""
        names = released_names.HEAD_ARRAYS
        return self.classes is not None and not any(
            self.arrays[name].any() for name in names
        )

    @property
    def resnet_stages(self) -> tuple[int, ...] | None:
        """Units of each stage; () for a stem of one convolution, None without."""
        return released_names.count_units(self.arrays)

    @property
    def resnet_width(self) -> int | None:
        """Output channels of the stem's first convolution, None without a stem."""
        return self._sizes.get("resnet_width")


def read(path: str | os.PathLike) -> Checkpoint:
    """Reads a checkpoint in any of the released dialects.

    Args:
        path: an `.npz` file; `zoo.fetch` gives one from a URL.

    Returns:
        A `Checkpoint`, whose arrays stay in the file until they are asked for; every
        byte of them was checked. The file is kept open, and is not to be changed in
        place. float16 and bfloat16 arrays become float32, optimizer state and text
        towers are left out.

    Raises:
        CheckpointError: not an `.npz` file, damaged, holding pickled objects, or with
            keys that are missing, unknown or of inconsistent shapes (all are listed).

    Source: the files in https://console.cloud.google.com/storage/browser/vit_models.

    Example:
        >>> import zoo
        >>> zoo.read("tests/goldens/dialect_opt_target.npz").classes
        10
    """
    archive = Archive(path)
    parts, grid = {}, None
    keys = archive.keys
    problems = [
        f"two arrays are called {key}"
        for key in sorted(set(keys))
        if keys.count(key) > 1
    ]
    chosen, unknown = dialects.select(keys)
    problems += [f"unknown {key}" for key in unknown]
    with ThreadPoolExecutor() as threads:
        checked = list(threads.map(archive.check, chosen))
    for (key, name), array in zip(chosen.items(), checked, strict=True):
        if name == released_names.GRID_SIZE and array.dtype.kind == "i":
            grid = tuple(map(int, np.ravel(array)))
            continue
        try:
            dialects.to_float32(np.empty(0, array.dtype))
        except TypeError as error:
            problems.append(f"{key} has {error}")
        for released, part in dialects.arrange(name, array).items():
            if released in parts:
                problems.append(f"two arrays for {released}, one is {key}")
            parts[released] = part
    dialects.restore_class_token_row(parts, chosen)
    _refuse(archive.path, problems)
    return Checkpoint(archive.path, StoredArrays(parts), grid)


def write(
    path: str | os.PathLike,
    arrays: dict[str, np.ndarray],
    grid_size: tuple[int, int] | None = None,
) -> None:
    """Writes a checkpoint as the released files are, whole or not at all.

    Args:
        path: the `.npz` file to write or replace.
        arrays: dict of released name to float array, as `Checkpoint.arrays`; stored
            as float32.
        grid_size: (height, width) in patches of the position embedding. Needed, and
            stored, only where it is not square.

    Raises:
        CheckpointError: another file extension, arrays that `read` would refuse, or
            a non-square number of positions without `grid_size`.

    Example:
        >>> import tempfile, zoo
        >>> checkpoint = zoo.read("tests/goldens/token.npz")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     zoo.write(f"{folder}/copy.npz", checkpoint.arrays)
    """
    path = pathlib.Path(path)
    if path.suffix != ".npz":
        raise CheckpointError(f"Cannot write {path}: its name must end in .npz.")
    problems, stored = [], {}
    for name, array in arrays.items():
        try:
            array = dialects.to_float32(np.asarray(array))
        except TypeError as error:
            problems.append(f"{name} has {error}")
        if released_names.is_group_norm(name):
            array = array.reshape(-1)
        stored[name] = array
    _refuse(path, problems)
    grid_size = None if grid_size is None else tuple(map(int, grid_size))
    checkpoint = Checkpoint(str(path), stored, grid_size)
    if checkpoint.grid_size is None:
        raise CheckpointError(
            f"Cannot write {path}: {checkpoint.num_positions} positions are not a "
            "square grid, pass grid_size=(height, width) in patches."
        )
    for name, array in stored.items():
        if released_names.is_group_norm(name):
            stored[name] = array.reshape(1, 1, 1, -1)
    height, width = checkpoint.grid_size
    if height != width:
        stored[released_names.GRID_SIZE] = np.array([height, width], np.int32)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".checkpoint-") as folder:
        part = os.path.join(folder, path.name)
        np.savez(part, **stored)
        os.replace(part, path)


def _refuse(path, problems):
    """Raises an error that lists the problems, if there are any."""
    if not problems:
        return
    listed = "".join(f"\n  {problem}" for problem in problems[:20])
    more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
    raise CheckpointError(
        f"{path} is not a checkpoint of a Vision Transformer under the released "
        f"names:{listed}{more}"
    )

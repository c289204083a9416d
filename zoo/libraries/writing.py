"""Writing checkpoints for the released code, timm and transformers."""

import json
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.common.regular_files import expand_home
from zoo.containers import opening, safetensors
from zoo.containers.arrays import CheckpointError, to_float32, wrong_dtypes
from zoo.libraries import description, reading
from zoo.libraries.checkpoint import Checkpoint
from zoo.libraries.description import Description
from zoo.network import FAMILIES, RELEASED, ViTConfig, released_names
from zoo.network.head import ONE_CLASS, Head

NAMINGS = ("released", *reading.WRITTEN)
# Choices of a network that its arrays do not show.
UNSEEN = (
    *RELEASED, "qkv_bias", "final_norm", "norm_after_branches", "rotary",
    "rotary_grid", "rotary_base", "tokens_with_positions", "query_blocks",
)  # fmt: skip


def write(
    path: str | os.PathLike,
    arrays: Checkpoint | Mapping[str, np.ndarray],
    grid_size: tuple[int, int] | None = None,
    *,
    naming: str = "released",
    semantics: ViTConfig | None = None,
) -> None:
    """Writes a checkpoint for the released code, timm or transformers.

    A `.safetensors` says in its header what the arrays do not: what is computed, heads
    and grid, which `read` returns, and the CRC-32 of each array, which it compares.
    timm and transformers read the former from the settings written beside it; timm's
    own ResNets use the epsilons of timm whatever the header says.

    Args:
        path: the file to write or replace: an `.npz` or `.safetensors` in the released
            naming, and `model.safetensors` in a folder of its own in the others.
        arrays: `Checkpoint`, or dict of released name to float array, as
            `Checkpoint.arrays`; stored as float32.
        grid_size: (height, width) in patches of the position embedding. Needed only
            where it is not square; by default the checkpoint's.
        naming: `"released"`, `"timm"` for `timm.create_model("local-dir:folder")`, or
            `"transformers"` for `ViTForImageClassification.from_pretrained(folder)`.
        semantics: `ViTConfig`, what the model computes; where it is None the
            checkpoint's, or what the released models do.

    Raises:
        CheckpointError: another file extension, arrays that `read` would refuse, a
            non-square number of positions without `grid_size`, or a model that the
            file or the library cannot say.

    Example:
        >>> import tempfile
        >>> checkpoint = zoo.read("tests/goldens/token.npz")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     zoo.write(f"{folder}/copy.npz", checkpoint)
        ...     zoo.write(f"{folder}/model.safetensors", checkpoint, naming="timm")
    """
    path = expand_home(path)
    pooling, head = None, Head()
    if isinstance(arrays, Checkpoint):
        pooling, head = arrays.pooling, arrays.head
        grid_size = grid_size or arrays.grid_size
        semantics = (semantics or ViTConfig()).with_defaults(arrays.semantics)
        arrays = arrays.arrays
    semantics = (semantics or ViTConfig()).semantics
    for reason in _obstacles(path, naming, semantics, head.problem_type):
        raise CheckpointError(f"Cannot write {path}: {reason}.")
    checkpoint = _whole(path, arrays, grid_size, semantics, pooling, head)
    # Without a head pooling is a choice of whoever builds the model.
    read = checkpoint.default_pooling, checkpoint.pooling
    if path.suffix == ".npz" and checkpoint.classes is not None and read[0] != read[1]:
        raise CheckpointError(
            f"Cannot write {path}: an .npz cannot say that its head reads {read[1]!r}, "
            f"and would be read as one of {read[0]!r}: write a .safetensors."
        )
    files: dict[str, Any] = {}
    if naming == "released":
        stored = dict(checkpoint.arrays)
        for name in filter(released_names.is_group_norm, stored):
            stored[name] = stored[name].reshape(1, 1, 1, -1)
    else:
        try:
            stored, files = reading.LIBRARIES[naming].written(checkpoint)
        except ValueError as error:
            raise CheckpointError(f"Cannot write {path}: {error}.") from error
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".checkpoint-") as folder:
        _save(os.path.join(folder, path.name), checkpoint, stored)
        for name, table in files.items():
            pathlib.Path(folder, name).write_text(json.dumps(table, indent=2))
        # The arrays last: what they say of themselves goes before the settings.
        for name in (*files, path.name):
            os.replace(os.path.join(folder, name), path.with_name(name))


def _obstacles(path, naming, semantics, problem_type):
    """Yields why a file of this name cannot say what a checkpoint is."""
    if naming not in NAMINGS:
        yield f"unknown naming {naming!r}, choose from {', '.join(NAMINGS)}"
    if naming != "released" and path.name != opening.SAFETENSORS:
        yield (
            f"the settings for {naming} go beside it, so its name must be "
            f"{opening.SAFETENSORS}, in a folder of its own"
        )
    is_npz = path.suffix == ".npz"
    if not is_npz and path.suffix != ".safetensors":
        yield "its name must end in .npz or .safetensors"
    # An .npz shows what its arrays show, and is resized as the released files are.
    plain = ViTConfig(**RELEASED, **FAMILIES)
    lost = semantics.with_defaults(plain).differences(plain)
    lost = [f"{name}={lost[name][0]!r}" for name in lost if name in UNSEEN]
    if is_npz and lost:
        yield (
            f"an .npz cannot say {', '.join(lost)}, and would be read as one of the "
            "released models: write a .safetensors, or pass "
            "semantics=zoo.ViTConfig.released() for the released models' numbers"
        )
    if problem_type not in (None, ONE_CLASS) and (is_npz or naming == "timm"):
        yield (
            f"{'an .npz' if is_npz else 'timm'} cannot say "
            f"problem_type={problem_type!r}, and the outputs would be read as one "
            'class of several: write a .safetensors in the naming "released" or '
            '"transformers"'
        )


def _save(file, checkpoint, stored):
    """Writes arrays by their keys, and into a header what they do not show."""
    if file.endswith(".npz"):
        height, width = checkpoint.grid_size or (1, 1)
        if height != width:
            stored[released_names.GRID_SIZE] = np.array([height, width], np.int32)
        np.savez(file, **stored)
        return
    is_default = checkpoint.pooling == checkpoint.default_pooling
    stated = Description(
        checkpoint.config,
        checkpoint.grid_size,
        None if is_default else checkpoint.pooling,
        checkpoint.pooling_heads,
        head=checkpoint.head,
    )
    safetensors.write(file, stored, description.to_metadata(stated))


def _whole(path, arrays, grid_size, semantics, pooling, head):
    """Makes sure that arrays are a checkpoint, in memory as float32."""
    stored = {name: np.asarray(array) for name, array in arrays.items()}
    reading.refuse(path, wrong_dtypes(stored))
    problems = []
    for name in stored:
        stored[name] = to_float32(stored[name])
        if not np.isfinite(stored[name]).all():
            problems.append(f"{name} holds NaN or infinity")
        if released_names.is_group_norm(name):
            stored[name] = stored[name].reshape(-1)
    reading.refuse(path, problems)
    grid_size = None if grid_size is None else tuple(map(int, grid_size))
    checkpoint = Checkpoint(str(path), stored, grid_size, semantics, pooling, head)
    if checkpoint.grid_size is None and checkpoint.num_positions:
        raise CheckpointError(
            f"Cannot write {path}: {checkpoint.num_positions} positions are not a "
            "square grid, pass grid_size=(height, width) in patches."
        )
    return checkpoint

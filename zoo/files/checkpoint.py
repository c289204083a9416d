"""Reading and writing checkpoints of any library, under the released names.

Every key of a file is accounted for, and nothing is ever unpickled.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pathlib
import tempfile
import warnings
from collections.abc import Mapping

import numpy as np

from zoo import released_names
from zoo.files import comparison, description, opening, reading, released, safetensors
from zoo.files.arrays import (
    CheckpointError,
    StoredArrays,
    to_float32,
    wrong_dtypes,
)
from zoo.files.description import Description
from zoo.head import ONE_CLASS, Head, checked_names
from zoo.network import FAMILIES, POOLINGS, RELEASED, SIZES, ViTConfig, pair
from zoo.position_embedding import relative_positions, resize_patches
from zoo.regular_files import expand_home
from zoo.text import brief

NAMINGS = ("released", *reading.WRITTEN)
# Choices of a network that its arrays do not show.
_UNSEEN = (
    *RELEASED, "qkv_bias", "final_norm", "norm_after_branches", "rotary",
    "rotary_grid", "rotary_base", "tokens_with_positions",
)  # fmt: skip


def _size(name, doc):
    return property(lambda self: self._measured[0].get(name), doc=doc)


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """The arrays of one checkpoint and the network that they are of.

    Args:
        path: str, where they came from, for messages.
        arrays: mapping of released name to float32 array; that of a file reads an
            array each time it is used. Group normalisation scales and biases
            are vectors here (files hold them as (1, 1, 1, C)).
        stored_grid: (height, width) in patches where the file states it, else None.
        semantics: `ViTConfig`, what the source computes with the arrays; as released
            where it is None. Sizes may be left out: those of the arrays hold.
        pooling: what its head reads, see `VisionTransformer`; by default the class
            token and the mean of the patches if the head has room for both, else the
            class token if there is one, else the mean.
        head: `zoo.head.Head`, what its outputs are called and mean, and how photos
            come to its size, as far as the source says it.

    Raises:
        CheckpointError: arrays missing, unknown or of inconsistent shapes.

    Example:
        >>> checkpoint = zoo.read("tests/goldens/token.npz")
        >>> checkpoint.hidden_size, checkpoint.num_layers, checkpoint.grid_size
        (48, 3, (4, 4))
    """

    path: str
    arrays: Mapping[str, np.ndarray] = dataclasses.field(repr=False)
    stored_grid: tuple[int, int] | None = None
    semantics: ViTConfig = ViTConfig()
    pooling: str | None = None
    head: Head = Head()

    hidden_size = _size("hidden_size", "int, the size of a token.")
    num_heads = _size("num_heads", "int, the attention heads of each block.")
    mlp_dim = _size("mlp_dim", "int, the hidden size of each block's MLP.")
    channels = _size("channels", "int, the channels of the images.")
    classes = _size("classes", "int, the outputs of the head, or None.")
    representation_size = _size("representation_size", "int, of `pre_logits`, or None.")
    pooling_heads = _size("pooling_heads", "int, of the attention pooling, or None.")
    pooling_mlp_dim = _size("pooling_mlp_dim", "int, of its MLP, or None.")
    resnet_width = _size("resnet_width", "int, of a hybrid's root, or None.")

    def __post_init__(self):
        if not isinstance(self.arrays, StoredArrays):
            object.__setattr__(self, "arrays", StoredArrays(self.arrays))
        reading.refuse(self.path, self._measured[1])
        stated, problems = self.semantics, []
        grid, rows = self.stored_grid, self.num_positions
        has_table = "positions" in self._features
        if has_table == (stated.tokens_with_positions == "none"):
            is_there = "is" if has_table else "is not"
            problems.append(
                f"{released_names.POSITION_EMBEDDING} {is_there} there, and "
                f"tokens_with_positions is {stated.tokens_with_positions!r}"
            )
        elif rows < 1 and has_table:
            problems.append("the position embedding has no rows for patches")
        if grid is not None and (
            len(grid) != 2 or min(grid) < 1 or math.prod(grid) != rows
        ):
            problems.append(f"a grid of {grid} patches for {rows} positions")
        problems += self._wrong_relative_positions()
        if not stated.has_released_positions:
            problems.append(
                "files have learned position embeddings, added at the stem: leave "
                "position_embedding out"
            )
        problems += self._wrong_names()
        reading.refuse(self.path, problems)
        object.__setattr__(self, "semantics", stated.semantics)
        if self.pooling not in (None, *POOLINGS):
            reading.refuse(self.path, [f"pooling {brief(self.pooling)} is not known"])
        if self.pooling is None:
            object.__setattr__(self, "pooling", self.default_pooling)
        shown = comparison.Shown(self.shapes, self._measured[0]).facts
        families = {name: vars(stated)[name] for name in FAMILIES if name in shown}
        if families["layer_scale"]:
            families["layer_scale"] = True
        families["gates"] = self.semantics.activation == "swiglu"
        sizes = {**stated.sizes, "resnet_width": None}
        reading.refuse(
            self.path,
            comparison.differences(families, shown)
            + comparison.differences(sizes, self.config.sizes),
        )

    def _wrong_names(self):
        """Returns what is wrong with the names of the classes, in a list."""
        if self.head.class_names is None:
            return []
        try:
            checked_names(self.head.class_names, self.classes or 0)
        except ValueError as error:
            return [str(error)]
        return []

    def _wrong_relative_positions(self):
        """Returns what is wrong with biases of offsets, in a list."""
        sizes, grid, problems = self._measured[0], self.grid_size, []
        rows = sizes.get("relative_positions")
        if rows is None:
            return []
        prefix = self.num_prefix_tokens
        if grid is None or rows != relative_positions(grid, prefix):
            of = "no known" if grid is None else f"a {grid[0]}x{grid[1]}"
            problems.append(f"{of} grid of patches for {rows} relative positions")
        if sizes["relative_heads"] != self.num_heads:
            problems.append(
                f"{self.num_heads} attention heads, and relative positions of "
                f"{sizes['relative_heads']}"
            )
        return problems

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays' shapes by name, known without reading one."""
        return self.arrays.shapes

    @functools.cached_property
    def _measured(self):
        stated = self.semantics
        required = released_names.required(
            stated.qkv_bias, stated.tokens_with_positions, stated.final_norm
        )
        return released_names.measure(self.shapes, required)

    @functools.cached_property
    def _features(self):
        return released_names.features(self.shapes)

    @property
    def default_pooling(self) -> str:
        """What arrays alone show of `pooling`."""
        if released_names.TWO_VECTORS in self._features:
            return "token_and_gap"
        if "distillation_head" in self._features:
            return "distilled"
        if "attention_pooling" in self._features:
            return "map"
        return "token" if self.class_token else "gap"

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, None where they are unknown or a list's."""
        names = self.head.class_names
        return None if isinstance(names, str) else names

    @functools.cached_property
    def config(self) -> ViTConfig:
        """The `ViTConfig` of the network, sizes and semantics."""
        sizes = {name: getattr(self, name) for name in SIZES}
        if self.resnet_stages is None:
            del sizes["resnet_width"]
        found = released_names.families(self.shapes)
        try:
            config = dataclasses.replace(self.semantics, **sizes, **found)
            return config.with_defaults(ViTConfig(**FAMILIES))
        except ValueError as error:
            raise CheckpointError(f"{self.path}: {error}") from error

    @property
    def num_layers(self) -> int:
        """Number of encoder blocks."""
        return released_names.count_blocks(self.arrays)

    @property
    def patch_size(self) -> tuple[int, int]:
        """(height, width) of the embedding's kernel, in pixels or stem cells."""
        sizes, _ = self._measured
        return sizes["patch_height"], sizes["patch_width"]

    @property
    def class_token(self) -> bool:
        """Whether there is a class token."""
        return released_names.CLASS_TOKEN in self.arrays

    @property
    def num_prefix_tokens(self) -> int:
        """The number of tokens before those of the patches."""
        return released_names.num_prefix_tokens(self.shapes)

    @property
    def num_prefix_positions(self) -> int:
        """Rows of the position embedding for tokens before those of the patches."""
        others = {
            "none": 0,
            "patches": 0,
            "class token and patches": int(self.class_token),
        }
        covered = self.semantics.tokens_with_positions
        return others.get(covered, self.num_prefix_tokens)

    @property
    def num_positions(self) -> int:
        """Rows of the position embedding for patches; without one, the patches."""
        if "positions" not in self._features:
            return math.prod(self.stored_grid or self._grid_of_offsets)
        return self._measured[0]["positions"] - self.num_prefix_positions

    @property
    def _grid_of_offsets(self):
        """The square grid that biases of offsets are of, (0, 0) without."""
        offsets = self._measured[0].get("relative_positions", 0)
        offsets -= 3 if self.num_prefix_tokens else 0
        side = math.isqrt(max(offsets, 0))
        square = side * side == offsets and side % 2
        return ((side + 1) // 2,) * 2 if square else (0, 0)

    @property
    def grid_size(self) -> tuple[int, int] | None:
        """(height, width) in patches; None if not stated and not a square number."""
        side = math.isqrt(self.num_positions)
        square = (side, side) if side * side == self.num_positions > 0 else None
        return self.stored_grid or square

    @property
    def image_size(self) -> tuple[int, int] | None:
        """(height, width) in pixels of the images; None if `grid_size` is."""
        if self.grid_size is None:
            return None
        (rows, columns), (height, width) = self.grid_size, self.config.stride
        return rows * height, columns * width

    @property
    def zero_head(self) -> bool:
        """Whether there is a head and all of it is zero."""
        names = released_names.HEAD_ARRAYS if self.classes is not None else ()
        return bool(names) and not any(self.arrays[name].any() for name in names)

    def without_head(self) -> Checkpoint:
        """Returns the same without its head and the `pre_logits` before it."""
        kept = [name for name in self.arrays if name not in released_names.HEADS]
        # The maker of a new head knows what it answers.
        head = Head(preparation=self.head.preparation)
        return dataclasses.replace(self, arrays=self.arrays.only(kept), head=head)

    def with_patch_size(self, patch_size: int | tuple[int, int]) -> Checkpoint:
        """Returns the same for patches of another size, as FlexiViT was trained to be.

        Args:
            patch_size: int or (height, width) in pixels.

        Example:
            >>> checkpoint = zoo.read("tests/goldens/token.npz")
            >>> checkpoint.with_patch_size(6).patch_size
            (6, 6)
        """
        patch_size = pair(patch_size, "patch_size")
        if patch_size == self.patch_size:
            return self
        if self.resnet_stages is not None:
            raise CheckpointError(
                f"{self.path} is a hybrid, whose patches are of a ResNet's features: "
                "leave patch_size out."
            )
        [name] = (key for key in released_names.EMBEDDING_ARRAYS if "kernel" in key)
        arrays = {key: self.arrays[key] for key in self.arrays}
        method = self.config.position_resizing
        method = "bilinear_no_antialias" if method == "released" else method
        arrays[name] = resize_patches(arrays[name], patch_size, method)
        semantics = dataclasses.replace(self.semantics, patch_size=None)
        return dataclasses.replace(self, arrays=arrays, semantics=semantics)

    @property
    def resnet_stages(self) -> tuple[int, ...] | None:
        """Units of each stage; () for a stem of one convolution, None without."""
        return released_names.count_units(self.arrays)


def read(
    path: str | os.PathLike,
    *,
    semantics: ViTConfig | None = None,
    num_heads: int | None = None,
) -> Checkpoint:
    """Reads a checkpoint of the released code, timm, transformers or keras-hub.

    Args:
        path: an `.npz`, `.safetensors` or keras-hub `.h5` file, known by its content,
            the index of several `.safetensors`, or a folder with one of
            `model.safetensors`, `model.safetensors.index.json`, `model.npz` and
            `model.weights.h5`; `zoo.locate` gives one from a URL or the hub. Settings
            are read from the files beside it that its library writes (`config.json`,
            ...).
        semantics: `ViTConfig`, in place of what the file, the settings beside it and
            the defaults of its library say; these hold where it is None. For one, the
            arrays of a plain DeiT do not say that they take ImageNet's mean and
            deviation: `ViTConfig(input_mean=..., input_std=...)`.
        num_heads: int, for files that neither state it nor have the papers' sizes.

    Returns:
        A `Checkpoint`, whose arrays stay in the file until they are used; every byte of
        an `.npz`, and of a `.safetensors` that `write` wrote, was compared with its
        CRC-32. The file is kept open, and must not be changed in place. float16 and
        bfloat16 arrays become float32; optimizer state, text towers and what only
        pre-training uses are left out.

    Raises:
        CheckpointError: a file of another kind, damaged, holding pickled objects, or
            with keys that are missing, unknown or of inconsistent shapes (all are
            listed); settings of another model; no number of heads.

    Source: the files in https://console.cloud.google.com/storage/browser/vit_models;
    `vision_transformer.py` of timm, `modeling_vit.py` of transformers and
    `vit_layers.py` of keras-hub.

    Example:
        >>> zoo.read("tests/goldens/dialect_opt_target.npz").classes
        10
    """
    file, wrappers = opening.unwrapped(opening.open_file(expand_home(path)))
    if wrappers:
        warnings.warn(
            f"{file.path} has {', '.join(map(repr, wrappers))} in its keys, which a "
            "trainer put there: left out.",
            stacklevel=2,
        )
    library = reading.recognise(file)
    if library is None:
        parts, stated = released.read(file)
    else:
        num_heads = num_heads or (semantics.num_heads if semantics else None)
        parts, stated = reading.read(file, library, num_heads)
    reading.refuse(file.path, wrong_dtypes(parts), library)
    if stated.warning and (semantics is None or semantics.activation is None):
        warnings.warn(stated.warning, stacklevel=2)
    semantics = (semantics or ViTConfig()).with_defaults(stated.config.semantics)
    return Checkpoint(
        file.path,
        StoredArrays(parts),
        stated.grid_size,
        semantics,
        stated.pooling,
        stated.head,
    )


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
    _check_name(path, naming, semantics)
    _check_problem(path, naming, head.problem_type)
    checkpoint = _whole(path, arrays, grid_size, semantics, pooling, head)
    # Without a head pooling is a choice of whoever builds the model.
    read = checkpoint.default_pooling, checkpoint.pooling
    if path.suffix == ".npz" and checkpoint.classes is not None and read[0] != read[1]:
        raise CheckpointError(
            f"Cannot write {path}: an .npz cannot say that its head reads {read[1]!r}, "
            f"and would be read as one of {read[0]!r}: write a .safetensors."
        )
    files = {}
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
        part = os.path.join(folder, path.name)
        if path.suffix == ".npz":
            height, width = checkpoint.grid_size or (1, 1)
            if height != width:
                stored[released_names.GRID_SIZE] = np.array([height, width], np.int32)
            np.savez(part, **stored)
        else:
            pooling = checkpoint.pooling
            if pooling == checkpoint.default_pooling:
                pooling = None
            stated = Description(
                checkpoint.config,
                checkpoint.grid_size,
                pooling,
                checkpoint.pooling_heads,
                head=checkpoint.head,
            )
            safetensors.write(part, stored, description.to_metadata(stated))
        for name, table in files.items():
            pathlib.Path(folder, name).write_text(json.dumps(table, indent=2))
        # The arrays last: what they say of themselves goes before the settings.
        for name in (*files, path.name):
            os.replace(os.path.join(folder, name), path.with_name(name))


def _check_name(path, naming, semantics):
    reason = ""
    # An .npz shows what its arrays show, and is resized as the released files are.
    plain = ViTConfig(**RELEASED, **FAMILIES)
    lost = semantics.with_defaults(plain).differences(plain)
    lost = {name: lost[name] for name in lost if name in _UNSEEN}
    if naming not in NAMINGS:
        reason = f"unknown naming {naming!r}, choose from {', '.join(NAMINGS)}"
    elif naming != "released" and path.name != opening.SAFETENSORS:
        reason = (
            f"the settings for {naming} go beside it, so its name must be "
            f"{opening.SAFETENSORS}, in a folder of its own"
        )
    elif path.suffix not in (".npz", ".safetensors"):
        reason = "its name must end in .npz or .safetensors"
    elif path.suffix == ".npz" and lost:
        values = ", ".join(f"{name}={value!r}" for name, (value, _) in lost.items())
        reason = (
            f"an .npz cannot say {values}, and would be read as one of the released "
            "models: write a .safetensors, or pass semantics=zoo.ViTConfig.released() "
            "for the released models' numbers"
        )
    if reason:
        raise CheckpointError(f"Cannot write {path}: {reason}.")


def _check_problem(path, naming, problem_type):
    """Refuses what neither a file nor a library can say of a head's outputs."""
    if problem_type in (None, ONE_CLASS):
        return
    if path.suffix == ".npz" or naming == "timm":
        what = "timm" if naming == "timm" else "an .npz"
        raise CheckpointError(
            f"Cannot write {path}: {what} cannot say problem_type={problem_type!r}, "
            "and the outputs would be read as one class of several: write a "
            '.safetensors in the naming "released" or "transformers".'
        )


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

"""Checkpoints of any library, read under the released names.

Every key of a file is accounted for, and nothing is ever unpickled.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import warnings
from typing import Any

from zoo.common.regular_files import expand_home
from zoo.common.safe_text import brief
from zoo.containers import opening
from zoo.containers.arrays import (
    CheckpointError,
    StoredArrays,
    wrong_dtypes,
)
from zoo.libraries import comparison, reading, released
from zoo.network import FAMILIES, POOLINGS, SIZES, ViTConfig, pair, released_names
from zoo.network.head import Head, checked_names
from zoo.network.position_embedding import relative_positions, resize_patches


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
        head: `zoo.network.head.Head`, what its outputs are called and mean, and how
            photos come to its size, as far as the source says it.
        name: str, that of a published model, None of others.

    Raises:
        CheckpointError: arrays missing, unknown or of inconsistent shapes.

    Example:
        >>> checkpoint = zoo.read("tests/goldens/token.npz")
        >>> checkpoint.hidden_size, checkpoint.num_layers, checkpoint.grid_size
        (48, 3, (4, 4))
    """

    path: str
    arrays: Any = dataclasses.field(repr=False)
    stored_grid: tuple[int, int] | None = None
    semantics: ViTConfig = ViTConfig()
    pooling: str | None = None
    head: Head = Head()
    name: str | None = None

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
        required = released_names.required(self.semantics)
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
        if released_names.QUERIES in self._features:
            return "queries"
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
        families = released_names.families(self.shapes)
        try:
            config = dataclasses.replace(self.semantics, **sizes, **families)
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
        """Returns the same without its head and the `pre_logits` before it.

        Of a network with queries that is its encoder, which has none.
        """
        kept = [name for name in self.arrays if not released_names.is_of_head(name)]
        # The maker of a new head knows what it answers.
        changes: dict[str, Any] = {"head": Head(preparation=self.head.preparation)}
        if self.config.num_queries:
            changes |= {"semantics": self.semantics.without_queries(), "pooling": None}
        return dataclasses.replace(self, arrays=self.arrays.only(kept), **changes)

    def without_queries(self) -> Checkpoint:
        """Returns the encoder of a network with queries, or what is without them."""
        return self.without_head() if self.config.num_queries else self

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

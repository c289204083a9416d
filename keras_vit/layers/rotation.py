"""Rotary positions: the angles by which queries and keys are turned."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.layers.base import Shape, Tensor
from keras_vit.layers.patch_grid import namespace_of
from keras_vit.layers.positions import AttentionPositions
from zoo.network import ROTARY_BASES, pair

# kind -> (the angles of columns come before those of rows, neighbouring numbers are
# turned and not those half a head apart).
_KINDS = {
    "eva": (False, True),
    "perception": (True, True),
    "axial": (True, True),
    "dinov3": (False, False),
}


def angles(
    kind: str,
    grid_size: Sequence,
    head_size: int,
    num_prefix_tokens: int = 0,
    reference: tuple[int, int] | None = None,
    base: float | None = None,
    xp: Any = np,
) -> Tensor:
    """Returns the angles by which the numbers of a head are turned.

    A float64 array or tensor (tokens, head_size), in the order of the numbers that they
    turn; tokens before those of the patches have the angle 0. Sides of the grid may be
    tensors of `xp`, the module of array functions, see `axis_weights` in
    `zoo.network.position_embedding`. Coordinates are stretched to the grid `reference`;
    `base` is that of the frequencies, by default the kind's.

    Source:
        Su et al., arXiv 2104.09864, section 3.2. `RotaryEmbeddingCat` of timm for
        EVA-02 (Fang et al., arXiv 2303.11331) and Perception Encoder (Bolya et al.,
        arXiv 2504.13181), and for RoPE-ViT's axial ones (Heo et al., arXiv
        2403.13298), `DINOv3ViTRopePositionEmbedding` of transformers for DINOv3.

    Example:
        >>> angles("eva", (2, 3), 8, num_prefix_tokens=1).shape
        (7, 8)
    """
    columns_first, neighbours = _KINDS[kind]
    base = ROTARY_BASES[kind] if base is None else base
    frequencies = base ** (-4.0 * np.arange(head_size // 4) / head_size)
    places = [xp.arange(side, dtype="float64") for side in grid_size]
    lengths = [xp.array(side, dtype="float64") for side in grid_size]
    if kind == "dinov3":
        # Centres of patches in [-1, 1].
        places = [
            2 * np.pi * (2 * (axis + 0.5) / length - 1)
            for axis, length in zip(places, lengths, strict=True)
        ]
    else:
        # With a class token Perception Encoder counts from one.
        first = 1 if kind == "perception" and num_prefix_tokens else 0
        sides = reference or lengths
        places = [
            (axis + first) * side / length
            for axis, side, length in zip(places, sides, lengths, strict=True)
        ]
    rows, columns = xp.meshgrid(*places, indexing="ij")
    order = (columns, rows) if columns_first else (rows, columns)
    both = [xp.reshape(axis, (-1, 1)) * frequencies for axis in order]
    half = xp.concatenate(both, axis=-1)
    whole = xp.repeat(half, 2, axis=-1) if neighbours else xp.tile(half, (1, 2))
    return xp.pad(whole, ((num_prefix_tokens, 0), (0, 0)))


def turns(*args: Any, xp: Any = np) -> tuple:
    """Returns the cosines and the sines of `angles`, which has these arguments."""
    values = angles(*args, xp=xp)
    return xp.cos(values), xp.sin(values)


@functools.lru_cache(maxsize=64)
def _known_turns(*args):
    """Returns `turns` as a float32 array (2, tokens, head_size), for all blocks."""
    return np.stack(turns(*args)).astype("float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class RotaryPositions(AttentionPositions):
    """Turns queries and keys by angles that their row and column give.

    Args:
        kind: `"dinov3"`, `"eva"`, `"axial"` or `"perception"`.
        grid_size: int or (rows, columns) of the grid of patches.
        num_registers: int, how many of the tokens before the patches are registers.
        stretched_to: None, or the (rows, columns) of the grid to which the coordinates
            are stretched, but for `"dinov3"`.
        base: None, or the base of their frequencies; by default that of the kind, 100
            of `"dinov3"` and `"axial"`, 10,000 of the others.
        num_prefix_tokens: None, or int: for images of any size, how many tokens come
            before the patches. Known from the tokens of others.

    Call arguments:
        None: it is the `positions` of `SelfAttention` or `TransformerBlock`.

    Returns:
        Nothing of its own.

    Raises:
        ValueError: an unknown kind, or a size of heads that is no multiple of 4; or the
            number of tokens is unknown, does not fit or changes.

    Source:
        See `keras_vit.layers.rotation.angles`.

    Example:
        >>> attention = SelfAttention(2, positions=RotaryPositions("eva", (2, 3)))
        >>> tuple(attention(keras.random.normal((2, 7, 24))).shape)
        (2, 7, 24)
    """

    def __init__(
        self,
        kind: str,
        grid_size: int | tuple[int, int],
        num_registers: int = 0,
        stretched_to: tuple[int, int] | None = None,
        base: float | None = None,
        num_prefix_tokens: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if kind not in _KINDS:
            raise ValueError(
                f"{self.name} knows the kinds {', '.join(_KINDS)}, got {kind!r}."
            )
        self.kind = kind
        self.grid_size = pair(grid_size, "grid_size")
        self.num_registers = num_registers
        self.stretched_to = None if stretched_to is None else tuple(stretched_to)
        self.base = None if base is None else self._positive("base", base)
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, heads_shape: Shape) -> None:
        self.head_size = heads_shape[-1]
        if self.head_size % 4:
            raise ValueError(
                f"{self.name} needs heads whose size is a multiple of 4, got "
                f"{self.head_size}: pass another num_heads."
            )
        self.find_places(heads_shape)

    def turns(self, grid: Tensor | None = None) -> Tensor:
        """Returns the cosines and the sines of all tokens, (2, tokens, head_size)."""
        # Without `at_grid`: TensorFlow computes once what all blocks compute alike, but
        # for what stands in branches.
        grid_size = self.grid_size if grid is None else ops.shape(grid)
        arguments = (
            self.kind,
            grid_size,
            self.head_size,
            self.num_prefix_tokens,
            self.stretched_to,
            self.base,
        )
        if namespace_of(*grid_size) is np:
            return ops.convert_to_tensor(_known_turns(*arguments))
        return ops.cast(ops.stack(turns(*arguments, xp=ops)), "float32")

    def turned(
        self, query: Tensor, key: Tensor, grid: Tensor | None, first_alone: bool
    ) -> tuple:
        both = self.turns(grid)
        of_query = both[:, :1] if first_alone else both
        return rotated(query, self.kind, of_query), rotated(key, self.kind, both)


def rotated(heads: Tensor, kind: str, turns: Tensor) -> Tensor:
    """Returns queries or keys turned by their tokens' angles.

    `heads` is a tensor (batch, tokens, num_heads, head_size), `turns` are those of
    these tokens.
    """
    _, neighbours = _KINDS[kind]
    # The partner of each number, with the sign that its sine has.
    if neighbours:
        shape = ops.shape(heads)
        pairs = ops.reshape(heads, (*shape[:-1], shape[-1] // 2, 2))
        partners = ops.stack([-pairs[..., 1], pairs[..., 0]], axis=-1)
        partners = ops.reshape(partners, shape)
    else:
        first, second = ops.split(heads, 2, axis=-1)
        partners = ops.concatenate([-second, first], axis=-1)
    turns = ops.cast(ops.convert_to_tensor(turns), heads.dtype)
    cosine, sine = turns[0][:, None], turns[1][:, None]
    return heads * cosine + partners * sine

"""Rotary positions: the angles by which queries and keys are turned."""

import math

import keras
import numpy as np
from keras import ops

from keras_vit.layers.base import Layer
from keras_vit.layers.patch_grid import at_grid, namespace_of
from zoo.network import ROTARY_BASES, pair

# Of each kind: whether the angles of columns come before those of rows, and whether
# neighbouring numbers are turned or those half a head apart.
_KINDS = {
    "eva": (False, True),
    "perception": (True, True),
    "axial": (True, True),
    "dinov3": (False, False),
}


def angles(
    kind,
    grid_size,
    head_size,
    num_prefix_tokens=0,
    reference=None,
    base=None,
    xp=np,
):
    """Returns the angles by which the numbers of a head are turned.

    Args:
        kind: `"eva"`, `"perception"`, `"axial"` or `"dinov3"`.
        grid_size: (rows, columns) of the patches, ints or tensors of one.
        head_size: int, a multiple of 4.
        num_prefix_tokens: int, the tokens before those of the patches, which have the
            angle 0.
        reference: None or (rows, columns): the grid to which coordinates are stretched.
        base: None or float, of the frequencies; by default that of the kind.
        xp: module of the functions of arrays that compute them, see `axis_weights` in
            `zoo.position_embedding`.

    Returns:
        float64 array or tensor (tokens, head_size), in the order of the numbers that
        they turn.

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
    found = xp.concatenate(both, axis=-1)
    found = xp.repeat(found, 2, axis=-1) if neighbours else xp.tile(found, (1, 2))
    return xp.pad(found, ((num_prefix_tokens, 0), (0, 0)))


def turns(*args, xp=np):
    """Returns the cosines and the sines of `angles`, which has these arguments."""
    found = angles(*args, xp=xp)
    return xp.cos(found), xp.sin(found)


@keras.saving.register_keras_serializable(package="keras_vit")
class RotaryPositions(Layer):
    """Computes the rotation of queries and keys for images of any size.

    Blocks for images of one size compute it when they are built; here all of a model
    share what is computed from the grid of the images.

    Args:
        kind: see `SelfAttention`'s `rotary`.
        grid_size: int or (rows, columns) of the grid of patches that the model is of.
        head_size: int, a multiple of 4.
        num_prefix_tokens: int, the tokens before those of the patches.
        rotary_grid: see `SelfAttention`.
        rotary_base: see `SelfAttention`.

    Call arguments:
        grid: what `PatchGrid` gives.

    Returns:
        float32 tensor (2, tokens, head_size), the cosines and the sines of angles.

    Raises:
        ValueError: an unknown kind, or a size of heads that is no multiple of 4.

    Source:
        See `keras_vit.layers.rotation.angles`.

    Example:
        >>> grid = PatchGrid(patch_size=16)(keras.ops.ones((2, 32, 48, 3)))
        >>> layer = RotaryPositions("eva", (4, 4), head_size=8, num_prefix_tokens=1)
        >>> tuple(layer(grid).shape)
        (2, 7, 8)
    """

    def __init__(
        self,
        kind,
        grid_size,
        head_size,
        num_prefix_tokens=0,
        rotary_grid=None,
        rotary_base=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if kind not in _KINDS or head_size % 4:
            raise ValueError(
                f"{self.name} knows the kinds {', '.join(_KINDS)} and heads whose size "
                f"is a multiple of 4, got {kind!r} and {head_size}: pass such ones."
            )
        self.kind = kind
        self.grid_size = pair(grid_size, "grid_size")
        self.head_size = head_size
        self.num_prefix_tokens = num_prefix_tokens
        self.rotary_grid = None if rotary_grid is None else tuple(rotary_grid)
        self.rotary_base = rotary_base
        if rotary_base is not None:
            self.rotary_base = self._positive("rotary_base", rotary_base)

    def call(self, grid):
        def at(*grid_size):
            both = turns(
                self.kind,
                grid_size,
                self.head_size,
                self.num_prefix_tokens,
                self.rotary_grid,
                self.rotary_base,
                xp=namespace_of(*grid_size),
            )
            both = [ops.convert_to_tensor(one, dtype="float32") for one in both]
            return ops.stack(both)

        return at_grid(grid, self.grid_size, lambda: at(*self.grid_size), at)

    def compute_output_spec(self, grid):
        tokens = None
        if None not in grid.shape:
            tokens = self.num_prefix_tokens + math.prod(grid.shape)
        return keras.KerasTensor((2, tokens, self.head_size), "float32")


def rotated(heads, kind, turns):
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
    cosine, sine = (
        ops.cast(ops.convert_to_tensor(values), heads.dtype)[:, None]
        for values in (turns[0], turns[1])
    )
    return heads * cosine + partners * sine

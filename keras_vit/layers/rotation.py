"""Rotary positions: the angles by which queries and keys are turned."""

import numpy as np
from keras import ops

# Of each kind: the base of the frequencies, whether the angles of columns come before
# those of rows, and whether neighbouring numbers are turned or those half a head apart.
_KINDS = {
    "eva": (10_000.0, False, True),
    "perception": (10_000.0, True, True),
    "dinov3": (100.0, False, False),
}


def angles(kind, grid_size, head_size, num_prefix_tokens=0, reference=None):
    """Returns the angles by which the numbers of a head are turned.

    Args:
        kind: `"eva"`, `"perception"` or `"dinov3"`.
        grid_size: (rows, columns) of the patches.
        head_size: int, a multiple of 4.
        num_prefix_tokens: int, the tokens before those of the patches, which have the
            angle 0.
        reference: None or (rows, columns): the grid to which coordinates are stretched.

    Returns:
        float64 array (tokens, head_size), in the order of the numbers that they turn.

    Source:
        Su et al., arXiv 2104.09864, section 3.2. `RotaryEmbeddingCat` of timm for
        EVA-02 (Fang et al., arXiv 2303.11331) and Perception Encoder (Bolya et al.,
        arXiv 2504.13181), `DINOv3ViTRopePositionEmbedding` of transformers for DINOv3.

    Example:
        >>> angles("eva", (2, 3), 8, num_prefix_tokens=1).shape
        (7, 8)
    """
    theta, columns_first, neighbours = _KINDS[kind]
    frequencies = theta ** (-4.0 * np.arange(head_size // 4) / head_size)
    places = [np.arange(side, dtype="float64") for side in grid_size]
    if kind == "dinov3":
        # Centres of patches in [-1, 1].
        places = [2 * np.pi * (2 * (axis + 0.5) / len(axis) - 1) for axis in places]
    else:
        # With a class token Perception Encoder counts from one.
        first = 1 if kind == "perception" and num_prefix_tokens else 0
        sides = reference or grid_size
        places = [
            (axis + first) * side / len(axis)
            for axis, side in zip(places, sides, strict=True)
        ]
    rows, columns = np.meshgrid(*places, indexing="ij")
    order = (columns, rows) if columns_first else (rows, columns)
    both = [axis.reshape(-1, 1) * frequencies for axis in order]
    found = np.concatenate(both, axis=-1)
    found = np.repeat(found, 2, axis=-1) if neighbours else np.tile(found, (1, 2))
    return np.pad(found, ((num_prefix_tokens, 0), (0, 0)))


def rotated(heads, kind, turns):
    """Returns queries or keys turned by their tokens' angles.

    `heads` is a tensor (batch, tokens, num_heads, head_size), `turns` are `angles` of
    these tokens or of more, of which the first count.
    """
    _, _, neighbours = _KINDS[kind]
    length = heads.shape[1]
    turns = turns[:length, None]
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
        ops.convert_to_tensor(values.astype("float32"), dtype=heads.dtype)
        for values in (np.cos(turns), np.sin(turns))
    )
    return heads * cosine + partners * sine

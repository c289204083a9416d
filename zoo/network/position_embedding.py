"""Resizing a position embedding to another grid of patches.

The released code samples the old grid linearly with its corners on the new grid's
corners, and without antialiasing (`interpolate_posembed` in
google-research/vision_transformer). The other methods put pixel centres at half
integers and widen their kernel when they shrink, as `tf.image.resize` does with
``antialias=True``; timm resizes so. Those without antialias are PyTorch's
`interpolate(..., antialias=False)`, which transformers uses for most of its models: its
cubic kernel is another, edges are repeated, and nothing widens.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def _triangle(x, xp):
    return xp.maximum(0.0, 1.0 - xp.abs(x))


def _cubic(x, xp, a):
    """Cubic convolution, with a = -1/2 that of Keys (1981)."""
    x = xp.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x**2 + 1.0
    far = ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    return xp.where(x < 1.0, near, xp.where(x < 2.0, far, 0.0))


def _lanczos3(x, xp):
    inside = _sinc(x, xp) * _sinc(x / 3.0, xp)
    return xp.where(xp.abs(x) < 3.0, inside, 0.0)


def _sinc(x, xp):
    x = np.pi * xp.where(x == 0.0, 1e-20, x)
    return xp.sin(x) / x


_KERNELS: dict[str, Callable] = {
    "bilinear": _triangle,
    "bicubic": functools.partial(_cubic, a=-0.5),
    "lanczos3": _lanczos3,
}
_WITHOUT_ANTIALIAS: dict[str, Callable] = {
    "bilinear_no_antialias": _triangle,
    "bicubic_no_antialias": functools.partial(_cubic, a=-0.75),
}
METHODS = ("released", *_KERNELS, *_WITHOUT_ANTIALIAS)
# How timm brings biases of offsets to another grid.
GEOMETRIC = "geometric"
RELATIVE_METHODS = (GEOMETRIC, *METHODS)


def resize(
    position_embedding: np.ndarray,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    method: str = "released",
    num_prefix_tokens: int | None = None,
) -> np.ndarray:
    """Resizes a position embedding from one grid of patches to another.

    Args:
        position_embedding: float array (1, T + old height * old width, hidden size);
            T leading rows are of tokens that are not patches, and are kept as they are.
        old_grid: (height, width) in patches.
        new_grid: (height, width) in patches.
        method: `"released"` for the numbers of the released code, or `"bilinear"`,
            `"bicubic"`, `"lanczos3"` for those of `tf.image.resize` with antialias, or
            `"bilinear_no_antialias"`, `"bicubic_no_antialias"` for those of PyTorch
            without it.
        num_prefix_tokens: int, T; by default 0 or 1, for a class token.

    Returns:
        An array (1, T + new height * new width, hidden size) of the same dtype,
        computed in float64; the argument itself if the grids are equal.

    Raises:
        ValueError: an unknown method, grids that are not two positive integers, or
            an array that does not fit the old grid.

    Source: ViT paper (https://arxiv.org/abs/2010.11929), section 3.2; the released
    `interpolate_posembed`, less its fault that leaves the last row and column of
    some grids at zero; `resample_abs_pos_embed` of timm (`"bicubic"`),
    `interpolate_pos_encoding` of transformers' models.

    Example:
        >>> import numpy as np
        >>> table = np.ones((1, 1 + 14 * 14, 192), "float32")
        >>> zoo.resize(table, (14, 14), (24, 16)).shape
        (1, 385, 192)
    """
    old_grid, new_grid = tuple(old_grid), tuple(new_grid)
    task = f"Resizing a position embedding from {old_grid} to {new_grid} patches"
    if method not in METHODS:
        raise ValueError(f"{task}: unknown method {method!r}, choose from {METHODS}.")
    for grid in (old_grid, new_grid):
        if len(grid) != 2 or any(int(n) != n or n < 1 for n in grid):
            raise ValueError(
                f"{task}: a grid is (height, width), both positive integers."
            )
    shape, dtype = position_embedding.shape, position_embedding.dtype
    patches = old_grid[0] * old_grid[1]
    tokens = shape[1] - patches if len(shape) == 3 and shape[0] == 1 else None
    prefixes = (0, 1) if num_prefix_tokens is None else (num_prefix_tokens,)
    if tokens not in prefixes:
        shapes = [f"(1, {patches + prefix}, hidden size)" for prefix in prefixes]
        raise ValueError(
            f"{task}: the old grid needs shape {' or '.join(shapes)}, of which the "
            f"rows of a class token are part, got {shape}. Pass the grid that the "
            "array was trained on as old_grid."
        )
    if dtype.kind != "f":
        raise ValueError(f"{task}: expected a float array, got {dtype}.")
    if old_grid == new_grid:
        return position_embedding

    rows, columns = (
        axis_weights(old, new, method)
        for old, new in zip(old_grid, new_grid, strict=True)
    )
    hidden_size = shape[2]
    table = np.empty((1, tokens + len(rows) * len(columns), hidden_size), dtype)
    table[:, :tokens] = position_embedding[:, :tokens]
    grid = position_embedding[0, tokens:].astype(np.float64)
    # (b, j) (i, j, d) -> (i, b, d); each new row is then a mean of few of the old.
    grid = columns @ grid.reshape(*old_grid, hidden_size)
    grid = grid.reshape(old_grid[0], -1)
    for new_row, weights in zip(
        table[0, tokens:].reshape(len(rows), -1), rows, strict=True
    ):
        used = weights.nonzero()[0]
        near = slice(used[0], used[-1] + 1)
        new_row[:] = weights[near] @ grid[near]
    return table


def relative_positions(grid_size: tuple[int, ...], num_prefix_tokens: int = 1) -> int:
    """Returns how many biases `RelativePositionBias` has for each head."""
    rows, columns = grid_size
    others = 3 if num_prefix_tokens else 0
    return (2 * rows - 1) * (2 * columns - 1) + others


def resize_relative(
    table: np.ndarray,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    method: str = GEOMETRIC,
) -> np.ndarray:
    """Resizes biases of the offsets between patches from one grid to another.

    `table` is a float array (R, heads) of `relative_positions` rows: those of the
    offsets, row by row, then three of a class token or none, which are kept.

    Its `method` is `"geometric"` for timm's rule, linear between old offsets that are
    put at steps which grow geometrically from the middle; or as in `resize`, of the
    offsets as if they were places: `"bilinear_no_antialias"` is transformers' rule. All
    else is as in `resize`.

    Source: `resize_rel_pos_bias_table` of timm, from BEiT's `run_class_finetuning.py`
    (Bao et al., arXiv 2106.08254); `BeitRelativePositionBias` of transformers.
    """
    old_grid, new_grid = tuple(old_grid), tuple(new_grid)
    task = f"Resizing relative positions from {old_grid} to {new_grid} patches"
    if method not in RELATIVE_METHODS:
        raise ValueError(
            f"{task}: unknown method {method!r}, choose from {RELATIVE_METHODS}."
        )
    expected = [relative_positions(old_grid, prefix) for prefix in (0, 1)]
    if table.ndim != 2 or len(table) not in expected:
        raise ValueError(
            f"{task}: the old grid needs shape ({expected[0]}, heads), or "
            f"({expected[1]}, heads) with a class token, got {table.shape}. Pass the "
            "grid that the array was trained on as old_grid."
        )
    if old_grid == new_grid:
        return table
    weights = (
        offset_weights(old, new, method)
        for old, new in zip(old_grid, new_grid, strict=True)
    )
    offsets = table[: expected[0]].astype("float64")
    offsets = offsets.reshape(*(2 * old - 1 for old in old_grid), -1)
    offsets = np.einsum("ia,jb,abh->ijh", *weights, offsets, optimize=True)
    offsets = offsets.reshape(-1, table.shape[1]).astype(table.dtype)
    return np.concatenate([offsets, table[expected[0] :]])


def offset_weights(old: int, new: Any, method: str, xp: Any = np) -> Any:
    """Returns the matrix that resamples one axis of the offsets between patches.

    It is a float64 array or tensor (2 * new - 1, 2 * old - 1); `method` is as in
    `resize_relative`, `new` and `xp` as in `axis_weights`.
    """
    lengths = 2 * old - 1, 2 * new - 1
    if method == GEOMETRIC:
        return _geometric_weights(*lengths, xp)
    return axis_weights(*lengths, method, xp)


def _geometric_weights(old, new, xp):
    """Returns the (new, old) matrix of one axis of offsets, both lengths odd."""
    half = old // 2
    new_half = (xp.array(new, dtype="float64") - 1.0) / 2.0
    # Bisection as in the source, whose numbers depend on where it stops: where the
    # ends are less than 1e-6 apart.
    low, high = xp.array(1.01, dtype="float64"), xp.array(1.5, dtype="float64")
    for _ in range(19):
        ratio = (low + high) / 2.0
        is_short = (1.0 - ratio**half) / (1.0 - ratio) <= new_half
        low, high = xp.where(is_short, ratio, low), xp.where(is_short, high, ratio)
    order = np.arange(-half, half + 1.0)
    places = np.sign(order) * (1.0 - ratio ** np.abs(order)) / (1.0 - ratio)
    # Beyond the last place its value holds.
    last = (1.0 - ratio**half) / (1.0 - ratio)
    wanted = xp.arange(new, dtype="float64") - new_half
    wanted = xp.minimum(xp.maximum(wanted, 0.0 - last), last)
    way = wanted[:, None] - places[None, :]
    # From each place to those before and behind it.
    before = ratio ** np.where(order > 0, order - 1, -order)
    behind = ratio ** np.where(order < 0, -order - 1, order)
    near = xp.minimum(1.0 + way / before, 1.0 - way / behind)
    return xp.maximum(near, 0.0)


def offset_places(grid_size: tuple, num_prefix_tokens: int, xp: Any = np) -> Any:
    """Returns which bias of offsets each pair of tokens has.

    `xp` is as in `axis_weights`, and `grid_size` has tensors where `xp` takes them.

    Returns:
        float64 array or tensor (queries, keys) of whole numbers, the rows in a table
        of biases, see `resize_relative`; the three others are those from a token before
        the patches to a patch, from a patch to such a token, and among such tokens.

    Example:
        >>> offset_places((1, 2), 1).tolist()
        [[5.0, 3.0, 3.0], [4.0, 1.0, 0.0], [4.0, 2.0, 1.0]]
    """
    rows, columns = (xp.array(side, dtype="float64") for side in grid_size)
    places = [xp.arange(side, dtype="float64") for side in grid_size]
    vertical, horizontal = (
        xp.reshape(axis, (-1,)) for axis in xp.meshgrid(*places, indexing="ij")
    )
    order = vertical * (2.0 * columns - 1.0) + horizontal
    middle = (rows - 1.0) * (2.0 * columns - 1.0) + columns - 1.0
    places_of_pairs = order[:, None] - order[None, :] + middle
    if not num_prefix_tokens:
        return places_of_pairs
    is_patch = xp.pad(0.0 * order + 1.0, ((num_prefix_tokens, 0),))
    query, key = is_patch[:, None], is_patch[None, :]
    others = (2.0 * rows - 1.0) * (2.0 * columns - 1.0)
    places_of_pairs = xp.pad(
        places_of_pairs, ((num_prefix_tokens, 0), (num_prefix_tokens, 0))
    )
    return (
        places_of_pairs
        + (1.0 - query * key) * others
        + query * (1.0 - key)
        + 2.0 * (1.0 - query) * (1.0 - key)
    )


def resize_patches(
    kernel: np.ndarray, new_size: tuple[int, int], method: str
) -> np.ndarray:
    """Returns a patch embedding's kernel for patches of another size.

    An image resized by `method`, as in `resize`, gives the same tokens with the new
    kernel as before with the old one, as nearly as can be (least squares). Kernels are
    (height, width, channels, hidden size).

    Source: FlexiViT (https://arxiv.org/abs/2212.08013), section 3.4;
    `resample_patch_embed` of timm.
    """
    old_size = kernel.shape[:2]
    matrices = [
        np.linalg.pinv(axis_weights(old, new, method).T)
        for old, new in zip(old_size, new_size, strict=True)
    ]
    resized = np.einsum(
        "ia,jb,abcd->ijcd", *matrices, kernel.astype("float64"), optimize=True
    )
    return resized.astype(kernel.dtype)


def axis_weights(old: int, new: Any, method: str, xp: Any = np) -> Any:
    """Returns the matrix that resamples one axis: a grid's rows, then its columns.

    Args:
        old: places on the axis.
        new: places on the new axis; a tensor of one where `xp` takes that.
        method: as in `resize`.
        xp: module of the functions of arrays that compute it: `numpy`, or
            `keras.ops` where the new length is known only in a graph.

    Returns:
        float64 array or tensor (new, old).
    """
    source, places = np.arange(old, dtype="float64"), xp.arange(new, dtype="float64")
    new = xp.array(new, dtype="float64")
    if method == "released":
        # A single sample is the first one, as scipy.ndimage.zoom takes it.
        position = places * ((old - 1) / xp.maximum(new - 1, 1.0))
        return _triangle(position[:, None] - source, xp)
    position = (places + 0.5) * (old / new) - 0.5
    if method in _WITHOUT_ANTIALIAS:
        # Two places beyond each edge have the value of the edge.
        padded = np.arange(-2, old + 2, dtype="float64")
        weights = _WITHOUT_ANTIALIAS[method](position[:, None] - padded, xp)
        before = weights[:, :1] + weights[:, 1:2]
        behind = weights[:, -2:-1] + weights[:, -1:]
        before = xp.pad(before, ((0, 0), (0, old - 1)))
        behind = xp.pad(behind, ((0, 0), (old - 1, 0)))
        return weights[:, 2:-2] + before + behind
    # Shrinking stretches the kernel over every pixel that it replaces.
    stretch = xp.maximum(old / new, 1.0)
    weights = _KERNELS[method]((position[:, None] - source) / stretch, xp)
    return weights / xp.sum(weights, axis=1, keepdims=True)

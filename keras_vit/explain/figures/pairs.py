"""Photos beside pictures of what a model attends to, or of its features."""

import math

import numpy as np

from keras_vit.explain.figures.canvas import (
    SMALL,
    check_array,
    check_count,
    new_figure,
    tile_axes,
    wrapped,
)
from keras_vit.explain.figures.photos import as_photo, check_maps, relative, stretch

PAIRS_A_ROW = 3
# The width of a pair in inches.
PAIR = 4.2


def draw_attention(images, maps, titles, title):
    """Draws photos beside what the model attends to in them, as the paper's Figure 6.

    The second photo is the first times its map, which is divided by its maximum and
    stretched over the photo smoothly: pixels without attention are black.

    Args:
        images: sequence of arrays (height, width, 1 or 3), uint8 or float in [-1, 1];
            they may differ in size.
        maps: sequence of float arrays (rows, columns), one per image: attention to each
            patch, such as the rollout's of `patch_map`.
        titles: sequence of str, what stands below each pair.
        title: str, what stands above: the model and what is shown of it.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: there are no images, not as many maps or titles, or one of another
            shape; or maps hold a negative number, NaN or infinity.

    Source:
        Figure 6 and Appendix D.7 of https://arxiv.org/abs/2010.11929.

    Example:

    >>> images = np.random.randint(0, 256, (2, 64, 64, 3), "uint8")
    >>> maps = np.random.random((2, 4, 4))
    >>> figure = draw_attention(images, maps, ["cat", "dog"], "ViT-B/16, rollout")
    >>> figure.savefig("attention.pdf")
    """
    check_count(len(images), maps, "maps", "images")
    photos, pictures = [as_photo(image) for image in images], []
    for photo, grid in zip(photos, maps, strict=True):
        grid = relative(check_maps(grid, "A map", "rows, columns"))
        pictures.append(photo * stretch(grid, *photo.shape[:2])[..., None])
    return _draw_pairs(photos, pictures, ("Input", "Attention"), titles, title)


def draw_features(images, colors, titles, title):
    """Draws photos beside the colours of their patches.

    Args:
        images: sequence of arrays (height, width, 1 or 3), uint8 or float in [-1, 1];
            they may differ in size.
        colors: float array (images, rows, columns, 3) in [0, 1], such as
            `principal_colors` returns: like colours, like features.
        titles: sequence of str, what stands below each pair.
        title: str, what stands above: the model and the layer.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: there are no images, not as many colours or titles, or one of
            another shape or range.

    Source:
        Figure 1 of https://arxiv.org/abs/2304.07193 shows patch features so.

    Example:

    >>> images = np.random.randint(0, 256, (2, 64, 64, 3), "uint8")
    >>> colors = np.random.random((2, 4, 4, 3))
    >>> figure = draw_features(images, colors, ["cat", "dog"], "ViT-B/16, layer 12")
    >>> figure.savefig("features.pdf")
    """
    colors = check_array(colors, "Colours", "images, rows, columns, 3")
    if colors.shape[3] != 3 or colors.min() < 0 or colors.max() > 1:
        raise ValueError(
            "Colours must be three numbers in [0, 1] per patch, got shape "
            f"{colors.shape} and values from {colors.min():g} to {colors.max():g}: "
            "pass what principal_colors returns."
        )
    check_count(len(images), colors, "Colours", "images")
    photos = [as_photo(image) for image in images]
    return _draw_pairs(photos, colors, ("Input", "Patch features"), titles, title)


def _draw_pairs(photos, pictures, headings, titles, title):
    check_count(len(photos), titles, "titles", "images")
    if not photos:
        raise ValueError("There is no image to draw: pass one or more.")
    rows = math.ceil(len(photos) / PAIRS_A_ROW)
    columns = math.ceil(len(photos) / rows)
    mean_height = np.mean([2 * len(photo) / photo.shape[1] for photo in photos])
    size = PAIR * columns, (mean_height + 0.35) * rows + 0.7
    figure = new_figure(*size, title, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12)
    cells = tile_axes(figure, len(photos), rows, columns)
    for place, (cell, photo, picture, name) in enumerate(
        zip(cells, photos, pictures, titles, strict=True)
    ):
        cell.set_axis_on()
        height, width = photo.shape[:2]
        right = width + math.ceil(width / 60)
        cell.imshow(photo, extent=(0, width, height, 0))
        cell.imshow(
            picture, extent=(right, right + width, height, 0), interpolation="nearest"
        )
        cell.set_xlim(0, right + width)
        cell.spines[:].set_visible(False)
        cell.set_anchor("N")
        cell.set_yticks([])
        middles = [width / 2, right + width / 2] if place < columns else []
        cell.set_xticks(middles, headings[: len(middles)], fontsize=10)
        cell.tick_params(length=0, labeltop=True, labelbottom=False)
        caption = wrapped(name, PAIR - 0.4, SMALL + 1)
        cell.set_xlabel(caption, fontsize=SMALL + 1, parse_math=False)
    return figure

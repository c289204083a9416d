"""Photos beside what a model attends to in them, and heat maps over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.explain.figures import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

PAIRS_A_ROW = 3
# The width of a pair, and of the photo beside the heads, in inches.
PAIR, PHOTO = 4.2, 1.4
# Perceptually uniform, lighter step by step also for the colour-blind, and saturated
# from blue to yellow: neither end can be taken for the black, grey or white of a photo.
COLORS = "plasma"
# The opacity of a map's maximum over its photo.
OPACITY = 0.8
# The width of a colour bar beside pairs, in inches.
BAR = 1.0


def draw_attention(
    images: Sequence[np.ndarray] | np.ndarray,
    maps: Sequence[np.ndarray] | np.ndarray,
    titles: Sequence[str],
    title: str,
) -> Figure:
    """Draws photos beside what the model attends to in them, as the paper's Figure 6.

    The second photo is the first under its map, which is divided by its maximum and
    stretched over the photo smoothly. Colours are those of `draw_overlay`: where there
    is no attention, the photo is as it is.

    Args:
        images: sequence of arrays (height, width, 1 or 3), uint8 or float in [-1, 1];
            they may differ in size.
        maps: sequence of float arrays (rows, columns), one per image: attention to each
            patch, such as the rollout's of `patch_map`.
        titles: sequence of str, the caption below each pair.
        title: str, the title of the figure: the model and what is shown of it.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: an image or a map has another shape, type or range; their numbers
            differ; or there is none.

    Source:
        Figure 6 and Appendix D.7 of https://arxiv.org/abs/2010.11929.

    Example:
        >>> images = np.random.randint(0, 256, (2, 64, 64, 3), "uint8")
        >>> maps = np.random.random((2, 4, 4))
        >>> figure = draw_attention(images, maps, ["cat", "dog"], "ViT-B/16, rollout")
    """
    canvas.check_count(len(images), maps, "maps", "images")
    maps = [relative(_check_maps(grid, "A map", "rows, columns")) for grid in maps]
    figure, shown = _draw_pairs(
        images, maps, "Attention", titles, title, _show_heat, room=BAR
    )
    canvas.add_color_bar(figure, figure.axes, shown, "Share of the\nmap's maximum")
    return figure


def draw_features(
    images: Sequence[np.ndarray] | np.ndarray,
    colors: np.ndarray,
    titles: Sequence[str],
    title: str,
) -> Figure:
    """Draws photos beside the colours of their patches.

    Args:
        images: as in `draw_attention`.
        colors: float array (images, rows, columns, 3) in [0, 1], such as
            `principal_colors` returns: similar colours, similar features.
        titles: as in `draw_attention`.
        title: as in `draw_attention`.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: an argument has another shape, type or range; the numbers of images
            and of colours differ; or there is none.

    Source:
        Figure 1 of https://arxiv.org/abs/2304.07193 shows patch features so.

    Example:
        >>> images = np.random.randint(0, 256, (2, 64, 64, 3), "uint8")
        >>> colors = np.random.random((2, 4, 4, 3))
        >>> figure = draw_features(images, colors, ["cat", "dog"], "ViT-B/16, layer 12")
    """
    colors = canvas.check_array(colors, "Colours", "images, rows, columns, 3")
    if colors.shape[3] != 3 or colors.min() < 0 or colors.max() > 1:
        raise ValueError(
            "Colours must be three numbers in [0, 1] per patch, got shape "
            f"{colors.shape} and values from {colors.min():g} to {colors.max():g}: "
            "pass what principal_colors returns."
        )
    canvas.check_count(len(images), colors, "Colours", "images")

    def show(cell: Axes, photo: Any, picture: Any, extent: tuple) -> AxesImage:
        return cell.imshow(picture, extent=extent, interpolation="nearest")

    return _draw_pairs(images, colors, "Patch features", titles, title, show)[0]


def _draw_pairs(images, pictures, heading, titles, title, show, room=0):
    """Returns a figure of photos, each beside its picture, and the last AxesImage."""
    photos = [as_photo(image) for image in images]
    canvas.check_count(len(photos), titles, "titles", "images")
    if not photos:
        raise ValueError("There is no image to draw: pass one or more.")
    rows = math.ceil(len(photos) / PAIRS_A_ROW)
    columns = math.ceil(len(photos) / rows)
    mean_height = np.mean([2 * len(photo) / photo.shape[1] for photo in photos])
    size = PAIR * columns + room, (mean_height + 0.35) * rows + 0.7
    figure = canvas.new_figure(*size, title, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12)
    cells = canvas.tile_axes(figure, len(photos), rows, columns)
    for place, (cell, photo, picture, name) in enumerate(
        zip(cells, photos, pictures, titles, strict=True)
    ):
        cell.set_axis_on()
        height, width = photo.shape[:2]
        right = width + math.ceil(width / 60)
        cell.imshow(photo, extent=(0, width, height, 0))
        shown = show(cell, photo, picture, (right, right + width, height, 0))
        cell.set_xlim(0, right + width)
        cell.spines[:].set_visible(False)
        cell.set_anchor("N")
        cell.set_yticks([])
        middles = [width / 2, right + width / 2] if place < columns else []
        headings = ("Input", heading)[: len(middles)]
        cell.set_xticks(middles, headings, fontsize=10)
        cell.tick_params(length=0, labeltop=True, labelbottom=False)
        caption = canvas.wrap(name, PAIR - 0.4, canvas.SMALL + 1)
        cell.set_xlabel(caption, fontsize=canvas.SMALL + 1, parse_math=False)
    return figure, shown


def draw_overlay(image: np.ndarray, map: np.ndarray, title: str, label: str) -> Figure:
    """Draws a photo, and a heat map over it.

    The map's colours are those of plasma, which is perceptually uniform and as clear
    to the colour-blind. They are the more transparent the lower the value: at zero the
    photo is as it is. The bar shows them as they are over mid-grey.

    Args:
        image: array (height, width, 1 or 3), uint8 or float in [-1, 1].
        map: float array (rows, columns), one number per patch, not negative.
        title: str, the title of the figure: the model and the layer.
        label: str, the quantity and unit of the map, beside the colour bar, which goes
            from 0 to the map's maximum.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: an argument has another shape, type or range.

    Source:
        https://matplotlib.org/stable/users/explain/colors/colormaps.html on plasma.

    Example:
        >>> image = np.random.randint(0, 256, (64, 64, 3), "uint8")
        >>> relevance = np.random.random((4, 4))
        >>> figure = draw_overlay(image, relevance, "ViT-B/16, cat", "Relevance")
    """
    photo = as_photo(image)
    heat = _check_maps(map, "map", "rows, columns")
    height = 3.6 * len(photo) / photo.shape[1]
    figure = canvas.new_figure(8.4, height + 0.7, title)
    left, right = canvas.tile_axes(figure, 2, 1, 2)
    left.imshow(photo)
    shown = _show_heat(right, photo, heat, largest=heat.max())
    canvas.add_color_bar(figure, right, shown, label)
    return figure


def draw_layers(image: np.ndarray, maps: np.ndarray, title: str) -> Figure:
    """Draws a photo, and the heat map of every layer over it.

    Each map is divided by its own maximum, so that early layers, whose attention is
    spread thin, show as much as late ones: compare places, not strengths. Colours are
    those of `draw_overlay`.

    Args:
        image: as in `draw_overlay`.
        maps: float array (layers, rows, columns), not negative.
        title: as in `draw_overlay`.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: an argument has another shape, type or range, or there is no layer.

    Source:
        Section 4.5 of https://arxiv.org/abs/2010.11929: attention by layer.

    Example:
        >>> image = np.random.randint(0, 256, (64, 64, 3), "uint8")
        >>> maps = np.random.random((12, 4, 4))
        >>> figure = draw_layers(image, maps, "ViT-B/16, attention")
    """
    photo = as_photo(image)
    maps = relative(_check_maps(maps, "maps", "layers, rows, columns"))
    rows, columns = canvas.grid_shape(len(maps) + 1)
    height = 1.7 * len(photo) / photo.shape[1] + 0.25
    figure = canvas.new_figure(1.8 * columns + 0.8, height * rows + 0.7, title)
    first, *cells = axes = canvas.tile_axes(figure, len(maps) + 1, rows, columns)
    first.imshow(photo)
    first.set_title("Input", fontsize=canvas.SMALL + 1)
    for number, (cell, heat) in enumerate(zip(cells, maps, strict=True), start=1):
        shown = _show_heat(cell, photo, heat)
        cell.set_title(f"Layer {number}", fontsize=canvas.SMALL + 1)
    canvas.add_color_bar(figure, axes, shown, "Share of the\nlayer's maximum")
    return figure


def _show_heat(axes, photo, heat, extent=None, largest=1):
    """Shows a map over its photo, transparent at zero; returns its AxesImage."""
    axes.imshow(photo, extent=extent)
    stretched = stretch(heat, *photo.shape[:2])
    style = {"cmap": heat_colors(), "vmin": 0, "vmax": largest or 1}
    return axes.imshow(stretched, **style, extent=extent)


def heat_colors() -> ListedColormap:
    """Returns the colour map of maps over photos, 256 colours, the first clear."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    levels = np.linspace(0, 1, 256)
    colors = matplotlib.colormaps[COLORS](levels)
    colors[:, 3] = OPACITY * levels
    return ListedColormap(colors)


def draw_heads(image: np.ndarray, maps: np.ndarray, title: str) -> Figure:
    """Draws the map of every head of every layer, layers in rows, heads in columns.

    Patches are drawn as they are. Each map is divided by its own maximum: compare
    places, not strengths.

    Args:
        image: as in `draw_overlay`.
        maps: float array (layers, heads, rows, columns), not negative.
        title: as in `draw_overlay`.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: an argument has another shape, type or range, or there is no head.

    Source:
        Section 4.5 of https://arxiv.org/abs/2010.11929: some heads attend to most of
        the image already in the lowest layers, others stay local.

    Example:
        >>> image = np.random.randint(0, 256, (64, 64, 3), "uint8")
        >>> maps = np.random.random((12, 3, 4, 4))
        >>> figure = draw_heads(image, maps, "ViT-Ti/16, attention of the class token")
    """
    photo = as_photo(image)
    maps = relative(_check_maps(maps, "maps", "layers, heads, rows, columns"))
    layers, heads, rows, columns = maps.shape
    aspect = len(photo) / photo.shape[1]
    tile = min(0.9, 12 / heads, 11 / (layers * aspect))
    width, height = tile * heads, tile * aspect * layers
    size = width + 3.2, max(height, PHOTO * aspect) + 0.9
    figure = canvas.new_figure(*size, title, layout="constrained")
    corner, axes = figure.subplots(1, 2, width_ratios=(PHOTO, width))
    shown = canvas.show_mosaic(
        axes, maps, cmap=COLORS, vmin=0, vmax=1, aspect=aspect * columns / rows
    )
    axes.set(xlabel="Head", ylabel="Layer")
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0, labelsize=canvas.SMALL)
    canvas.add_color_bar(figure, axes, shown, "Share of the\nmap's maximum")
    corner.imshow(photo)
    corner.set_anchor("NE")
    corner.set_axis_off()
    return figure


def as_photo(image: np.ndarray) -> np.ndarray:
    """Returns an image (height, width, 1 or 3) as float32 RGB in [0, 1]."""
    image = np.asarray(image)
    if image.ndim != 3 or image.shape[2] not in (1, 3) or not image.size:
        raise ValueError(
            f"An image must be of shape (height, width, 1 or 3), got {image.shape}: "
            "pass images one by one, and of other channels those to be shown."
        )
    if image.dtype == np.uint8:
        photo = image.astype("float32") / 255
    elif image.dtype.kind != "f":
        raise ValueError(
            f"An image must be uint8, or float in [-1, 1], got {image.dtype}: pass it "
            "as the model takes it."
        )
    # Resizing with a bicubic or Lanczos kernel overshoots the range a little.
    elif not np.abs(image).max() <= 2:
        raise ValueError(
            f"A float image must be in [-1, 1], got values from {image.min():g} to "
            f"{image.max():g}: pass it through keras_vit.preprocess_input."
        )
    else:
        photo = (np.clip(image.astype("float32"), -1, 1) + 1) / 2
    return np.broadcast_to(photo, (*photo.shape[:2], 3))


def _check_maps(maps, name, dimensions):
    maps = canvas.check_array(maps, name, dimensions)
    if maps.min() < 0:
        raise ValueError(
            f"{name} must not be negative, got {maps.min():g}: attention and relevance "
            "are not; take the positive part of what has a sign."
        )
    return maps


def relative(maps: np.ndarray) -> np.ndarray:
    """Returns maps (..., rows, columns) divided by the maximum of each, if not 0."""
    largest = maps.max(axis=(-2, -1), keepdims=True)
    return maps / np.where(largest > 0, largest, 1)


def stretch(grid: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns a grid (rows, columns) for every pixel, bilinear between the patches."""
    # matplotlib, which draws the result, needs Pillow.
    from PIL import Image

    image = Image.fromarray(np.asarray(grid, "float32"))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))

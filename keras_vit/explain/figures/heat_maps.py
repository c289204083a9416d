"""Heat maps: over a photo, of every layer, of every head."""

import numpy as np

from keras_vit.explain.figures.canvas import (
    SMALL,
    add_color_bar,
    grid_shape,
    new_figure,
    show_mosaic,
    tile_axes,
)
from keras_vit.explain.figures.photos import (
    as_grey,
    as_photo,
    check_maps,
    relative,
    stretch,
)

# Perceptually uniform, lighter step by step also for the colour-blind, and saturated
# from blue to yellow: neither end can be taken for the black, grey or white of a photo.
COLORS = "plasma"
# The width of the photo beside the heads in inches.
PHOTO = 1.4


def draw_overlay(image, map, title, label):
    """Draws a photo, and a heat map over it.

    The photo below the map is grey, so that all colour is the map's: plasma, which
    is perceptually uniform and as clear to the colour-blind. Zero has no colour. The
    bar shows the colours as they are over mid-grey.

    Args:
        image: array (height, width, 1 or 3), uint8 or float in [-1, 1].
        map: float array (rows, columns), one number per patch, not negative.
        title: str, what stands above: the model and the layer.
        label: str, what the map's numbers are; it stands at the colour bar, which has
            them from 0 to their maximum.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: an argument is of another shape, type or range.

    Source:
        https://matplotlib.org/stable/users/explain/colors/colormaps.html on plasma.

    Example:

    >>> image = np.random.randint(0, 256, (64, 64, 3), "uint8")
    >>> relevance = np.random.random((4, 4))
    >>> figure = draw_overlay(image, relevance, "ViT-B/16, cat", "Relevance")
    >>> figure.savefig("overlay.png", dpi=150)
    """
    photo = as_photo(image)
    heat = check_maps(map, "map", "rows, columns")
    height = 3.6 * len(photo) / photo.shape[1]
    figure = new_figure(8.4, height + 0.7, title)
    left, right = tile_axes(figure, 2, 1, 2)
    left.imshow(photo)
    shown = _show_heat(right, photo, heat, heat.max())
    add_color_bar(figure, right, shown, label)
    return figure


def draw_layers(image, maps, title):
    """Draws a photo, and the heat map of every layer over it.

    Each map is divided by its own maximum, so that early layers, whose attention is
    spread thin, show as much as late ones: compare places, not strengths. Colours are
    those of `draw_overlay`.

    Args:
        image: array (height, width, 1 or 3), uint8 or float in [-1, 1].
        maps: float array (layers, rows, columns), not negative.
        title: str, what stands above: the model and what the maps are.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: an argument is of another shape, type or range.

    Source:
        Section 4.5 of https://arxiv.org/abs/2010.11929: attention by layer.

    Example:

    >>> image = np.random.randint(0, 256, (64, 64, 3), "uint8")
    >>> figure = draw_layers(image, np.random.random((12, 4, 4)), "ViT-B/16, attention")
    >>> figure.savefig("layers.png", dpi=150)
    """
    photo = as_photo(image)
    maps = relative(check_maps(maps, "maps", "layers, rows, columns"))
    rows, columns = grid_shape(len(maps) + 1)
    height = 1.7 * len(photo) / photo.shape[1] + 0.25
    figure = new_figure(1.8 * columns + 0.8, height * rows + 0.7, title)
    first, *cells = tile_axes(figure, len(maps) + 1, rows, columns)
    first.imshow(photo)
    first.set_title("Input", fontsize=SMALL + 1)
    for number, (cell, heat) in enumerate(zip(cells, maps, strict=True), start=1):
        shown = _show_heat(cell, photo, heat, 1)
        cell.set_title(f"Layer {number}", fontsize=SMALL + 1)
    everything = [first, *cells]
    add_color_bar(figure, everything, shown, "Share of the\nlayer's maximum")
    return figure


def _show_heat(axes, photo, heat, largest):
    """Shows a map over the grey photo, and returns its AxesImage."""
    axes.imshow(as_grey(photo))
    return axes.imshow(
        stretch(heat, *photo.shape[:2]),
        cmap=_clear_at_zero(),
        vmin=0,
        vmax=largest or 1,
    )


def _clear_at_zero():
    """Returns the colour map, transparent at zero and less so the higher."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    levels = np.linspace(0, 1, 256)
    colors = matplotlib.colormaps[COLORS](levels)
    colors[:, 3] = 0.75 * np.sqrt(levels)
    return ListedColormap(colors)


def draw_heads(image, maps, title):
    """Draws the map of every head of every layer, layers in rows, heads in columns.

    Patches are drawn as they are. Each map is divided by its own maximum: compare
    places, not strengths.

    Args:
        image: array (height, width, 1 or 3), uint8 or float in [-1, 1].
        maps: float array (layers, heads, rows, columns), not negative.
        title: str, what stands above: the model and what the maps are.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: an argument is of another shape, type or range.

    Source:
        Section 4.5 of https://arxiv.org/abs/2010.11929: some heads attend to most of
        the image already in the lowest layers, others stay local.

    Example:

    >>> image = np.random.randint(0, 256, (64, 64, 3), "uint8")
    >>> maps = np.random.random((12, 3, 4, 4))
    >>> figure = draw_heads(image, maps, "ViT-Ti/16, attention of the class token")
    >>> figure.savefig("heads.png", dpi=150)
    """
    photo = as_photo(image)
    maps = relative(check_maps(maps, "maps", "layers, heads, rows, columns"))
    layers, heads, rows, columns = maps.shape
    aspect = len(photo) / photo.shape[1]
    tile = min(0.9, 12 / heads, 11 / (layers * aspect))
    width, height = tile * heads, tile * aspect * layers
    size = width + 3.2, max(height, PHOTO * aspect) + 0.9
    figure = new_figure(*size, title, layout="constrained")
    corner, axes = figure.subplots(1, 2, width_ratios=(PHOTO, width))
    shown = show_mosaic(
        axes, maps, cmap=COLORS, vmin=0, vmax=1, aspect=aspect * columns / rows
    )
    axes.set(xlabel="Head", ylabel="Layer")
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0, labelsize=SMALL)
    add_color_bar(figure, axes, shown, "Share of the\nmap's maximum")
    corner.imshow(photo)
    corner.set_anchor("NE")
    corner.set_axis_off()
    return figure

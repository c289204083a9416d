"""Parts of all figures: titles, grids of tiles, colour bars, checks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sized
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase
    from matplotlib.image import AxesImage

# Sizes of text: of ticks and tiles' titles, and where there are many.
SMALL, TINY = 8, 6
# The narrowest figure in inches, for the title's sake.
NARROWEST = 4.5
# The width of a letter of the usual font, of its size.
_LETTER = 0.6


def new_figure(
    width: float,
    height: float,
    title: str,
    layout: Literal["compressed", "constrained"] = "compressed",
) -> Figure:
    """Returns an empty Figure of width x height inches under `title`.

    `layout` is matplotlib's: "compressed" for pictures of one size, "constrained" for
    pictures of several sizes, and figures in parts.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "The figures of keras_vit.explain are drawn by matplotlib, which is not "
            "installed: pip install matplotlib."
        ) from error

    width = max(width, NARROWEST)
    figure = Figure(figsize=(width, height), layout=layout, facecolor="white")
    # A name without blanks would be broken anywhere.
    longest = max(map(len, title.split()), default=1)
    points = max(8, min(12, int(width * 72 / (_LETTER * longest))))
    figure.suptitle(wrap(title, width, points), fontsize=points, parse_math=False)
    return figure


def wrap(text: str, inches: float, points: float) -> str:
    """Breaks lines wider than so many inches in letters of so many points.

    matplotlib's own `wrap=True` reads what stands between dollars as mathematics.
    """
    letters = int(inches * 72 / (_LETTER * points))
    lines = [
        textwrap.fill(line, letters, break_on_hyphens=False)
        for line in text.split("\n")
    ]
    return "\n".join(lines)


def grid_shape(count: int) -> tuple[int, int]:
    """Returns (rows, columns) for `count` tiles, in the paper's proportion of 4 x 7."""
    rows = max(1, round(math.sqrt(count * 4 / 7)))
    return rows, math.ceil(count / rows)


def tile_axes(figure: FigureBase, count: int, rows: int, columns: int) -> np.ndarray:
    """Returns axes without frame for `count` tiles, left to right, row by row."""
    cells = figure.subplots(rows, columns, squeeze=False).ravel()
    for cell in cells:
        cell.set_axis_off()
    return cells[:count]


def check_array(array: Any, name: str, dimensions: str) -> np.ndarray:
    """Returns `array`, of dimensions such as "rows, columns", as finite float32."""
    array = np.asarray(array, "float32")
    if array.ndim != dimensions.count(",") + 1 or not array.size:
        raise ValueError(
            f"{name} must be of shape ({dimensions}) and not empty, got {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} hold NaN or infinity: look for the image or weights that they "
            "come from."
        )
    return array


def check_count(count: int, things: Sized, name: str, counted: str) -> None:
    """Raises ValueError unless `things` are as many as what is `counted`."""
    if len(things) != count:
        raise ValueError(
            f"{name} must be as many as the {counted}, {count}, got {len(things)}."
        )


def show_mosaic(axes: Axes, tiles: np.ndarray, **style: Any) -> AxesImage:
    """Shows tiles (tile rows, tile columns, rows, columns) as one image, numbered.

    One image is drawn in a moment where an axes for each of 576 tiles takes minutes.
    Its array is NaN in the gaps. `style` goes to `Axes.imshow`.
    """
    tile_rows, tile_columns, rows, columns = tiles.shape
    gap = math.ceil(max(rows, columns) / 14)
    padded = np.pad(tiles, [(0, 0), (0, 0), (0, gap), (0, gap)], constant_values=np.nan)
    mosaic = padded.transpose(0, 2, 1, 3).reshape(
        tile_rows * (rows + gap), tile_columns * (columns + gap)
    )
    image = axes.imshow(mosaic[:-gap, :-gap], **style)
    for set_ticks, count, side in (
        (axes.set_xticks, tile_columns, columns),
        (axes.set_yticks, tile_rows, rows),
    ):
        # The middles of the tiles and their numbers, of many every second or so.
        numbers = range(1, count + 1, math.ceil(count / 24))
        middles = [(n - 1) * (side + gap) + (side - 1) / 2 for n in numbers]
        set_ticks(middles, [str(number) for number in numbers])
    crowded = max(tile_rows, tile_columns) > 16
    axes.tick_params(length=0, labelsize=TINY if crowded else SMALL)
    axes.spines[:].set_visible(False)
    return image


def add_color_bar(
    figure: FigureBase, axes: Axes | Iterable[Axes], image: AxesImage, label: str
) -> None:
    """Adds the colour bar of an image beside one or more axes, over mid-grey."""
    bar = figure.colorbar(image, ax=axes, aspect=25, pad=0.02)
    bar.set_label(label, fontsize=SMALL + 1, parse_math=False)
    bar.outline.set_visible(False)
    bar.ax.set_facecolor("0.5")
    bar.ax.tick_params(labelsize=SMALL)

"""Figure 7 of the paper: filters, position embeddings, attention distance."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.explain.figures import canvas
from zoo.network import pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase

    from keras_vit.explain.filters import Filters

# The palette of Okabe and Ito, distinct with every kind of colour vision; heads
# beyond it take the next marker.
HEAD_COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
)  # fmt: skip
HEAD_MARKERS = "os^Dv"
HEADS_NAMED = 3


def draw_filters(filters: Filters, title: str) -> Figure:
    """Draws the principal components of the patch embedding's filters.

    Each is scaled by its largest absolute weight, so that mid-grey is zero, and has
    its number and its share of the filters' variance above it.

    Args:
        filters: what `embedding_filters` returns: `components`, float array (n,
            height, width, 1 or 3), and `explained_variance_ratio`, float array (n,).
        title: str, the title of the figure: the model.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: an argument has another shape or type, or there is no filter.

    Source:
        Figure 7 (left) of https://arxiv.org/abs/2010.11929.

    Example:
        >>> filters = embedding_filters(VisionTransformer("ViT-Ti_16", image_size=32))
        >>> figure = draw_filters(filters, "ViT-Ti/16")
    """
    return _alone(_filters(filters), title)


def _filters(filters):
    """Returns what shows the filters in a figure, its size in inches and a heading."""
    components = canvas.check_array(
        filters.components, "Filters", "components, height, width, channels"
    )
    count, *_, channels = components.shape
    if channels not in (1, 3):
        raise ValueError(
            f"Filters of {channels} channels have no colours to draw: pass components "
            "of 1 or 3 channels, such as components[..., :3]."
        )
    shares = canvas.check_array(
        filters.explained_variance_ratio, "explained_variance_ratio", "components"
    )
    canvas.check_count(count, shares, "explained_variance_ratio", "components")
    largest = np.abs(components).max(axis=(1, 2, 3), keepdims=True)
    tiles = 0.5 + components / np.where(largest > 0, 2 * largest, 1)
    rows, columns = canvas.grid_shape(count)

    def show(figure: FigureBase) -> None:
        cells = canvas.tile_axes(figure, count, rows, columns)
        for number, (cell, tile, share) in enumerate(
            zip(cells, tiles, shares, strict=True), start=1
        ):
            cell.imshow(tile, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            cell.set_title(str(number), loc="left", fontsize=canvas.SMALL, pad=2)
            share = f"{share:.1%}"
            cell.set_title(share, loc="right", fontsize=canvas.TINY, color="0.4", pad=2)

    kind = "RGB embedding" if channels == 3 else "Embedding"
    heading = f"{kind} filters\n(first {count} principal components)"
    return show, (0.9 * columns + 0.4, 1.05 * rows + 0.6), heading


def draw_position_similarity(similarity: np.ndarray, title: str) -> Figure:
    """Draws how similar each position embedding is to all others.

    The tile in row i and column j is a map of the image: the cosine similarity of the
    embedding of patch (i, j) with that of the patch at each place.

    Args:
        similarity: float array (rows, columns, rows, columns), such as
            `position_embedding_similarity` returns.
        title: str, the title of the figure: the model.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: the similarity is not of that shape, or not of finite numbers.

    Source:
        Figure 7 (centre) of https://arxiv.org/abs/2010.11929.

    Example:
        >>> similarity = np.random.uniform(-1, 1, (7, 7, 7, 7))
        >>> figure = draw_position_similarity(similarity, "ViT-L/32")
    """
    return _alone(_similarity(similarity), title)


def _similarity(similarity):
    """Returns what `_filters` does, for the similarity."""
    similarity = canvas.check_array(
        similarity, "similarity", "rows, columns, rows, columns"
    )
    rows, columns = similarity.shape[:2]
    if (rows, columns) != similarity.shape[2:]:
        raise ValueError(
            "similarity must be of shape (rows, columns, rows, columns), got "
            f"{similarity.shape}: pass what position_embedding_similarity returns."
        )

    def show(figure: FigureBase) -> None:
        axes = figure.subplots()
        image = canvas.show_mosaic(axes, similarity, cmap="viridis", vmin=-1, vmax=1)
        axes.set(xlabel="Input patch column", ylabel="Input patch row")
        canvas.add_color_bar(figure, axes, image, "Cosine similarity")

    side = 7 if max(rows, columns) > 16 else 5
    # Tiles have the image's proportion, and so has their grid: together its square.
    aspect = (rows / columns) ** 2
    width, height = side / max(aspect, 1), max(side * min(aspect, 1), 0.6)
    return show, (width + 1.6, height + 1.1), "Position embedding similarity"


def draw_attention_distance(
    distance: np.ndarray, title: str, image_size: int | tuple[int, int] | None = None
) -> Figure:
    """Draws over how many pixels each head attends, by depth.

    A dot is a head's mean over the images; of several images, a thin line reaches one
    standard deviation up and down.

    Args:
        distance: float array (layers, images, heads), in pixels, such as
            `attention_distance` returns.
        title: str, the title of the figure: the model.
        image_size: int or (height, width) in pixels. With it, a dashed line marks the
            distance of attention that is the same everywhere in the image.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: the distance has another shape, is negative or not finite; or
            `image_size` is not a size.

    Source:
        Figure 7 (right) and Appendix D.7 of https://arxiv.org/abs/2010.11929.

    Example:
        >>> distance = np.random.uniform(20, 120, (12, 8, 12))
        >>> figure = draw_attention_distance(distance, "ViT-B/16", image_size=224)
    """
    figure = _alone(_distance(distance), title)
    [axes] = figure.axes
    if image_size is not None:
        uniform = _uniform_distance(*pair(image_size, "image_size"))
        axes.axhline(uniform, color="0.4", linestyle="--", linewidth=1)
        axes.annotate(
            "if attention were spread evenly",
            (0, uniform),
            (4, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=canvas.SMALL,
            color="0.3",
        )
        axes.set_ylim(top=max(axes.get_ylim()[1], 1.1 * uniform))
    return figure


def _distance(distance):
    """Returns what `_filters` does, for the distance."""
    distance = canvas.check_array(distance, "distance", "layers, images, heads")
    if distance.min() < 0:
        raise ValueError(
            f"distance must not be negative, got {distance.min():g}: pass what "
            "attention_distance returns, in pixels."
        )
    layers, images, heads = distance.shape
    means, spread = distance.mean(axis=1), distance.std(axis=1)

    def show(figure: FigureBase) -> None:
        axes = figure.subplots()
        styles = itertools.cycle(itertools.product(HEAD_MARKERS, HEAD_COLORS))
        dots = [
            axes.errorbar(
                np.arange(1, layers + 1),
                mean,
                deviation if images > 1 else None,
                color=(color, 0.85),
                ecolor=(color, 0.25),
                elinewidth=1,
                linestyle="",
                marker=marker,
                markersize=4.5,
                markeredgewidth=0,
            )
            for mean, deviation, (marker, color) in zip(
                means.T, spread.T, styles, strict=False
            )
        ][:HEADS_NAMED]
        names = [f"Head {number}" for number in range(1, len(dots) + 1)]
        names += ["…"] * (heads > HEADS_NAMED)
        names += [f"± 1 SD of\n{images} images"] * (images > 1)
        # Entries without a point get no symbol.
        nothing = axes.plot([], [], linestyle="") * (len(names) - len(dots))
        axes.legend(
            [*dots, *nothing],
            names,
            loc="upper left",
            bbox_to_anchor=(1, 1),
            fontsize=canvas.SMALL,
            frameon=False,
            handletextpad=0.2,
        )
        axes.set(
            xlabel="Network depth (layer)",
            ylabel="Mean attention distance (pixels)",
            xlim=(0.5, layers + 0.5),
            ylim=(0, 1.1 * max((means + spread).max(), 1)),
        )
        axes.locator_params("x", integer=True)
        axes.tick_params(labelsize=canvas.SMALL)
        axes.spines[["top", "right"]].set_visible(False)

    return show, (5.6, 4.4), "Mean attention distance"


def _uniform_distance(height, width):
    """Returns the mean distance between two random places in an image."""
    apart = (np.arange(128) + 0.5) / 128
    chance = (1 - apart) / (1 - apart).sum()
    distances = np.hypot.outer(apart * height, apart * width)
    return float(chance @ distances @ chance)


def draw_figure_7(
    filters: Filters | None,
    similarity: np.ndarray | None,
    distance: np.ndarray | None,
    title: str,
) -> Figure:
    """Draws the paper's Figure 7: filters, similarity and distance side by side.

    Args:
        filters: as in `draw_filters`; None leaves them out.
        similarity: as in `draw_position_similarity`; None leaves it out.
        distance: as in `draw_attention_distance`; None leaves it out.
        title: str, the title of the figure: the model.

    Returns:
        matplotlib.figure.Figure.

    Raises:
        ValueError: all three are None, or one has another shape, type or range.

    Source:
        Figure 7 of https://arxiv.org/abs/2010.11929.

    Example:
        >>> distance = np.random.uniform(20, 120, (12, 8, 12))
        >>> similarity = np.random.uniform(-1, 1, (7, 7, 7, 7))
        >>> figure = draw_figure_7(None, similarity, distance, "ViT-B/32")
    """
    panels = [
        (width, *panel(arrays))
        for width, panel, arrays in (
            (5.6, _filters, filters),
            (5.2, _similarity, similarity),
            (5.4, _distance, distance),
        )
        if arrays is not None
    ]
    if not panels:
        raise ValueError(
            "There is nothing to draw: pass filters, similarity or distance."
        )
    widths = [width for width, *_ in panels]
    figure = canvas.new_figure(sum(widths), 4.8, title, layout="constrained")
    parts = figure.subfigures(1, len(panels), width_ratios=widths, squeeze=False)[0]
    for part, (_, show, _, heading) in zip(parts, panels, strict=True):
        part.suptitle(heading, fontsize=11)
        show(part)
    return figure


def _alone(panel, title):
    show, size, _ = panel
    figure = canvas.new_figure(*size, title)
    show(figure)
    return figure

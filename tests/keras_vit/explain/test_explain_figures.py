import io
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from harness import check_refusal
from matplotlib import colormaps
from matplotlib.colors import to_rgba
from matplotlib.text import Text
from PIL import Image

from keras_vit.explain import figures
from keras_vit.explain.figures import canvas, figure_7, overlays

# As mathematics this is broken.
TITLE = r"ViT-Ti_16 $\frac{_1$ 50 %, a_b"

rng = np.random.default_rng(0)


def filters(count=28, height=4, width=4, channels=3):
    return SimpleNamespace(
        components=rng.normal(size=(count, height, width, channels)),
        explained_variance_ratio=np.linspace(0.2, 0.01, count),
    )


def similarity(rows=7, columns=7):
    embedding = rng.normal(size=(rows, columns, 8))
    embedding /= np.linalg.norm(embedding, axis=-1, keepdims=True)
    return np.einsum("ijc,klc->ijkl", embedding, embedding)


def distance(layers=12, images=5, heads=3):
    return rng.uniform(5, 120, (layers, images, heads))


def image(height=20, width=30, channels=3):
    return rng.integers(0, 256, (height, width, channels), "uint8")


def random(*shape):
    return rng.random(shape)


def drawn(axes):
    """The arrays of the images in axes."""
    return [np.ma.getdata(shown.get_array()) for shown in axes.images]


def bar_of(figure):
    """The axes of a figure's colour bar, which must have just one."""
    bars = [shown.colorbar for axes in figure.axes for shown in axes.images]
    [bar] = [bar for bar in bars if bar is not None]
    return bar.ax


NAMES = ["cat", "dog_1", "$x", "a very long name of a class, " * 5]
FOUR = [image(), image(30, 20), image(24, 24, 1), image()]
GREY = (30, 20, 1)
# A function that draws, its arguments before the title, and those behind it.
FIGURES = {
    "filters": (figures.draw_filters, [filters()], []),
    "similarity": (figures.draw_position_similarity, [similarity(12, 6)], []),
    "distance": (
        figures.draw_attention_distance, [distance(24, 8, 16)], [(224, 384)]
    ),
    "figure 7": (
        figures.draw_figure_7,
        [filters(12), similarity(14, 14), distance(12, 8, 16)], [],
    ),
    "attention": (figures.draw_attention, [FOUR, random(4, 3, 2), NAMES], []),
    "overlay": (figures.draw_overlay, [image(), random(3, 3)], ["a_$b"]),
    "one layer": (figures.draw_layers, [image(*GREY), random(1, 3, 3)], []),
    "heads": (figures.draw_heads, [image(30, 20), random(24, 16, 6, 4)], []),
    "features": (
        figures.draw_features,
        [[image(), image(*GREY)], random(2, 3, 4, 3), ["cat", "$x"]], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_a_sheet_with_its_title(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    draw, given, others = FIGURES[name]
    figure = draw(*given, TITLE, *others)
    assert figure.get_suptitle() == TITLE
    assert figure.get_facecolor() == to_rgba("white")
    figure.get_layout_engine().execute(figure)
    # Laid out once is enough.
    figure.set_layout_engine("none")
    # One kind: others have the same parts.
    kinds = {"png": b"\x89PNG", "pdf": b"%PDF"} if name == "attention" else {}
    for kind, start in kinds.items():
        file = io.BytesIO()
        figure.savefig(file, format=kind)
        assert file.getvalue().startswith(start)
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) > 0
    # Text of users is not read as mathematics.
    written = [text for text in figure.findobj(Text) if "$" in text.get_text()]
    assert TITLE in [text.get_text() for text in written]
    assert not any(text.get_parse_math() for text in written)


def test_filters_are_scaled_around_mid_grey():
    given = filters()
    given.components[3] = 0
    given.components[0, 0, 0] = 0
    given.components[1, 2, 3, 0] = -9
    given.components[2, 1, 0, 2] = 9
    figure = figures.draw_filters(given, TITLE)
    assert len(figure.axes) == 28
    assert figure.axes[0].get_gridspec().get_geometry() == (4, 7)
    tiles = np.stack([drawn(axes)[0] for axes in figure.axes])
    largest = np.abs(given.components).max(axis=(1, 2, 3), keepdims=True)
    largest[3] = 1
    assert np.allclose((tiles - 0.5) * 2 * largest, given.components, atol=1e-5)
    assert tiles.min() >= 0 and tiles.max() <= 1
    assert np.all(tiles[0, 0, 0] == 0.5) and np.all(tiles[3] == 0.5)
    assert tiles[1, 2, 3, 0] == 0 and tiles[2, 1, 0, 2] == 1
    assert figure.axes[27].get_title(loc="left") == "28"
    assert figure.axes[0].get_title(loc="right") == "20.0%"


def test_filters_of_one_channel_are_grey():
    given = filters(10, 5, 3, 1)
    figure = figures.draw_filters(given, TITLE)
    [shown] = figure.axes[9].images
    assert shown.get_cmap().name == "gray" and shown.get_clim() == (0, 1)
    tile = given.components[9, ..., 0]
    assert np.allclose(shown.get_array(), 0.5 + tile / np.abs(tile).max() / 2)


def test_long_titles_are_broken_into_lines():
    title = "ViT-L_16, attention of the class token to $_{each}$ patch, " * 3 + "\nend"
    figure = figures.draw_filters(filters(1), title)
    lines = figure.get_suptitle().split("\n")
    assert " ".join(lines).split() == title.split()
    assert len(lines) > 4 and lines[-1] == "end"
    assert canvas.wrap("a name of several words", 1, 12) == "a name of\nseveral\nwords"


def test_grids_have_the_papers_proportion_and_no_empty_row():
    shapes = {1: (1, 1), 6: (2, 3), 10: (2, 5), 28: (4, 7)}
    assert {count: canvas.grid_shape(count) for count in shapes} == shapes
    for count in range(1, 60):
        rows, columns = canvas.grid_shape(count)
        assert (rows - 1) * columns < count <= rows * columns


@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (3, 5), (30, 30), (1, 2)])
def test_similarity_is_where_it_belongs(rows, columns):
    given = similarity(rows, columns)
    figure = figures.draw_position_similarity(given, TITLE)
    axes = figure.axes[0]
    [mosaic] = drawn(axes)
    gap = math.ceil(max(rows, columns) / 14)
    high, wide = rows + gap, columns + gap
    assert mosaic.shape == (rows * high - gap, columns * wide - gap)
    expected = np.full(mosaic.shape, np.nan)
    for i in range(rows):
        for j in range(columns):
            top, left = i * high, j * wide
            expected[top : top + rows, left : left + columns] = given[i, j]
    np.testing.assert_allclose(mosaic, expected, atol=1e-6)
    # The number of a tile stands at its middle; of many some are numbered.
    step = 2 if columns == 30 else 1
    assert axes.get_yticks()[0] == (rows - 1) / 2
    assert axes.get_xticks()[1] == wide * step + (columns - 1) / 2
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == [str(number) for number in range(1, columns + 1, step)]
    assert axes.images[0].get_clim() == bar_of(figure).get_ylim() == (-1, 1)


def test_distances_are_means_over_images():
    given = distance(layers=6, images=4, heads=16)
    axes = figures.draw_attention_distance(given, TITLE).axes[0]
    assert len(axes.containers) == 16
    for head, (dots, _, [bars]) in enumerate(axes.containers):
        middle, spread = given[..., head].mean(axis=1), given[..., head].std(axis=1)
        np.testing.assert_array_equal(dots.get_xdata(), np.arange(1, 7))
        np.testing.assert_allclose(dots.get_ydata(), middle, rtol=1e-6)
        ends = np.stack(bars.get_segments())[:, :, 1]
        expected = np.stack([middle - spread, middle + spread], axis=1)
        np.testing.assert_allclose(ends, expected, rtol=1e-5)
    assert axes.get_xlabel() == "Network depth (layer)"
    assert axes.get_ylabel() == "Mean attention distance (pixels)"
    assert axes.get_ylim()[0] == 0


@pytest.mark.parametrize(
    ("heads", "images", "names"),
    [
        (3, 1, ["Head 1", "Head 2", "Head 3"]),
        (32, 1, ["Head 1", "Head 2", "Head 3", "…"]),
        (1, 8, ["Head 1", "± 1 SD of\n8 images"]),
    ],
)
def test_heads_look_different_and_the_first_are_named(heads, images, names):
    given = distance(2, images, heads)
    axes = figures.draw_attention_distance(given, TITLE).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == names
    assert all(container.has_yerr == (images > 1) for container in axes.containers)
    dots = [container[0] for container in axes.containers]
    assert len({(one.get_color(), one.get_marker()) for one in dots}) == heads


def test_even_attention_is_as_far_as_two_random_places():
    unit_square = (2 + math.sqrt(2) + 5 * math.asinh(1)) / 15
    assert figure_7._uniform_distance(1, 1) == pytest.approx(unit_square, rel=1e-3)
    places = np.random.default_rng(1).random((2, 200_000, 2)) * (100, 300)
    expected = np.linalg.norm(places[0] - places[1], axis=1).mean()
    assert figure_7._uniform_distance(100, 300) == pytest.approx(expected, rel=1e-2)
    given, lines = distance() / 100, []
    for size in ([], [224]):
        axes = figures.draw_attention_distance(given, TITLE, *size).axes[0]
        lines.append([one for one in axes.lines if one.get_linestyle() == "--"])
    [none, [line]] = lines
    assert not none
    assert line.get_ydata()[0] == pytest.approx(224 * unit_square, rel=1e-3)
    assert axes.get_ylim()[1] > 224 * unit_square


def test_figure_7_leaves_out_what_is_none():
    parts = {
        "RGB embedding filters\n(first 4 principal components)": filters(4),
        "Position embedding similarity": similarity(),
        "Mean attention distance": distance(),
    }
    for left_out in (None, *parts):
        shown = {name: part for name, part in parts.items() if name != left_out}
        figure = figures.draw_figure_7(*map(shown.get, parts), TITLE)
        assert [part.get_suptitle() for part in figure.subfigs] == [*shown]


def test_attention_is_over_the_sharp_photo():
    given, maps = [image(40, 56), image(32, 32, 1)], random(2, 4, 7)
    figure = figures.draw_attention(given, maps, ["cat", "dog"], TITLE)
    for axes, photo, grid in zip(figure.axes[:2], given, maps, strict=True):
        first, below, heat = drawn(axes)
        height, width = photo.shape[:2]
        # Pillow's bilinear enlarging is another's work on the same definition.
        mask = Image.fromarray((grid / grid.max()).astype("float32"))
        mask = np.asarray(mask.resize((width, height), Image.Resampling.BILINEAR))
        shades = np.broadcast_to(photo / 255, (height, width, 3))
        np.testing.assert_allclose(first, shades, atol=1e-6)
        np.testing.assert_array_equal(below, first)
        np.testing.assert_allclose(heat, mask, atol=1e-5)
        assert axes.images[2].get_clim() == (0, 1)
        (left, right, *_), (start, end, *_), over = (
            shown.get_extent() for shown in axes.images
        )
        assert left == 0 and right == width < start and end - start == width
        assert list(over[:2]) == [start, end] and axes.get_xlim() == (0, end)
    assert bar_of(figure).get_ylabel() == "Share of the\nmap's maximum"


def test_pairs_are_named():
    figure = figures.draw_attention(FOUR, random(4, 2, 2), NAMES[:3] + ["bird"], TITLE)
    assert [axes.get_xlabel() for axes in figure.axes[:4]] == [*NAMES[:3], "bird"]
    above = [
        [label.get_text() for label in axes.get_xticklabels()]
        for axes in figure.axes[:4]
    ]
    assert above == [["Input", "Attention"]] * 2 + [[]] * 2
    assert figure.axes[0].get_gridspec().get_geometry() == (2, 2)


def test_features_show_each_patch_in_its_colour():
    colors = random(1, 2, 3, 3).astype("float32")
    figure = figures.draw_features([image(10, 9)], colors, ["cat"], TITLE)
    photo, patches = figure.axes[0].images
    np.testing.assert_array_equal(patches.get_array(), colors[0])
    assert patches.get_interpolation() == "nearest"
    left, right, bottom, top = patches.get_extent()
    assert (right - left, bottom, top) == (9, *photo.get_extent()[2:]) == (9, 10, 0)


def test_overlay_has_the_maps_own_numbers():
    grid = random(3, 5).astype("float32") / 50
    figure = figures.draw_overlay(image(), grid, TITLE, "Relevance_1")
    left, right = figure.axes[:2]
    assert drawn(left)[0].shape == (20, 30, 3)
    below, heat = drawn(right)
    np.testing.assert_array_equal(below, drawn(left)[0])
    np.testing.assert_array_equal(heat, overlays.stretch(grid, 20, 30))
    assert right.images[1].get_clim() == (0, grid.max())
    bar = bar_of(figure)
    assert bar.get_ylabel() == "Relevance_1"
    assert bar.get_ylim() == pytest.approx((0, grid.max()))


def test_zeros_are_drawn_as_nothing():
    def opacity(axes):
        shown = axes.images[-1]
        return shown.to_rgba(shown.get_array())[..., 3]

    nothing = np.zeros((3, 3))
    figure = figures.draw_overlay(image(), nothing, TITLE, "Relevance")
    assert np.all(opacity(figure.axes[1]) == 0)
    figure = figures.draw_layers(image(), np.stack([nothing, nothing + 1]), TITLE)
    assert np.all(opacity(figure.axes[1]) == 0)
    assert np.all(opacity(figure.axes[2]) > 0.7)
    figure = figures.draw_attention([image()], [nothing], ["cat"], TITLE)
    assert np.all(opacity(figure.axes[0]) == 0)
    figure = figures.draw_heads(image(), nothing[None, None], TITLE)
    assert np.all(drawn(figure.axes[1])[0] == 0)


def test_layers_are_each_relative_to_their_maximum():
    maps = random(12, 3, 4) * np.geomspace(1e-3, 10, 12)[:, None, None]
    figure = figures.draw_layers(image(), maps, TITLE)
    titles = [axes.get_title() for axes in figure.axes[:13]]
    assert titles == ["Input", *(f"Layer {number}" for number in range(1, 13))]
    for axes, grid in zip(figure.axes[1:13], maps, strict=True):
        expected = overlays.stretch(grid / grid.max(), 20, 30)
        np.testing.assert_allclose(drawn(axes)[1], expected, atol=1e-6)
        assert axes.images[1].get_clim() == (0, 1)
    assert bar_of(figure).get_ylabel() == "Share of the\nlayer's maximum"


def test_heads_are_layers_by_heads():
    maps = random(3, 2, 4, 5)
    photo = image(20, 30)
    figure = figures.draw_heads(photo, maps, TITLE)
    corner, axes = figure.axes[:2]
    [mosaic] = drawn(axes)
    assert mosaic.shape == (3 * 5 - 1, 2 * 6 - 1)
    for layer in range(3):
        for head in range(2):
            tile = mosaic[layer * 5 : layer * 5 + 4, head * 6 : head * 6 + 5]
            expected = maps[layer, head] / maps[layer, head].max()
            np.testing.assert_allclose(tile, expected, atol=1e-6)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Head", "Layer")
    assert bar_of(figure).get_ylabel() == "Share of the\nmap's maximum"
    np.testing.assert_allclose(drawn(corner)[0], photo / 255, atol=1e-6)
    # A tile has the photo's proportions, whatever the grid's.
    assert axes.get_aspect() * 4 / 5 == pytest.approx(20 / 30)


def test_images_are_uint8_or_as_models_take_them():
    whole = image()
    scaled = whole.astype("float32") / 127.5 - 1
    expected = overlays.as_photo(whole)
    np.testing.assert_allclose(overlays.as_photo(scaled), expected, atol=1e-6)
    grey = overlays.as_photo(whole[..., :1])
    np.testing.assert_allclose(grey, np.repeat(whole[..., :1] / 255, 3, 2), atol=1e-6)
    # Values that bicubic resizing overshoots are cut off.
    assert overlays.as_photo(np.full((1, 1, 3), 1.2)).max() == 1


def test_colours_get_lighter_step_by_step():
    levels = colormaps[overlays.COLORS](np.linspace(0, 1, 256))[:, :3]
    assert np.all(np.diff(levels @ (0.2126, 0.7152, 0.0722)) > -1e-3)
    assert len(set(figure_7.HEAD_COLORS)) == len(figure_7.HEAD_COLORS)


NAN = np.full((2, 2), np.nan)
FILTERS = SimpleNamespace(
    components=np.ones((2, 4, 4, 3)), explained_variance_ratio=[1]
)
ONE = [image()]
REFUSED = [
    (figures.draw_filters, [filters(channels=4)], [], "4 channels"),
    (figures.draw_filters, [FILTERS], [], "many as the components, 2, got 1"),
    (figures.draw_position_similarity, [np.ones((2, 3, 3, 2))], [], "(2, 3, 3, 2)"),
    (figures.draw_position_similarity, [np.ones((4, 4))], [], "got (4, 4)"),
    (figures.draw_attention_distance, [np.ones((4, 4))], [], "layers, images, heads)"),
    (figures.draw_attention_distance, [np.ones((4, 0, 4))], [], "not empty"),
    (figures.draw_attention_distance, [-distance()], [], "negative"),
    (figures.draw_attention_distance, [distance()], [-1], "image_size"),
    (figures.draw_attention, [ONE, np.ones((2, 2, 2)), ["a"]], [], "images, 1, got 2"),
    (figures.draw_attention, [ONE, np.ones((1, 2, 2)), []], [], "images, 1, got 0"),
    (figures.draw_attention, [[], [], []], [], "no image"),
    (figures.draw_attention, [ONE, [NAN], ["a"]], [], "NaN"),
    (figures.draw_figure_7, [None, None, None], [], "nothing to draw"),
    (figures.draw_overlay, [image(), -np.ones((2, 2))], ["a"], "posit"),
    (figures.draw_overlay, [image(), np.ones(4)], ["a"], "(4,)"),
    (figures.draw_layers, [image(), np.ones((2, 2))], [], "layers, rows"),
    (figures.draw_layers, [image(), NAN[None]], [], "NaN"),
    (figures.draw_heads, [image(), np.ones((2, 2, 2))], [], "heads, rows"),
    (figures.draw_heads, [image(), NAN[None, None]], [], "NaN"),
    (figures.draw_features, [ONE, np.ones((1, 2, 2, 4)), "a"], [], "three numbers"),
    (figures.draw_features, [ONE, 2 * np.ones((1, 2, 2, 3)), "a"], [], "from 2 to 2"),
    (figures.draw_features, [ONE, np.ones((2, 2, 2, 3)), "a"], [], "as the images"),
    *(
        (figures.draw_overlay, [given, np.ones((2, 2))], ["a"], part)
        for given, part in (
            (np.zeros((4, 4), "uint8"), "(height, width, 1 or 3), got (4, 4)"),
            (np.zeros((1, 4, 4, 3), "uint8"), "one by one"),
            (np.zeros((4, 4, 2), "uint8"), "those to be shown"),
            (np.zeros((0, 4, 3), "uint8"), "got"),
            (np.zeros((4, 4, 3), "int32"), "int32"),
            (np.full((4, 4, 3), 255.0), "preprocess_input"),
            (np.full((4, 4, 3), np.nan), "preprocess_input"),
        )
    ),
]


@pytest.mark.parametrize(("draw", "given", "others", "part"), REFUSED)
def test_what_does_not_fit_is_refused(draw, given, others, part):
    check_refusal(lambda: draw(*given, TITLE, *others), part)

import pathlib

import numpy as np
import pytest

from zoo.network import position_embedding

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
# float32 round-off of values of order 1; the released code works in float32 too.
TOLERANCE = {"rtol": 0, "atol": 1e-6}
GRIDS = [(1, 1), (2, 2), (3, 3), (4, 7), (14, 14), (27, 27), (48, 48), (9, 5)]


def table(height, width, tokens=1, hidden_size=3, seed=0):
    rng = np.random.default_rng(seed)
    shape = (1, tokens + height * width, hidden_size)
    return rng.standard_normal(shape).astype("float32")


@pytest.mark.parametrize(
    "name", ["14_to_24", "24_to_14", "7_to_12", "16_to_27", "12_to_7", "24_to_32"]
)
def test_released_resize_equals_the_released_code(name):
    old, new = (int(side) for side in name.split("_to_"))
    with np.load(GOLDENS / "position_embedding_resize.npz") as golden:
        before, after = golden[f"{name}/in"], golden[f"{name}/out"]
    got = position_embedding.resize(before, (old, old), (new, new))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, after, **TOLERANCE)
    np.testing.assert_array_equal(got[:, 0], before[:, 0])


@pytest.mark.parametrize("old", GRIDS)
def test_released_resize_equals_scipy_on_many_grids(old):
    ndimage = pytest.importorskip("scipy.ndimage")
    before = table(*old, tokens=0)
    for new in GRIDS:
        got = position_embedding.resize(before, old, new)
        zoom = (new[0] / old[0], new[1] / old[1], 1)
        grid = before[0].reshape(*old, -1)
        expected = ndimage.zoom(grid, zoom, order=1, mode="nearest")
        np.testing.assert_allclose(
            got.reshape(*new, -1), expected, err_msg=f"{old}->{new}", **TOLERANCE
        )


def test_other_methods_equal_tensorflow():
    """The file has `tf.image.resize(..., antialias=True)` of the same tables."""
    with np.load(GOLDENS / "position_embedding_methods.npz") as golden:
        assert len(golden) == 3 * 8
        for name, expected in golden.items():
            method, _, grids = name.partition("/")
            old, new = (
                tuple(map(int, grid.split("x"))) for grid in grids.split("_to_")
            )
            before = table(*old, hidden_size=1)
            got = position_embedding.resize(before, old, new, method)
            # TensorFlow computes its weights in float32.
            np.testing.assert_allclose(
                got[0, 1:].reshape(new), expected, rtol=0, atol=5e-6, err_msg=name
            )
            np.testing.assert_array_equal(got[:, 0], before[:, 0])


# PyTorch calls them by the names before the colons.
LIBRARIES = {
    "bicubic": "bicubic_no_antialias",
    "bicubic_antialias": "bicubic",
    "bilinear": "bilinear_no_antialias",
    "bilinear_antialias": "bilinear",
    "bilinear_align_corners": "released",
}


def test_methods_are_those_of_timm_and_transformers():
    with np.load(GOLDENS / "resizing_rules.npz") as file:
        rules = dict(file)
    for name, expected in rules.items():
        kind, sizes, *rest = name.split("/")
        if rest == ["in"]:
            continue
        before, method = rules[f"{kind}/{sizes}/in"], LIBRARIES[rest[0]]
        if kind == "position":
            grids = [tuple(map(int, size.split("x"))) for size in sizes.split("_")]
            found = position_embedding.resize(before, *grids, method)
        else:
            size = tuple(map(int, rest[1].split("x")))
            kernel = before.transpose(2, 3, 1, 0)
            found = position_embedding.resize_patches(kernel, size, method)
            found = found.transpose(3, 2, 0, 1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5, err_msg=name)


def test_rows_of_other_tokens_than_patches_are_kept():
    before = table(4, 4, tokens=5)
    got = position_embedding.resize(before, (4, 4), (2, 3), num_prefix_tokens=5)
    assert got.shape == (1, 11, 3)
    np.testing.assert_array_equal(got[:, :5], before[:, :5])
    patches = position_embedding.resize(before[:, 5:], (4, 4), (2, 3))
    np.testing.assert_array_equal(got[:, 5:], patches)
    for tokens in (None, 1, 4):
        with pytest.raises(ValueError, match=r"needs shape .1, \d+, hidden size"):
            position_embedding.resize(before, (4, 4), (2, 3), num_prefix_tokens=tokens)


@pytest.mark.parametrize("method", position_embedding.METHODS)
def test_equal_grids_return_the_argument_and_others_its_dtype(method):
    before = table(3, 5).astype("float64")
    assert position_embedding.resize(before, [3, 5], (3, 5), method) is before
    assert position_embedding.resize(before, (3, 5), (5, 5)).dtype == np.float64


T44 = table(4, 4)
REFUSED = [
    (T44, (4, 4), (6, 6), "area", r"\(4, 4\) to \(6, 6\).*'area'.*bicubic"),
    (T44, (5, 4), (6, 6), "released", r"\(5, 4\) to \(6, 6\).*\(1, 21, hidden"),
    (T44, (4, 4), (0, 6), "released", "positive integers"),
    (T44, (4, 4), (6,), "released", "positive integers"),
    (T44[0], (4, 4), (6, 6), "released", "hidden size"),
    (T44.astype(int), (4, 4), (6, 6), "released", "float array"),
]


@pytest.mark.parametrize(("before", "old", "new", "method", "message"), REFUSED)
def test_errors_name_both_grids_and_the_remedy(before, old, new, method, message):
    with pytest.raises(ValueError, match=message):
        position_embedding.resize(before, old, new, method)


@pytest.mark.parametrize(
    ("old", "new", "share"),
    # Steps grow so that the last offset is reached: 1 + q + q^2 = 4 for q = 1.302776.
    # They grow by 1.01 at least and 1.5 at most.
    [(4, 5, 1 / 1.302776), (4, 3, 1 / 1.01), (3, 4, 1 / 1.5)],
)
def test_offsets_lie_between_old_ones_at_geometric_steps(old, new, share):
    weights = position_embedding.offset_weights(old, new, "geometric")
    # The offset 2 lies between the first and the second old one, or beyond.
    expected = np.zeros(2 * old - 1)
    expected[[old, old + 1]] = 1 - share, share
    np.testing.assert_allclose(weights[new + 1], expected, atol=1e-5)
    np.testing.assert_allclose(weights, weights[::-1, ::-1], atol=1e-12)
    assert weights[-1, -1] == pytest.approx(1, abs=1e-5) or new < old


@pytest.mark.parametrize("method", position_embedding.METHODS)
def test_relative_positions_as_places(method):
    before = np.random.default_rng(3).normal(size=(7 * 5 + 3, 2))
    found = position_embedding.resize_relative(before, (4, 3), (2, 5), method)
    offsets = position_embedding.resize(before[None, :35], (7, 5), (3, 9), method)
    np.testing.assert_allclose(found[:27], offsets[0], atol=1e-12)
    np.testing.assert_array_equal(found[27:], before[35:])
    same = position_embedding.resize_relative(before, [4, 3], (4, 3), method)
    assert same is before


def test_errors_of_relative_positions():
    before = np.ones((38, 2))
    with pytest.raises(ValueError, match="relative positions.*'area', choose .*geom"):
        position_embedding.resize_relative(before, (4, 3), (6, 6), "area")
    with pytest.raises(ValueError, match=r"\(49, heads\), or \(52, heads\) with a cl"):
        position_embedding.resize_relative(before, (4, 4), (6, 6))

import pathlib

import numpy as np
import pytest

from zoo import position_embedding

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens"
# float32 round-off of values of order 1; the released code works in float32 too.
TOLERANCE = {"rtol": 0, "atol": 1e-6}
GRIDS = [1, 2, 3, 7, 8, 12, 14, 16, 24, 27, 28, 30, 32, 48]


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
    before = table(old, old, tokens=0)
    for new in GRIDS:
        got = position_embedding.resize(before, (old, old), (new, new))
        grid = before[0].reshape(old, old, -1)
        zoom = (new / old, new / old, 1)
        expected = ndimage.zoom(grid, zoom, order=1, mode="nearest")
        np.testing.assert_allclose(
            got.reshape(new, new, -1), expected, err_msg=f"{old}->{new}", **TOLERANCE
        )


@pytest.mark.parametrize("sides", [(28, 48), (32, 16), (28, 14), (16, 30)])
def test_the_last_row_and_column_are_not_zero(sides):
    old, new = sides
    got = position_embedding.resize(
        np.ones((1, old * old, 1), "float32"), (old, old), (new, new)
    )
    np.testing.assert_allclose(got, 1.0, **TOLERANCE)


def test_released_resize_of_a_non_square_grid():
    ndimage = pytest.importorskip("scipy.ndimage")
    before = table(4, 7)
    got = position_embedding.resize(before, (4, 7), (9, 5))
    expected = ndimage.zoom(
        before[0, 1:].reshape(4, 7, -1), (9 / 4, 5 / 7, 1), order=1, mode="nearest"
    )
    np.testing.assert_allclose(got[0, 1:].reshape(9, 5, -1), expected, **TOLERANCE)


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "lanczos3"])
def test_other_methods_equal_tensorflow(method):
    tf = pytest.importorskip("tensorflow")
    for old, new in [
        ((14, 14), (24, 24)),
        ((24, 24), (14, 14)),
        ((4, 7), (9, 5)),
        ((12, 12), (7, 7)),
        ((3, 3), (1, 1)),
        ((1, 1), (3, 3)),
        ((16, 16), (16, 8)),
        ((32, 32), (5, 31)),
    ]:
        before = table(*old)
        got = position_embedding.resize(before, old, new, method)
        grid = before[:, 1:].reshape(1, *old, -1)
        expected = tf.image.resize(grid, new, method=method, antialias=True)
        # TensorFlow computes its weights in float32.
        np.testing.assert_allclose(
            got[0, 1:].reshape(*new, -1),
            expected[0].numpy(),
            rtol=0,
            atol=5e-6,
            err_msg=f"{old}->{new}",
        )
        np.testing.assert_array_equal(got[:, 0], before[:, 0])


@pytest.mark.parametrize("method", position_embedding.METHODS)
def test_equal_grids_return_the_argument(method):
    before = table(3, 5)
    assert position_embedding.resize(before, [3, 5], (3, 5), method) is before


def test_the_dtype_is_kept():
    before = table(4, 4).astype("float64")
    assert position_embedding.resize(before, (4, 4), (5, 5)).dtype == np.float64


def test_errors_name_both_grids_and_the_remedy():
    before = table(4, 4)
    with pytest.raises(ValueError, match=r"\(4, 4\) to \(6, 6\).*'area'.*bicubic"):
        position_embedding.resize(before, (4, 4), (6, 6), "area")
    with pytest.raises(ValueError, match=r"\(5, 4\) to \(6, 6\).*\(1, 21, hidden"):
        position_embedding.resize(before, (5, 4), (6, 6))
    with pytest.raises(ValueError, match="positive integers"):
        position_embedding.resize(before, (4, 4), (0, 6))
    with pytest.raises(ValueError, match="positive integers"):
        position_embedding.resize(before, (4, 4), (6,))
    with pytest.raises(ValueError, match="hidden size"):
        position_embedding.resize(before[0], (4, 4), (6, 6))
    with pytest.raises(ValueError, match="float array"):
        position_embedding.resize(before.astype(int), (4, 4), (6, 6))

"""Windows over photos of any size, and their averages."""

import numpy as np
import pytest

from train.masks import windows
from zoo import photos

RANDOM = np.random.RandomState(0)


def coordinates(shape):
    """Returns a photo whose red and green are the row and the column."""
    rows, columns = np.indices(shape)
    return np.stack([rows, columns, 0 * rows], axis=-1).astype("uint8")


def scaled(photo, sides):
    return photos.resize(photo, sides) / 127.5 - 1


@pytest.mark.parametrize("shape", [(30, 100), (100, 30), (24, 24), (31, 44), (7, 9)])
@pytest.mark.parametrize("size", [(24, 24), (16, 28)])
def test_a_model_of_coordinates_gives_back_the_photo(shape, size):
    photo, sizes = coordinates(shape), []

    def answer(images):
        sizes.append(images.shape)
        return images

    found = windows.sliding(photo, answer, size, batch_size=2)
    assert all(one[1:] == (*size, 3) and one[0] <= 2 for one in sizes)
    sides = windows.scaled_size(shape, size)
    assert found.shape == (*sides, 3)
    np.testing.assert_allclose(found, scaled(photo, sides), atol=1e-6)
    # One side is covered exactly, the other keeps the aspect to half a pixel.
    ratios = np.divide(sides, shape)
    assert sides[0] == size[0] or sides[1] == size[1]
    assert abs(ratios[0] - ratios[1]) * min(shape) <= 1


def test_scores_are_averaged_where_windows_overlap():
    photo = RANDOM.randint(0, 256, (10, 27, 3)).astype("uint8")
    numbers = iter(range(1, 9))

    def answer(images):
        return np.stack([np.full((10, 10, 1), next(numbers)) for _ in images])

    found = windows.sliding(photo, answer, (10, 10))[..., 0]
    # The source's numbers for three windows: (3 * 10 - 27) / 2 = 1.5 overlap each.
    expected = np.concatenate([[1] * 8, [1.5] * 2, [2] * 7, [2.5] * 1, [3] * 9])
    np.testing.assert_allclose(found, np.tile(expected, (10, 1)))


def test_windows_of_the_paper():
    # ADE20K at 512: 683 x 512 of 4:3 photos has two windows, a panorama more.
    assert windows.starts(683, 512) == [0, 171]
    assert windows.starts(1600, 512) == [0, 362, 725, 1088]
    for side in range(640, 20_000, 7):
        places = windows.starts(side, 640)
        assert places[0] == 0 and places[-1] == side - 640
        assert (np.diff(places) <= 640).all() and len(places) == -(-side // 640)


def test_coarser_scores_are_resized_to_windows_and_to_whole_photos():
    photo = RANDOM.randint(0, 256, (16, 24, 3)).astype("uint8")
    coarse = RANDOM.normal(size=(4, 4, 5)).astype("float32")
    found = windows.sliding(photo, lambda images: [coarse] * len(images), (16, 16))
    assert found.shape == (16, 24, 5)
    fine = photos.resize(coarse, (16, 16))
    np.testing.assert_allclose(found[:, :8], fine[:, :8], atol=1e-6)
    np.testing.assert_allclose(found[:, 16:], fine[:, 8:], atol=1e-6)
    seen = windows.whole(photo, lambda images: images, (8, 6))
    np.testing.assert_allclose(seen, scaled(photo, (8, 6)), atol=1e-6)


def test_a_strip_that_needs_too_many_windows_is_refused():
    photo = np.zeros((1, 40, 3), "uint8")
    with pytest.raises(ValueError, match="40 x 1 pixels needs 40 windows, where 16"):
        windows.sliding(photo, lambda images: images, (4, 4))

"""Masks go through the crop, the flip and the resize of their photos."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from made_data import numbered_split

from train.data.pipeline import (
    NO_LABEL,
    Augmentation,
    Share,
    evaluation_batches,
    training_batches,
)
from train.data.registry import CROPS, IGNORED

OPTIONS = {"image_size": (17, 11), "batch_size": 4, "seed": 5}


def placed_split(shape, count=8):
    """Returns images whose red and green are the row and the column, as masks are.

    Blue is 255 in all of an image. A mask has 1000 times the row plus the column.
    """
    rows, columns = np.indices(shape)
    image = np.stack([rows, columns, np.full(shape, 255)], axis=-1).astype("uint8")
    mask = tf.constant(1000 * rows + columns, tf.int32)

    def records():
        return tf.data.Dataset.range(count).map(lambda number: (image, number))

    split = dataclasses.replace(numbered_split(count), records=records)
    return dataclasses.replace(split, read_mask=lambda label: mask)


def joined(batches, count):
    batches = batches.take(count).as_numpy_iterator()
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]


def assert_in_place(images, masks):
    """Checks that masks have the pixels that images show, and returns the inside."""
    places = images * 127.5 + 127.5
    inside = places[..., 2] > 254
    assert (masks[~inside] == IGNORED).all()
    found = np.stack(np.divmod(masks[inside], 1000), axis=-1)
    # An image is bilinear between centres, of which a mask has the nearest.
    assert np.abs(places[inside][:, :2] - found).max() <= 0.5 + 1e-3
    return inside


@pytest.mark.parametrize("shape", [(37, 23), (9, 60), (5, 4), (7, 11), (1, 3)])
@pytest.mark.parametrize("crop", CROPS)
def test_masks_show_the_places_of_their_images(crop, shape):
    batches = training_batches(placed_split(shape), crop=crop, **OPTIONS)
    assert batches.element_spec[1] == tf.TensorSpec((4, 17, 11), tf.int32)
    images, masks = joined(batches, 8)
    inside = assert_in_place(images, masks)
    assert inside.all() == (crop != "shift")
    # The corners at the left are those at the right of half of the images.
    is_mirrored = masks[:, 8, 2] % 1000 > masks[:, 8, 8] % 1000
    assert 4 < is_mirrored.sum() < 28 or shape == (1, 3)


@pytest.mark.parametrize("shape", [(37, 23), (9, 60), (5, 4), (7, 11)])
def test_whole_images_and_masks_are_evaluated(shape):
    settings = {"image_size": (7, 11), "batch_size": 3}
    images, masks = joined(evaluation_batches(placed_split(shape), **settings), 9)
    assert masks.shape == (8, 7, 11) and masks.dtype == np.int32
    assert assert_in_place(images, masks).all()
    filled = evaluation_batches(
        placed_split(shape), share=Share(filled=True), **settings
    )
    _, filled = joined(filled, 9)
    np.testing.assert_array_equal(filled[:8], masks)
    assert (filled[8:] == NO_LABEL).all() and len(filled) == 9


def test_masks_resume_exactly_and_change_no_image():
    split = placed_split((20, 30), 10)
    images, masks = joined(training_batches(split, **OPTIONS), 5)
    resumed = joined(training_batches(split, start_step=3, **OPTIONS), 2)
    np.testing.assert_array_equal(resumed[0], images[12:])
    np.testing.assert_array_equal(resumed[1], masks[12:])
    plain = dataclasses.replace(split, read_mask=None)
    expected, labels = joined(training_batches(plain, **OPTIONS), 5)
    np.testing.assert_array_equal(images, expected)
    assert labels.shape == (20,)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"augmentation": Augmentation(mixup=0.2, cutmix=1.0)}, "mixup, cutmix"),
        ({"augmentation": Augmentation(rand_augment=(1, 9))}, "rand_augment"),
        ({"augmentation": Augmentation(random_erasing=0.5)}, "random_erasing"),
        ({"augmentation_layer": tf.identity}, "augmentation_layer"),
    ],
)
def test_changes_that_masks_cannot_follow_are_refused(changes, names):
    with pytest.raises(ValueError, match=f"^{names}: masks follow crops and flips "):
        training_batches(placed_split((4, 4)), **OPTIONS, **changes)


def test_evaluation_that_cuts_images_is_refused():
    settings = {"image_size": (4, 4), "batch_size": 2, "preparation": "central crop"}
    with pytest.raises(ValueError, match='central crop" cuts .* preparation="squash"'):
        evaluation_batches(placed_split((4, 4)), **settings)

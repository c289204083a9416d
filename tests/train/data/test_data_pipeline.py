import numpy as np
import pytest
import tensorflow as tf
from made_data import numbered_split

from train.data import pipeline
from train.data.pipeline import (
    NO_LABEL,
    Augmentation,
    Share,
    evaluation_batches,
    training_batches,
    training_samples,
)
from train.data.sources import load
from train.data.transforms import image_ops

SIZE = (6, 5)
OPTIONS = {"image_size": SIZE, "batch_size": 4, "seed": 7}


def take(batches, count):
    return list(batches.take(count).as_numpy_iterator())


def training(split, count, **changes):
    return take(training_batches(split, **{**OPTIONS, **changes}), count)


def evaluation(split, count=99, **settings):
    return take(evaluation_batches(split, image_size=SIZE, **settings), count)


def assert_same(batches, expected):
    for found, wanted in zip(batches, expected, strict=True):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def joined(batches):
    """Returns the images and the labels of several batches."""
    return tuple(np.concatenate(parts) for parts in zip(*batches, strict=True))


def test_training_batches_are_static_and_in_range():
    batches = training_batches(numbered_split(10), **OPTIONS)
    images, labels = batches.element_spec
    assert images == tf.TensorSpec((4, 6, 5, 3), tf.float32)
    assert labels == tf.TensorSpec((4,), tf.int32)
    images, _ = take(batches, 1)[0]
    assert -1 <= images.min() < -0.5
    assert 0.5 < images.max() <= 1


# A buffer smaller than the split is what large data sets have.
@pytest.mark.parametrize("buffer", [50_000, 6])
def test_every_epoch_has_every_example_once_and_resumes_exactly(monkeypatch, buffer):
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", buffer)
    for count in (3, 24, 22):
        split = numbered_split(count)
        batches = training(split, count)
        epochs = joined(batches)[1].reshape(4, count)
        assert (np.sort(epochs) == np.arange(count)).all()
        assert count == 3 or len(np.unique(epochs, axis=0)) == 4
    # 22 examples by 4: the epochs end inside steps 5 and 16, and with step 10.
    for start_step in (1, 5, 6, 11, 17) if buffer == 6 else (5, 11):
        expected = batches[start_step : start_step + 6]
        assert_same(training(split, len(expected), start_step=start_step), expected)
    # To read all epochs before this step would take days.
    assert len(training(split, 1, start_step=10**12)) == 1


def test_order_and_crops_follow_the_seed_alone():
    split = numbered_split(10)
    expected = training(split, 10, flip=False)
    tf.random.set_seed(1234)
    under_another_global_seed = training(split, 10, flip=False)
    tf.random.set_seed(None)
    assert_same(under_another_global_seed, expected)
    images, labels = joined(expected)
    others = joined(training(split, 10, flip=False, seed=0))
    assert (images != others[0]).any() and (labels != others[1]).any()
    # One source image, so equal crops would be equal pixels.
    assert len(np.unique(images.reshape(40, -1), axis=0)) >= 38


def test_half_of_the_images_are_flipped_where_flips_are_on():
    split = numbered_split(20)
    image = next(iter(split.records()))[0].numpy()
    options = {"image_size": (12, 12), "crop": "resize"}
    straight = (image.astype(np.float32) - 127.5) / 127.5
    images, _ = joined(training(split, 5, flip=False, **options))
    np.testing.assert_allclose(images, np.stack([straight] * 20), atol=1e-6)
    images, _ = joined(training(split, 100, flip=True, **options))
    same, mirrored = (
        np.abs(images - one).max(axis=(1, 2, 3)) < 1e-6
        for one in (straight, straight[:, ::-1])
    )
    assert np.all(mirrored ^ same)
    # Four standard deviations of a fair coin.
    assert abs(mirrored.mean() - 0.5) < 4 * 0.5 / np.sqrt(400)


def test_labels_stay_with_their_images():
    split = load("digits").train
    by_image = {
        np.repeat(record, 3, axis=-1).tobytes(): int(label)
        for record, label in zip(*split.arrays, strict=True)
    }
    options = {"image_size": (8, 8), "crop": "resize", "flip": False}
    images, labels = joined(training(split, 50, **options))
    pixels = np.rint(images * 127.5 + 127.5).astype(np.uint8)
    assert [by_image[image.tobytes()] for image in pixels] == labels.tolist()


MIXUP = Augmentation(mixup=0.2)


UNUSABLE = [
    ({"crop": "centre"}, r'unknown crop "centre".*inception.*resize.*shift'),
    ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ({"start_step": -1}, "start_step must not be negative, got -1"),
    ({"share": Share(devices=3)}, "batch_size=4 .* 3 devices"),
    ({"share": Share(0, 2, 2), "augmentation": MIXUP}, "each of 2 hosts has a par"),
]


@pytest.mark.parametrize(("changes", "message"), UNUSABLE)
def test_unusable_arguments_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        training(numbered_split(10), 1, **changes)


SINGLE = Augmentation(rand_augment=(1, 9), random_erasing=0.5)


@pytest.mark.parametrize("augmentation", [MIXUP, Augmentation(cutmix=1.0), SINGLE])
def test_augmentation_resumes_exactly_and_on_any_devices(augmentation, monkeypatch):
    # The others are longer to trace, and have tests of their own.
    few = (image_ops.invert, image_ops.brightness, image_ops.cutout)
    monkeypatch.setattr(image_ops, "OPS", few)
    split = numbered_split(10)
    options = {"augmentation": augmentation, "classes": 10}
    whole = training(split, 4, **options)
    assert_same(training(split, 2, start_step=2, **options), whole[2:])
    assert (joined(training(split, 4))[0] != joined(whole)[0]).any()
    is_mixed = augmentation.mixup or augmentation.cutmix
    assert whole[0][1].ndim == (2 if is_mixed else 1)
    parts = training(split, 6, share=Share(devices=2), **options)
    assert_same([joined(parts[i : i + 2]) for i in (0, 2, 4)], whole[:3])


def test_hosts_share_the_batches_of_one():
    split = numbered_split(10)
    one, two = (training(split, 6, share=Share(host, 2, 4)) for host in range(2))
    for step, expected in enumerate(training(split, 3)):
        here = slice(2 * step, 2 * step + 2)
        assert_same([joined(one[here] + two[here])], [expected])


def test_evaluation_covers_the_ragged_end():
    split = numbered_split(10)
    batches = evaluation(split, batch_size=4)
    assert [len(labels) for _, labels in batches] == [4, 4, 2]
    images, labels = joined(batches)
    assert images.shape == (10, *SIZE, 3) and images.dtype == np.float32
    assert labels.tolist() == list(range(10)) and labels.dtype == np.int32
    for batch_size, sizes in ((4, [4, 4, 4]), (16, [10])):
        filled = evaluation(split, batch_size=batch_size, share=Share(filled=True))
        assert [len(labels) for _, labels in filled] == sizes
    hosts = [
        evaluation(split, batch_size=4, share=Share(host, 2, 2, filled=True))
        for host in range(2)
    ]
    shared = [part for parts in zip(*hosts, strict=True) for part in parts]
    assert joined(shared)[1].tolist() == [*range(10), NO_LABEL, NO_LABEL]
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        evaluation(split, batch_size=0)


def test_samples_of_training_are_those_it_begins_with():
    split, erasing = numbered_split(10), Augmentation(random_erasing=0.5)
    options = {"image_size": SIZE, "seed": 7, "augmentation": erasing, "crop": "resize"}
    samples = training_samples(split, 3, **options)
    [whole] = training(split, 1, batch_size=8, **options)
    assert_same([samples], [[values[:3] for values in whole]])
    _, labels = training_samples(split, 99, **options)
    assert sorted(labels) == list(range(10))
    mixed = {**options, "augmentation": MIXUP, "classes": 10}
    images, labels = training_samples(split, 4, **mixed)
    assert images.shape == (4, *SIZE, 3)
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)

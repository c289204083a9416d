import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from train.data import pipeline
from train.data.pipeline import (
    NO_LABEL,
    Augmentation,
    Share,
    check_readable,
    evaluation_batches,
    explained,
    training_batches,
    training_samples,
)
from train.data.sources import DataError, Split, load, record_ranges
from train.data.sources.splits import in_memory, pick
from train.data.transforms import image_ops

TFDS_DIR = Path(__file__).parents[4] / "shared" / "tfds"
OPTIONS = {"image_size": (6, 5), "batch_size": 4, "seed": 7}


def numbered_split(num_examples):
    """Examples whose label is their number, all with the same noise image."""
    image = np.random.RandomState(0).randint(0, 256, (12, 12, 3), np.uint8)

    def records():
        return tf.data.Dataset.range(num_examples).map(lambda number: (image, number))

    return Split(
        name="numbered",
        num_examples=num_examples,
        records=records,
        read=tf.identity,
        locate=lambda index: f"example {index}",
    )


def take(batches, count):
    return list(batches.take(count).as_numpy_iterator())


def assert_same(batches, expected):
    assert len(batches) == len(expected)
    for (images, labels), (other_images, other_labels) in zip(
        batches, expected, strict=True
    ):
        np.testing.assert_array_equal(labels, other_labels)
        np.testing.assert_array_equal(images, other_images)


def test_training_batches_are_static_and_in_range():
    batches = training_batches(numbered_split(10), **OPTIONS)
    images, labels = batches.element_spec
    assert images == tf.TensorSpec((4, 6, 5, 3), tf.float32)
    assert labels == tf.TensorSpec((4,), tf.int32)
    images, _ = take(batches, 1)[0]
    assert -1 <= images.min() < -0.5
    assert 0.5 < images.max() <= 1


# A buffer smaller than the split is what large data sets have.
@pytest.fixture(scope="module", params=[50_000, 6])
def whole(request):
    """A size of the buffer, 22 examples, and four epochs of their batches of 4."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", request.param)
        split = numbered_split(22)
        batches = take(training_batches(split, **OPTIONS), 22)
    return request.param, split, batches


def assert_epochs(batches, num_examples):
    labels = np.concatenate([labels for _, labels in batches])
    epochs = labels.reshape(4, num_examples)
    np.testing.assert_array_equal(
        np.sort(epochs), np.tile(np.arange(num_examples), (4, 1))
    )
    if num_examples > 3:
        assert len(np.unique(epochs, axis=0)) == 4


def test_every_epoch_takes_every_example_once(monkeypatch, whole):
    buffer, _, batches = whole
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", buffer)
    assert_epochs(batches, 22)
    for num_examples in (3, 24):
        options = {**OPTIONS, "image_size": (1, 1), "crop": "resize"}
        batches = training_batches(numbered_split(num_examples), **options)
        assert_epochs(take(batches, num_examples), num_examples)


def test_resume_is_exact(monkeypatch, whole):
    # 22 examples by 4: the epochs end inside steps 5 and 16, and with step 10.
    buffer, split, batches = whole
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", buffer)
    for start_step in (1, 5, 6, 11, 17) if buffer == 6 else (5, 11):
        resumed = training_batches(split, **OPTIONS, start_step=start_step)
        expected = batches[start_step : start_step + 6]
        assert_same(take(resumed, len(expected)), expected)


def test_resume_of_folder_images_is_exact(tmp_path):
    for part in ("train", "test"):
        for i in range(7):
            path = tmp_path / part / "a" / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise = np.random.RandomState(i).randint(0, 256, (9 + i, 20, 3), np.uint8)
            Image.fromarray(noise).save(path)
    split = load(str(tmp_path)).train
    whole = take(training_batches(split, **OPTIONS), 4)
    assert_same(take(training_batches(split, **OPTIONS, start_step=2), 2), whole[2:])


def test_far_start_reads_no_earlier_epoch():
    read = []

    def noted(number):
        read.append(int(number))
        return number

    image = np.zeros((2, 2, 3), np.uint8)

    def records():
        return tf.data.Dataset.range(10).map(
            lambda number: (image, tf.numpy_function(noted, [number], tf.int64))
        )

    split = numbered_split(10)
    split = Split(split.name, 10, records, split.read, split.locate)
    take(training_batches(split, **OPTIONS, start_step=10**9), 2)
    assert len(read) == 10


ONE_PIXEL = tf.io.encode_png(np.zeros((1, 1, 3), np.uint8)).numpy()


def sorted_files(tmp_path, numbers, files=1):
    """TFRecord files of examples whose label is their number."""
    for file, part in enumerate(np.array_split(numbers, files)):
        with tf.io.TFRecordWriter(str(tmp_path / f"train-{file}.tfrecord")) as writer:
            for number in part:
                writer.write(record_of(number))
    with tf.io.TFRecordWriter(str(tmp_path / "test.tfrecord")) as writer:
        writer.write(record_of(0))
    return undecoded(load(str(tmp_path)).train)


def undecoded(split):
    """The split with a black pixel for each image: the graph of decoding is large."""
    return dataclasses.replace(split, read=lambda record: tf.zeros((1, 1, 3), tf.uint8))


def record_of(number):
    feature = {
        "image/encoded": tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[ONE_PIXEL])
        ),
        "image/class/label": tf.train.Feature(
            int64_list=tf.train.Int64List(value=[number])
        ),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString()


def sorted_in_memory(numbers):
    split = in_memory(
        "sorted",
        np.full(len(numbers), ONE_PIXEL, object),
        np.asarray(numbers, np.int32),
        tf.identity,
        lambda index, record: f"example {index}",
    )
    return undecoded(split)


def assert_mixed(split, steps):
    """Batches of data sorted by 100 classes are like draws from all of them."""
    options = {"image_size": (1, 1), "crop": "resize", "seed": 0, "batch_size": 512}
    for step in steps:
        [(_, labels)] = take(training_batches(split, start_step=step, **options), 1)
        counts = np.bincount(labels * 100 // split.num_examples, minlength=100)
        # Of a uniform draw 0.6 are missing, and hardly ever 5.
        assert (counts == 0).sum() < 5, step
        # Of a uniform draw 1, and hardly ever 1 + 4 * sqrt(2 / 99) = 1.57.
        assert ((counts - 5.12) ** 2 / 5.12).sum() / 99 < 1.57, step


def test_a_list_in_memory_is_mixed_as_a_whole():
    """Of 200,000 examples of 100 classes, the first 512 had 26 of them."""
    split = sorted_in_memory(np.arange(200_000))
    assert_mixed(split, [0, 389])


def test_one_file_of_sorted_records_is_mixed_as_a_whole(monkeypatch, tmp_path):
    # 200,000 examples have as many buffers, and more ranges in one.
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 1_000)
    monkeypatch.setattr(record_ranges, "RECORDS", 1)
    split = sorted_files(tmp_path, np.arange(4_000))
    assert_mixed(split, [0, 10])


@pytest.mark.parametrize("kind", ["memory", "files", "some of files"])
def test_large_data_are_taken_once_and_resume_exactly(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 20)
    numbers = np.arange(100)
    if kind == "memory":
        split = sorted_in_memory(numbers)
    else:
        split = sorted_files(tmp_path, numbers, files=3)
    if kind == "some of files":
        numbers = np.delete(numbers, [0, 17, 18, 40, 99])
        # Of a part a part.
        split = pick(pick(split, np.arange(99)), numbers)
    options = {"image_size": (1, 1), "crop": "resize", "seed": 0, "batch_size": 5}
    steps = len(numbers) // 5
    whole = take(training_batches(split, **options), 2 * steps)
    labels = np.concatenate([labels for _, labels in whole]).reshape(2, -1)
    assert (np.sort(labels) == numbers).all()
    assert (labels[0] != labels[1]).any() and (labels[0] != numbers).any()
    for start in (steps - 1, steps + 3):
        resumed = training_batches(split, start_step=start, **options)
        assert_same(take(resumed, 4), whole[start : start + 4])


def test_order_and_crops_follow_the_seed_alone():
    split = numbered_split(40)
    options = {**OPTIONS, "seed": 0}
    expected = take(training_batches(split, **options), 3)
    tf.random.set_seed(1234)
    under_another_global_seed = take(training_batches(split, **options), 3)
    tf.random.set_seed(None)
    assert_same(under_another_global_seed, expected)
    other = take(training_batches(split, **{**OPTIONS, "seed": 8}), 3)
    assert any((a[1] != b[1]).any() for a, b in zip(other, expected, strict=True))
    assert any(
        not np.array_equal(a[0], b[0]) for a, b in zip(other, expected, strict=True)
    )


def test_crops_differ_by_example_and_by_epoch():
    # One source image, so equal crops would be equal pixels.
    batches = take(training_batches(numbered_split(10), **OPTIONS, flip=False), 10)
    images = np.concatenate([images for images, _ in batches])
    assert len(np.unique(images.reshape(40, -1), axis=0)) >= 38


def test_flip_can_be_switched_off():
    split = numbered_split(20)
    image = next(iter(split.records()))[0].numpy()
    options = {**OPTIONS, "image_size": (12, 12), "crop": "resize"}
    straight = (image.astype(np.float32) - 127.5) / 127.5
    for images, _ in take(training_batches(split, **options, flip=False), 5):
        np.testing.assert_allclose(images, np.stack([straight] * 4), atol=1e-6)
    batches = take(training_batches(split, **options, flip=True), 100)
    images = np.concatenate([images for images, _ in batches])
    mirrored = np.abs(images - straight[:, ::-1]).max(axis=(1, 2, 3)) < 1e-6
    same = np.abs(images - straight).max(axis=(1, 2, 3)) < 1e-6
    assert np.all(mirrored ^ same)
    # Four standard deviations of a fair coin.
    assert abs(mirrored.mean() - 0.5) < 4 * 0.5 / np.sqrt(400)


def test_labels_stay_with_their_images():
    source = load("digits")
    by_image = {
        np.repeat(record, 3, axis=-1).tobytes(): int(label)
        for record, label in zip(*source.train.arrays, strict=True)
    }
    batches = training_batches(
        source.train,
        image_size=(8, 8),
        batch_size=50,
        seed=0,
        crop="resize",
        flip=False,
    )
    for images, labels in take(batches, 4):
        pixels = np.rint(images * 127.5 + 127.5).astype(np.uint8)
        assert [by_image[image.tobytes()] for image in pixels] == labels.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"crop": "centre"}, r'unknown crop "centre".*inception.*resize.*shift'),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"start_step": -1}, "start_step must not be negative, got -1"),
    ],
)
def test_unusable_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        training_batches(numbered_split(10), **{**OPTIONS, **changes})


AUGMENTATIONS = {
    "mixup": Augmentation(mixup=0.2),
    "cutmix": Augmentation(cutmix=1.0),
    "single images": Augmentation(rand_augment=(1, 9), random_erasing=0.5),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentation_resumes_exactly_and_on_any_devices(name, monkeypatch):
    # The others are longer to trace, and have tests of their own.
    few = (image_ops.invert, image_ops.brightness, image_ops.cutout)
    monkeypatch.setattr(image_ops, "OPS", few)
    split = numbered_split(10)
    options = {**OPTIONS, "augmentation": AUGMENTATIONS[name], "classes": 10}
    whole = take(training_batches(split, **options), 4)
    assert_same(take(training_batches(split, start_step=2, **options), 2), whole[2:])
    plain = take(training_batches(split, **OPTIONS), 4)
    assert any(
        (mine[0] != theirs[0]).any() for mine, theirs in zip(whole, plain, strict=True)
    )
    labels = np.stack([labels for _, labels in whole])
    assert labels.ndim == (2 if name == "single images" else 3)
    parts = take(training_batches(split, share=Share(devices=2), **options), 6)
    both = [
        tuple(np.concatenate(pair) for pair in zip(*parts[i : i + 2], strict=True))
        for i in (0, 2, 4)
    ]
    assert_same(both, whole[:3])


def test_hosts_share_the_batches_of_one():
    split = numbered_split(10)
    whole = take(training_batches(split, **OPTIONS), 3)
    hosts = [
        take(training_batches(split, share=Share(host, 2, 4), **OPTIONS), 6)
        for host in range(2)
    ]
    for step, (images, labels) in enumerate(whole):
        parts = [part for host in hosts for part in host[2 * step : 2 * step + 2]]
        both = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        np.testing.assert_array_equal(both[0], images)
        np.testing.assert_array_equal(both[1], labels)
    with pytest.raises(ValueError, match="each of 2 hosts has a part"):
        training_batches(
            split,
            share=Share(0, 2, 2),
            augmentation=Augmentation(mixup=0.2),
            **OPTIONS,
        )
    with pytest.raises(ValueError, match="batch_size=4 .* 3 devices"):
        training_batches(split, share=Share(devices=3), **OPTIONS)


def test_hosts_share_an_evaluation():
    split = numbered_split(10)
    whole = take(evaluation_batches(split, image_size=(6, 5), batch_size=4), 3)
    labels = np.concatenate([labels for _, labels in whole])
    hosts = [
        take(
            evaluation_batches(
                split, image_size=(6, 5), batch_size=4, share=Share(host, 2, 2, True)
            ),
            4,
        )
        for host in range(2)
    ]
    assert len(hosts[0]) == len(hosts[1]) == 3
    found = np.concatenate(
        [np.concatenate([one[1], two[1]]) for one, two in zip(*hosts, strict=True)]
    )
    assert found.tolist() == [*labels.tolist(), NO_LABEL, NO_LABEL]


def test_evaluation_covers_the_ragged_end():
    batches = evaluation_batches(numbered_split(10), image_size=(6, 5), batch_size=4)
    images, labels = zip(*batches.as_numpy_iterator(), strict=True)
    assert [len(part) for part in labels] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate(labels), np.arange(10))
    assert images[2].shape == (2, 6, 5, 3)
    assert images[2].dtype == np.float32
    assert labels[2].dtype == np.int32
    for batch_size, sizes in ((4, [4, 4, 4]), (16, [10])):
        filled = evaluation_batches(
            numbered_split(10),
            image_size=(6, 5),
            batch_size=batch_size,
            share=Share(filled=True),
        )
        labels = [labels for _, labels in filled.as_numpy_iterator()]
        assert [len(part) for part in labels] == sizes
        labels = np.concatenate(labels)
        np.testing.assert_array_equal(labels[:10], np.arange(10))
        assert (labels[10:] == NO_LABEL).all()
    settings = {"image_size": (6, 5), "batch_size": 0}
    for share in (Share(), Share(devices=2)):
        with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
            evaluation_batches(numbered_split(10), **settings, share=share)


def test_evaluation_resizes_and_scales():
    split = load("digits").test
    record, _ = next(iter(split.records()))
    images, _ = next(iter(evaluation_batches(split, image_size=(8, 8), batch_size=3)))
    expected = np.repeat(record.numpy(), 3, axis=-1) / 127.5 - 1
    np.testing.assert_allclose(images[0], expected, atol=1e-6)


def failing():
    raise tf.errors.InvalidArgumentError(None, None, "strange shapes")
    yield


def test_corrupt_images_are_named(tmp_path):
    for part in ("train", "test"):
        for i in range(14):
            path = tmp_path / part / "a" / f"{i:02}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8)).save(path)
    for i in range(12):
        (tmp_path / "train" / "a" / f"{i:02}.jpg").write_bytes(b"\xff\xd8\xff")
    split = load(str(tmp_path)).train
    with pytest.raises(DataError) as caught:
        list(explained(failing(), split))
    message = str(caught.value)
    assert message.startswith(f"12 of the 14 images of {split.name} cannot be decoded")
    assert str(tmp_path / "train" / "a" / "09.jpg") in message
    assert "10.jpg and" not in message
    assert "and 2 more; save them again" in message
    assert "--skip_corrupt" in message
    check_readable(numbered_split(3), None)
    both = load(str(tmp_path))
    with pytest.raises(DataError, match=r"12 of the 28 images of .*train and .*test "):
        check_readable(both.train, None, both.test)


def test_samples_of_training_are_those_it_begins_with():
    split = numbered_split(10)
    options = {
        "image_size": (6, 5),
        "seed": 7,
        "augmentation": Augmentation(random_erasing=0.5),
        "crop": "resize",
    }
    images, labels = training_samples(split, 3, **options)
    [whole] = take(training_batches(split, batch_size=8, **options), 1)
    np.testing.assert_array_equal(images, whole[0][:3])
    np.testing.assert_array_equal(labels, whole[1][:3])
    images, labels = training_samples(split, 99, **options)
    assert sorted(labels) == list(range(10))


def test_samples_of_mixed_images():
    images, labels = training_samples(
        numbered_split(10),
        4,
        image_size=(6, 5),
        seed=7,
        augmentation=Augmentation(mixup=0.2),
        classes=10,
    )
    assert images.shape == (4, 6, 5, 3)
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)


def test_an_image_cut_short_is_named_once_a_crop_reaches_the_damage(tmp_path):
    for part in ("train", "test"):
        path = tmp_path / part / "a" / "0.jpg"
        path.parent.mkdir(parents=True)
        noise = np.random.RandomState(0).randint(0, 256, (64, 64, 3), np.uint8)
        Image.fromarray(noise).save(path)
    path = tmp_path / "train" / "a" / "0.jpg"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    split = load(str(tmp_path)).train
    with pytest.raises(DataError, match=rf"1 of the 1 images .*{path}"):
        list(explained(training_batches(split, **OPTIONS).take(20), split))


def test_error_that_no_image_explains():
    with pytest.raises(
        DataError, match="numbered failed although every image decodes: strange shapes"
    ):
        list(explained(failing(), numbered_split(3)))


@pytest.mark.skipif(
    not (TFDS_DIR / "cifar100").is_dir(), reason=f"no cifar100 in {TFDS_DIR}"
)
def test_cifar100_resumes_across_the_epoch():
    split = load("cifar100", TFDS_DIR, validation_fraction=0.99).train
    options = {"image_size": (16, 16), "batch_size": 64, "seed": 3}
    # 500 examples: step 7 spans two epochs.
    whole = take(training_batches(split, **options), 10)
    assert_same(take(training_batches(split, **options, start_step=6), 4), whole[6:])

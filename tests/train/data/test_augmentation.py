import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats

from train.data.transforms import image_ops
from train.data.transforms.augmentation import rand_augment, random_erasing
from train.data.transforms.mixing import cutmix, mixup

NAMES = [op.__name__ for op in image_ops.OPS]


def photo_like(height, width, seed=0):
    """Smooth blobs with noise, dull enough to be stretched."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(20, 220, (5, 6, 3), dtype=np.uint8)
    image = np.asarray(Image.fromarray(coarse).resize((width, height))).astype(int)
    noise = rng.integers(-12, 13, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def factor(magnitude):
    return magnitude / 10 * 1.8 + 0.1


# Operations of Pillow on an image and a magnitude.
PILLOW = {
    "auto_contrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "invert": lambda image, _: ImageOps.invert(image),
    # Pillow would keep no bit at magnitude 0; TensorFlow shifts by seven bits at most.
    "posterize": lambda image, m: ImageOps.posterize(image, max(int(m / 10 * 4), 1)),
    "solarize": lambda image, m: ImageOps.solarize(image, int(m / 10 * 256) % 256),
    "color": lambda image, m: ImageEnhance.Color(image).enhance(factor(m)),
    "brightness": lambda image, m: ImageEnhance.Brightness(image).enhance(factor(m)),
    "sharpness": lambda image, m: ImageEnhance.Sharpness(image).enhance(factor(m)),
}


@pytest.mark.parametrize("name", PILLOW)
def test_operations_are_those_of_pillow(name):
    # Rounding, which colour and sharpness multiply by up to 3.7.
    tolerance = {"auto_contrast": 1, "brightness": 1, "color": 4, "sharpness": 4}
    for magnitude in (0, 7, 10, 15, 20):
        for shape in ((40, 61), (9, 7), (64, 3)):
            image = photo_like(*shape)
            op, level = getattr(image_ops, name), magnitude / 10
            found = op(tf.constant(image), level, (0, 0)).numpy()
            expected = PILLOW[name](Image.fromarray(image), magnitude)
            error = np.abs(found - np.asarray(expected).astype(int))
            assert error.max() <= tolerance.get(name, 0), (magnitude, shape)


@pytest.mark.parametrize("name", NAMES)
def test_operations_have_the_bits_that_earlier_runs_had(goldens, name):
    """Recorded where keras-cv 0.9 moved the images, by TensorFlow 2.21."""
    op = getattr(image_ops, name)
    with np.load(goldens / "image_ops.npz") as recorded:
        keys = [key for key in recorded.files if key.startswith(f"{name}/")]
        assert len(keys) >= 4
        for key in keys:
            _, magnitude, seed, number = key.split("/")
            image = tf.constant(recorded[f"image{number}"])
            found = op(image, int(magnitude) / 10, (int(seed), 5))
            if name == "sharpness":
                # A smoothed value that is a whole number becomes it or the one below,
                # by the order in which the processor adds its nine products.
                error = np.abs(found.numpy() - recorded[key].astype(int))
                assert error.max() <= factor(int(magnitude)) + 1, key
                assert (error > 0).mean() < 0.01, key
                continue
            np.testing.assert_array_equal(found, recorded[key], err_msg=key)


@pytest.mark.parametrize("value", [0, 7, 255])
def test_one_colour_is_no_histogram_to_stretch(value):
    image = tf.constant(np.full((5, 6, 3), value, np.uint8))
    for op in (image_ops.auto_contrast, image_ops.equalize):
        np.testing.assert_array_equal(op(image, 1.0, (0, 0)), image)


def seeds(count):
    return tf.data.Dataset.range(count).map(
        lambda k: tf.stack([tf.cast(3, k.dtype), k])
    )


def test_each_layer_takes_each_operation_equally_often(monkeypatch):
    ops = [lambda image, level, seed, k=k: image * 0 + k for k in range(16)]
    monkeypatch.setattr(image_ops, "OPS", ops)
    image = tf.zeros((1, 1, 3), tf.uint8)
    found = seeds(3200).map(lambda seed: rand_augment(image, 2, 10, seed)[0, 0, 0])
    counts = np.bincount(list(found.as_numpy_iterator()), minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_layers_follow_one_another(monkeypatch):
    def count(image, level, seed):
        assert level == 1.5
        return image + 1

    monkeypatch.setattr(image_ops, "OPS", [count])
    image = tf.zeros((3, 3, 3), tf.uint8)
    for layers in (0, 1, 3):
        found = rand_augment(image, layers, 15, (0, 0))
        np.testing.assert_array_equal(found, np.full((3, 3, 3), layers))


def test_images_of_any_size_follow_their_seed_alone_in_graphs_and_eagerly():
    specs = tf.TensorSpec((2,), tf.int32), tf.TensorSpec((None, None, 3), tf.uint8)

    def augment(seed, image):
        return rand_augment(image, 2, 15, seed)

    graph, found = tf.function(augment, input_signature=specs), set()
    for number, shape in enumerate(((30, 40), (17, 5), (64, 64), (3, 3)) * 4):
        image = tf.constant(photo_like(*shape))
        one = graph((1, number), image).numpy()
        assert one.shape == image.shape
        tf.random.set_seed(number)
        np.testing.assert_array_equal(one, augment((1, number), image))
        found.add(one.tobytes())
    assert len(found) > 12


@pytest.mark.parametrize(
    ("dtype", "layers", "magnitude", "message"),
    [
        (tf.float32, 2, 10, "takes uint8 images, got float32: cast"),
        (tf.uint8, -1, 10, "num_layers must not be negative"),
        (tf.uint8, 2, -1, "magnitude must not be negative"),
    ],
)
def test_what_rand_augment_refuses(dtype, layers, magnitude, message):
    with pytest.raises(ValueError, match=message):
        rand_augment(tf.zeros((4, 4, 3), dtype), layers, magnitude, (0, 0))


def test_erased_rectangles_are_those_of_the_paper():
    image = tf.zeros((80, 100, 3), tf.float32) - 1

    def box(seed):
        return random_erasing(image, seed, probability=1.0) >= 0

    rng = np.random.default_rng(0)
    expected, found = [], []
    for inside in seeds(600).map(box).as_numpy_iterator():
        rows, columns = inside.any(axis=(1, 2)), inside.any(axis=(0, 2))
        assert inside.sum() == 3 * rows.sum() * columns.sum()
        places = [np.flatnonzero(side) for side in (rows, columns)]
        found.append([places[0][0], places[1][0], len(places[0]), len(places[1])])
    while len(expected) < 600:
        area, aspect = rng.uniform(0.02, 0.4) * 8000, rng.uniform(0.3, 1 / 0.3)
        height, width = np.sqrt(area * aspect), np.sqrt(area / aspect)
        top, left = rng.uniform(0, 80), rng.uniform(0, 100)
        if top + height <= 80 and left + width <= 100:
            expected.append([top, left, height, width])
    for one, other in zip(np.transpose(found), np.transpose(expected), strict=True):
        assert stats.ks_2samp(one + 0.5 * (one == one.astype(int)), other).pvalue > 1e-4


def test_erasing_takes_its_share_and_fills_with_noise():
    image = tf.zeros((40, 40, 3), tf.uint8)
    found = seeds(400).map(lambda seed: random_erasing(image, seed))
    found = np.stack([*found.as_numpy_iterator()])
    erased = found.any(axis=(1, 2, 3))
    assert abs(erased.mean() - 0.5) < 4 * 0.5 / 20
    values = found[found > 0]
    assert values.min() == 1 and values.max() == 255
    assert abs(values.mean() - 128) < 2


def batch(size=6):
    images = np.random.default_rng(0).normal(size=(size, 8, 10, 3)).astype("float32")
    return tf.constant(images), tf.one_hot(np.arange(size) % 4, 4)


def test_mixup_is_that_of_the_released_code():
    images, labels = batch()
    mixed, mixed_labels = mixup(images, labels, 0.2, (0, 2))
    share = float(mixed_labels[1, 1])
    assert 0.5 <= share < 1
    for found, values in ((mixed, images), (mixed_labels, labels)):
        values = values.numpy().astype("float64")
        expected = share * values + (1 - share) * np.roll(values, 1, axis=0)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert found.dtype == tf.float32


@pytest.mark.parametrize("alpha", [0.2, 0.8])
def test_the_weight_of_mixup_is_the_larger_part_of_a_beta(alpha):
    images, labels = batch(3)
    shares = seeds(1500).map(lambda s: mixup(images, labels, alpha, s)[1][1, 1])
    shares = np.array(list(shares.as_numpy_iterator()))
    beta = stats.beta(alpha, alpha)
    result = stats.kstest(shares, lambda a: beta.cdf(a) - beta.cdf(1 - a))
    assert result.pvalue > 1e-3


def test_cutmix_takes_a_rectangle_and_its_part_of_the_labels():
    images, labels = batch()
    areas = []
    for seed in range(60):
        mixed, mixed_labels = cutmix(images, labels, 1.0, (0, seed))
        inside = (mixed == np.roll(images, 1, axis=0)).numpy().all(axis=(0, 3))
        assert np.all(inside ^ (mixed == images).numpy().all(axis=(0, 3)))
        rows, columns = inside.any(axis=1).sum(), inside.any(axis=0).sum()
        assert inside.sum() == rows * columns
        left = 1 - inside.mean()
        expected = left * labels + (1 - left) * np.roll(labels, 1, axis=0)
        np.testing.assert_allclose(mixed_labels, expected, atol=1e-6)
        areas.append(inside.mean())
    assert min(areas) < 0.1 < 0.5 < max(areas)


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_mixing_follows_its_seed_alone(mix):
    images, labels = batch()
    graph = tf.function(mix)
    one, again = (graph(images, labels, 0.8, (1, 2))[0].numpy() for _ in "ab")
    np.testing.assert_array_equal(one, again)
    np.testing.assert_allclose(mix(images, labels, 0.8, (1, 2))[0], one, atol=1e-6)
    assert np.abs(mix(images, labels, 0.8, (1, 3))[0] - one).max() > 0.1
    unchanged, same = mix(images, labels, 0, (1, 2))
    assert unchanged is images and same is labels
    with pytest.raises(ValueError, match="alpha must not be negative, got -1"):
        mix(images, labels, -1, (1, 2))
    with pytest.raises(ValueError, match=r"got labels of shape \(6,\).*tf.one_hot"):
        mix(images, tf.range(6), 0.8, (1, 2))

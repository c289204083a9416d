"""Photos without TensorFlow, against TensorFlow and what evaluation does by it."""

import numpy as np
import pytest
from made_photos import HEIGHT, PIXELS, WIDTH, encode, picture
from PIL import Image

from zoo import photos
from zoo.photos import files, resizing


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.mark.parametrize("size", [(224, 224), (1, 1), (43, 67), (7, 301), (42, 68)])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
def test_resize_has_the_numbers_of_tensorflow(size, dtype, tf):
    random = np.random.RandomState(1)
    for height, width in [(43, 67), (300, 200), (1, 5), (224, 224), (9, 4000)]:
        image = random.randint(0, 256, (height, width, 3)).astype(dtype)
        expected = tf.image.resize(
            image.astype("float32"), size, method="bilinear", antialias=False
        )
        found = photos.resize(image, size)
        assert (found.dtype, found.shape) == ("float32", (*size, 3))
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", [(43, 67), (300, 200), (500, 375), (20, 999), (9, 9)])
@pytest.mark.parametrize("size", [(224, 224), (28, 28), (32, 48), (96, 32)])
def test_the_central_crop_is_that_of_big_vision(shape, size, tf):
    """Its `resize_small(256, "area")` and `central_crop(224)`, for any size."""
    image = np.random.RandomState(3).randint(0, 256, (*shape, 3), np.uint8)
    scale = tf.reduce_max(np.float32(size) / np.float32(shape)) * 8 / 7
    bigger = tf.maximum(tf.cast(tf.round(np.float32(shape) * scale), tf.int32), size)
    expected = tf.image.resize(image, bigger, method="area")
    expected = tf.image.resize_with_crop_or_pad(expected, *size)
    found = photos.prepare(image, size, "central crop")
    assert found.shape == (*size, 3)
    # TensorFlow's places are in float32, which moves edges by 1e-4 of a pixel.
    np.testing.assert_allclose(found * 127.5 + 127.5, expected, atol=0.05, rtol=0)


def test_the_sides_of_central_crops_are_rounded_as_in_evaluation(tf):
    """In float64 some would be rounded to the other number."""
    shapes = np.random.RandomState(4).randint(1, 5000, (20_000, 2))
    for size in [(224, 224), (384, 384), (28, 28), (160, 96)]:
        sides = tf.cast(shapes, tf.float32)
        scale = tf.reduce_max(tf.constant(size, tf.float32) / sides, axis=1) * 8 / 7
        expected = tf.cast(tf.round(sides * scale[:, None]), tf.int32)
        expected = tf.maximum(expected, size).numpy()
        found = [resizing._bigger(shape, size) for shape in shapes]
        np.testing.assert_array_equal(found, expected)


def test_a_photo_may_be_bytes_a_path_or_opened(tmp_path):
    encoded = encode(PIXELS, "JPEG")
    path = tmp_path / "photo"  # no ending: the content decides
    path.write_bytes(encoded)
    expected = photos.decode(encoded)
    with Image.open(path) as image:
        for photo in (bytearray(encoded), memoryview(encoded), path, str(path), image):
            found = photos.decode(photo)
            assert found.dtype == "uint8"
            np.testing.assert_array_equal(found, expected)


def test_avif_is_read_where_pillow_reads_it(trained, monkeypatch):
    if not files.reads_avif():
        assert ".avif" not in photos.endings()
        pytest.skip("Pillow was built without AVIF")
    assert ".avif" in photos.endings()
    encoded = encode(PIXELS, "AVIF", quality=95)
    found = photos.decode(encoded)
    assert np.abs(found.astype(int) - PIXELS).mean() < 10
    np.testing.assert_array_equal(trained(encoded), found)
    monkeypatch.setattr(files, "reads_avif", lambda: False)
    with pytest.raises(ValueError, match="cannot be read as an image"):
        photos.decode(encoded)


@pytest.mark.parametrize("turn", [None, 6])
def test_heic(turn, trained):
    pytest.importorskip("pillow_heif").register_heif_opener()
    assert photos.reads_heic() and ".heic" in photos.endings()
    encoded = encode(PIXELS, "HEIF", turn=turn, quality=95)
    found = photos.decode(encoded)
    # Its own turn counts; that of its EXIF is a copy.
    assert found.shape == PIXELS.shape
    np.testing.assert_array_equal(found, trained(encoded))
    assert np.abs(found.astype(int) - PIXELS).mean() < 10


def test_without_its_decoder_heic_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "reads_heic", lambda: False)
    assert ".heic" not in photos.endings() and ".webp" in photos.endings()
    path = tmp_path / "IMG_1.HEIC"
    path.write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(ValueError, match="IMG_1.HEIC cannot .*pip install pillow-heif"):
        photos.decode(path)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float32", "float64"])
def test_arrays(dtype):
    image = PIXELS
    four = np.dstack([image, image[..., 0]])
    for array in (image, image[..., :1], image[..., 0], four):
        found = photos.decode(array.astype(dtype))
        assert found.shape == (HEIGHT, WIDTH, 3) and found.dtype == dtype
        gray = array.ndim == 2 or array.shape[2] == 1
        np.testing.assert_array_equal(found, image[..., [0, 0, 0]] if gray else image)
    black = np.zeros((2, 2, 3), dtype)
    np.testing.assert_array_equal(photos.decode(black), black)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 4, 4, 3), "uint8"), r"got shape \(2, 4, 4, 3\): give several"),
        (np.zeros((4, 4, 2), "uint8"), r"got shape \(4, 4, 2\)"),
        (np.zeros((0, 4, 3), "uint8"), r"got shape \(0, 4, 3\)"),
        (np.zeros(4, "uint8"), r"got shape \(4,\)"),
        (np.full((4, 4, 3), -1.0), "-1 to -1: leave preprocess_input out"),
        (np.full((4, 4, 3), 0.5), "0.5 to 0.5: multiply them by 255"),
        (np.full((4, 4, 3), 256), "256 to 256: scale them"),
        (np.full((4, 4, 3), np.nan), "nan to nan: scale them"),
        (np.zeros((4, 4, 3), bool), r"array of numbers, got array\(\[\[\[False"),
        (np.zeros((4, 4, 3), complex), r"array of numbers, got array\(\[\[\[0.\+0.j"),
        (None, "array of numbers, got None"),
    ],
)
def test_arrays_that_are_no_photo(array, message):
    with pytest.raises(ValueError, match=message):
        photos.decode(array)


def test_prepare_as_evaluation_does(tf, trained):
    from train.data.transforms.preprocessing import squash, to_model_range

    encoded = encode(picture(300, 200), "PNG")
    for size, pair in ((224, (224, 224)), ((32, 48), (32, 48))):
        expected = to_model_range(squash(trained(encoded), pair))
        found = photos.prepare(encoded, size)
        assert (found.dtype, found.shape) == ("float32", (*pair, 3))
        np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="squash, central crop, or like .* got 'crop'"):
        photos.prepare(PIXELS, 32, "crop")
    with pytest.raises(ValueError, match="image_size"):
        photos.prepare(PIXELS, 0)


def test_gray_models_get_the_luminance(tf):
    gray = encode(PIXELS, "PNG", "L")
    found = photos.prepare(gray, (HEIGHT, WIDTH), channels=1)
    pixels = tf.io.decode_png(gray, channels=1).numpy()
    np.testing.assert_allclose(found, pixels / 127.5 - 1, atol=1e-5, rtol=0)
    # As the decoder of exported models has it, which rounds to levels.
    encoded = encode(PIXELS, "JPEG")
    found = photos.prepare(encoded, (HEIGHT, WIDTH), channels=1)
    pixels = tf.io.decode_jpeg(encoded, channels=1).numpy()
    assert found.shape == (HEIGHT, WIDTH, 1)
    assert np.abs(found * 127.5 + 127.5 - pixels).max() < 4

"""Photos without TensorFlow, against TensorFlow and what evaluation does by it."""

import io
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from zoo import photos
from zoo.photos import files, resizing

HEIGHT, WIDTH = 43, 67
SIZES = [(224, 224), (1, 1), (43, 67), (64, 32), (7, 301), (100, 50), (42, 68)]


def picture(height=HEIGHT, width=WIDTH, seed=0):
    """A smooth image whose parts all differ."""
    pixels = np.random.RandomState(seed).randint(0, 256, (7, 9, 3), np.uint8)
    return np.asarray(Image.fromarray(pixels).resize((width, height)))


def encode(pixels, file_format, mode="RGB", turn=None, **options):
    if turn is not None:
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = turn
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, file_format, **options)
    return stream.getvalue()


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def evaluated(tf):
    """Decodes bytes as evaluation does."""
    from train.data.transforms.decoding import decode_image

    return lambda encoded: decode_image(tf.constant(encoded)).numpy()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
def test_resize_has_the_numbers_of_tensorflow(size, dtype, tf):
    random = np.random.RandomState(1)
    for height, width in [(43, 67), (300, 200), (1, 5), (224, 224)]:
        image = random.randint(0, 256, (height, width, 3)).astype(dtype)
        expected = tf.image.resize(
            image.astype("float32"), size, method="bilinear", antialias=False
        )
        found = photos.resize(image, size)
        assert (found.dtype, found.shape) == ("float32", (*size, 3))
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)


def test_resize_of_a_photo_of_a_phone(tf):
    image = np.random.RandomState(2).randint(0, 256, (3000, 4000, 3), np.uint8)
    expected = tf.image.resize(image, (384, 384), method="bilinear", antialias=False)
    np.testing.assert_allclose(
        photos.resize(image, (384, 384)), expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    "shape",
    [(43, 67), (67, 43), (300, 200), (256, 341), (500, 375), (20, 999), (9, 9)],
)
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


LOSSLESS = {
    "png": ("PNG", {}),
    "png, transparent": ("PNG", {"mode": "RGBA"}),
    "png, gray": ("PNG", {"mode": "L"}),
    "png, gray and transparent": ("PNG", {"mode": "LA"}),
    "png, palette": ("PNG", {"mode": "P"}),
    "png, black and white": ("PNG", {"mode": "1"}),
    "bmp": ("BMP", {}),
    "bmp, palette": ("BMP", {"mode": "P"}),
    "gif": ("GIF", {}),
    "gif, animated": (
        "GIF",
        {"save_all": True, "append_images": [Image.new("RGB", (WIDTH, HEIGHT))]},
    ),
    "webp": ("WEBP", {"lossless": True}),
    "webp, lossy": ("WEBP", {"quality": 60}),
    "webp, transparent": ("WEBP", {"mode": "RGBA", "lossless": True, "exact": True}),
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_decode_has_the_pixels_that_evaluation_has(name, evaluated, tmp_path):
    file_format, options = LOSSLESS[name]
    encoded = encode(picture(), file_format, **options)
    expected = evaluated(encoded)
    path = tmp_path / "photo"  # no ending: the content decides
    path.write_bytes(encoded)
    for photo in (encoded, bytearray(encoded), memoryview(encoded), path, str(path)):
        found = photos.decode(photo)
        assert found.dtype == "uint8"
        np.testing.assert_array_equal(found, expected)
    with Image.open(path) as image:
        np.testing.assert_array_equal(photos.decode(image), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": "4:4:4"},
        {"subsampling": "4:2:0"},
        {"subsampling": "4:2:2", "progressive": True},
        {"mode": "L"},
        {"mode": "CMYK"},
    ],
)
def test_jpegs_are_the_same_in_evaluation(options, evaluated):
    encoded = encode(picture(), "JPEG", **options)
    found = photos.decode(encoded)
    assert found.shape == (HEIGHT, WIDTH, 3)
    np.testing.assert_array_equal(found, evaluated(encoded))


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize(
    ("file_format", "options"),
    [("JPEG", {}), ("PNG", {}), ("WEBP", {"lossless": True})],
)
def test_photos_stand_upright(file_format, options, turn, evaluated):
    encoded = encode(picture(), file_format, turn=turn, **options)
    found, expected = photos.decode(encoded), evaluated(encoded)
    assert found.shape == ((HEIGHT, WIDTH, 3) if turn < 5 else (WIDTH, HEIGHT, 3))
    np.testing.assert_array_equal(found, expected)


def test_further_images_of_a_jpeg_are_left_out(evaluated):
    """MPO: a photo of a phone with its depth map behind it, say."""
    more = Image.fromarray(picture(seed=1))
    encoded = encode(picture(), "MPO", save_all=True, append_images=[more])
    assert Image.open(io.BytesIO(encoded)).format == "MPO"
    np.testing.assert_array_equal(photos.decode(encoded), evaluated(encoded))


@pytest.mark.parametrize("turn", [None, 6])
def test_heic(turn, evaluated):
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    assert photos.reads_heic() and ".heic" in photos.endings()
    encoded = encode(picture(), "HEIF", turn=turn, quality=95)
    found = photos.decode(encoded)
    # Its own turn counts; that of its EXIF is a copy.
    assert found.shape == (HEIGHT, WIDTH, 3)
    np.testing.assert_array_equal(found, evaluated(encoded))
    assert np.abs(found.astype(int) - picture()).mean() < 10


def test_without_its_decoder_heic_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "reads_heic", lambda: False)
    assert ".heic" not in photos.endings() and ".webp" in photos.endings()
    path = tmp_path / "IMG_1.HEIC"
    path.write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(ValueError, match="IMG_1.HEIC cannot .*pip install pillow-heif"):
        photos.decode(path)


def test_16_bits_have_the_higher_8(evaluated):
    levels = np.arange(HEIGHT * WIDTH, dtype="uint16").reshape(HEIGHT, WIDTH) * 22
    image = Image.fromarray(levels)
    assert image.mode == "I;16"
    stream = io.BytesIO()
    image.save(stream, "PNG")
    expected = np.repeat((levels >> 8).astype("uint8")[..., None], 3, axis=2)
    for photo in (image, stream.getvalue()):
        np.testing.assert_array_equal(photos.decode(photo), expected)
    np.testing.assert_array_equal(evaluated(stream.getvalue()), expected)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_images_of_pillow_with_numbers_are_as_arrays(mode):
    image = Image.fromarray(picture()[..., 0]).convert(mode)
    found = photos.decode(image)
    np.testing.assert_array_equal(found, picture()[..., [0, 0, 0]])
    with pytest.raises(ValueError, match="scale them to that range"):
        photos.decode(image.point(lambda value: value * 256 + 0))


HOSTILE = {
    "nothing": b"",
    "text": b"no image",
    "jpeg's start": b"\xff\xd8\xff",
    "half a jpeg": encode(picture(), "JPEG")[:900],
    "half a png": encode(picture(), "PNG")[:900],
    "half a webp": encode(picture(), "WEBP")[:200],
    "gif's start": b"GIF89a",
    "another format": encode(picture(), "TGA"),
    "code": encode(picture(), "EPS"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_photo(name, tmp_path):
    content = HOSTILE[name]
    with pytest.raises(ValueError, match="This file cannot be read .*JPEG or PNG"):
        photos.decode(content)
    path = tmp_path / "a\x1b[2J.jpg"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read as an image") as caught:
        photos.decode(path)
    assert "\x1b" not in str(caught.value) and "x1b[2J.jpg" in str(caught.value)


def test_too_many_pixels():
    """A bitmap that says it has 10 billion of them."""
    bomb = b"BM6\0\0\0\0\0\0\0" + b"6\0\0\0(\0\0\0" + 2 * b"\xa0\x86\x01\0"
    bomb += b"\x01\0\x18\0" + 24 * b"\0"
    message = (
        r"This file cannot be read as an image \(Image size \(10000000000 pixels\) "
        r"exceeds limit of 178956970 pixels\): save it smaller\."
    )
    with pytest.raises(ValueError, match=message):
        photos.decode(bomb)


def test_an_opened_image_that_is_damaged():
    image = Image.open(io.BytesIO(HOSTILE["half a png"]))
    with pytest.raises(ValueError, match="An image of mode RGB cannot be read"):
        photos.decode(image)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone.jpg"):
        photos.decode(tmp_path / "gone.jpg")
    with pytest.raises(OSError, match=tmp_path.name):
        photos.decode(str(tmp_path))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float32", "float64"])
def test_arrays(dtype):
    image = picture()
    for array in (
        image,
        image[..., :1],
        image[..., 0],
        np.dstack([image, image[..., 0]]),
    ):
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
        (np.full((4, 4, 3), np.inf), "inf to inf: scale them"),
        (np.zeros((4, 4, 3), bool), r"array of numbers, got array\(\[\[\[False"),
        (np.zeros((4, 4, 3), complex), r"array of numbers, got array\(\[\[\[0.\+0.j"),
        (np.full((4, 4, 3), "a"), "array of numbers"),
        (object(), "array of numbers, got <object"),
        (None, "array of numbers, got None"),
    ],
)
def test_arrays_that_are_no_photo(array, message):
    with pytest.raises(ValueError, match=message):
        photos.decode(array)


def test_prepare_as_evaluation_does(tf, evaluated):
    from train.data.transforms.preprocessing import squash, to_model_range

    encoded = encode(picture(300, 200), "PNG")
    for size in (224, (32, 48)):
        pair = (size, size) if isinstance(size, int) else size
        expected = to_model_range(squash(evaluated(encoded), pair))
        found = photos.prepare(encoded, size)
        assert (found.dtype, found.shape) == ("float32", (*pair, 3))
        np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)


def test_gray_models_get_the_luminance(tf):
    gray = encode(picture(), "PNG", "L")
    found = photos.prepare(gray, (HEIGHT, WIDTH), channels=1)
    pixels = tf.io.decode_png(gray, channels=1).numpy()
    np.testing.assert_allclose(found, pixels / 127.5 - 1, atol=1e-5, rtol=0)
    # As the decoder of exported models has it, which rounds to levels.
    encoded = encode(picture(), "JPEG")
    found = photos.prepare(encoded, (HEIGHT, WIDTH), channels=1)
    pixels = tf.io.decode_jpeg(encoded, channels=1).numpy()
    assert found.shape == (HEIGHT, WIDTH, 1)
    assert np.abs(found * 127.5 + 127.5 - pixels).max() < 4


def test_settings_that_are_refused():
    with pytest.raises(ValueError, match="squash, central crop, or like .* got 'crop'"):
        photos.prepare(picture(), 32, "crop")
    with pytest.raises(ValueError, match="image_size"):
        photos.prepare(picture(), 0)


def test_real_photos_are_the_same_in_evaluation(shared, evaluated):
    from train.data.transforms.preprocessing import squash, to_model_range

    for name in ("n01440764", "n01484850"):
        path = shared / "photos" / "imagenet" / f"{name}.jpg"
        expected = to_model_range(squash(evaluated(path.read_bytes()), (224, 224)))
        np.testing.assert_array_equal(photos.prepare(path, 224), expected)


def test_neither_tensorflow_nor_keras_is_imported():
    code = (
        "import sys, numpy as np\n"
        "from zoo import photos\n"
        "photos.prepare(np.zeros((4, 4, 3), 'uint8'), 2)\n"
        "assert not {'keras', 'tensorflow', 'PIL'} & set(sys.modules)\n"
    )
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fifo_with_the_name_of_a_photo_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "photo.jpg")
    with pytest.raises(OSError, match="photo.jpg is a FIFO"):
        photos.decode(tmp_path / "photo.jpg")

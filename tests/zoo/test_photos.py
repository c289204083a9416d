"""Photos without TensorFlow, against TensorFlow; and values of 9 to 16 bits."""

import io
import threading

import numpy as np
import PIL
import pytest
from made_photos import (
    GOLDENS,
    HEIGHT,
    PIXELS,
    WIDTH,
    XMP,
    close,
    directory,
    encode,
    golden,
    picture,
    png_of,
    segment,
    tiff,
)
from packaging.version import Version
from PIL import Image

from zoo import photos
from zoo.network.preparation import ModelBits
from zoo.photos import files, resizing

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
PLAIN = encode(PIXELS, "JPEG")


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


def test_reading_ahead_keeps_the_order_and_a_bound_and_ends_with_its_reader(
    monkeypatch,
):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    threads, taken = threading.active_count(), []

    def items():
        for number in range(100):
            taken.append(number)
            yield number

    reading = photos.read_ahead(items(), lambda number: number**2, 2)
    for number in range(50):
        assert next(reading) == (number, number**2)
        # One for each thread, and two more.
        assert len(taken) == number + 1 + 3 + 2
    reading.close()
    assert threading.active_count() == threads
    assert [*photos.read_ahead("ab", str.upper)] == [("a", "A"), ("b", "B")]


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


def test_heic_is_read_or_says_what_to_install(trained, tmp_path, monkeypatch):
    pytest.importorskip("pillow_heif").register_heif_opener()
    assert photos.reads_heic() and ".heic" in photos.endings()
    for turn in (None, 6):
        encoded = encode(PIXELS, "HEIF", turn=turn, quality=95)
        found = photos.decode(encoded)
        # Its own turn counts; that of its EXIF is a copy.
        assert found.shape == PIXELS.shape
        np.testing.assert_array_equal(found, trained(encoded))
        assert np.abs(found.astype(int) - PIXELS).mean() < 10
    monkeypatch.setattr(files, "reads_heic", lambda: False)
    assert ".heic" not in photos.endings() and ".webp" in photos.endings()
    path = tmp_path / "IMG_1.HEIC"
    path.write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(ValueError, match="IMG_1.HEIC cannot .*pip install pillow-heif"):
        photos.decode(path)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_photos_that_all_decoders_read_alike_say_how_they_are_turned(kind):
    assert photos.plain_orientation(encode(PIXELS, kind)) == 1
    assert photos.plain_orientation(encode(PIXELS, kind, turn=6)) == 6
    other = png_of(values()) if kind == "PNG" else encode(PIXELS, kind, "CMYK")
    assert photos.plain_orientation(other) == 0


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


def test_a_photo_of_any_channels_is_fitted_as_each_of_them():
    size, preparation = (16, 24), "timm crop bicubic 0.9"
    expected = photos.fitted(PIXELS, size, preparation)
    for channels in ([0], [2, 0], [0, 1, 2, 1]):
        found = photos.fitted(PIXELS[..., channels], size, preparation)
        np.testing.assert_array_equal(found, expected[..., channels])


def values(bits=16, channels=3):
    """Random values, the first of which is the largest."""
    values = np.random.RandomState(0).randint(0, 2**bits, (6, 7, channels))
    values[0, 0] = 2**bits - 1
    return values


def levels(values, shift):
    """The colours that values stand for, gray or with transparency or not."""
    colours = np.repeat(values[..., :1], 3, 2) if values.shape[2] < 3 else values
    return (colours[..., :3] >> shift).astype("uint8")


def test_values_of_12_bits_have_the_pixels_that_a_setting_says(served):
    path = GOLDENS / "grey_12_bits_in_16.png"
    _, expected = golden(path.name)
    for bits in (12, np.int64(12), np.uint8(12)):
        close(photos.decode(path, bits=bits), expected)
    with pytest.raises(UserWarning, match=r"values of 12 bits.* bits=12\.$"):
        photos.decode(path)
    for bits in (7, 17, 12.0, np.float64(12), True, "12"):
        with pytest.raises(ValueError, match="bits must be 8 to 16"):
            photos.decode(PIXELS, bits=bits)
    too_few = "values up to 4,046, more than bits=10: leave out bits=10 for it, or pass"
    with pytest.raises(ValueError, match=too_few):
        photos.decode(path, bits=10)
    prepared = photos.prepare(path, (64, 96), bits=12)
    np.testing.assert_allclose(prepared * 127.5 + 127.5, expected, 0, 1e-4)
    with pytest.raises(Exception, match="does not read"):
        served(path.read_bytes())


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("bits", [8, 10, 12, 14, 16])
def test_significant_bits_of_a_png_count(channels, bits, trained):
    """Right-aligned, as cameras have them, or scaled as the standard says."""
    found = values(bits, channels)
    replicated = found << (16 - bits) | found >> max(2 * bits - 16, 0)
    for scaled in (found, found << (16 - bits), replicated):
        for decode in (photos.decode, trained):
            close(decode(png_of(scaled, bits)), levels(found, bits - 8))
    close(photos.decode(png_of(found), bits=bits), levels(found, bits - 8))
    close(photos.decode(png_of(found << (16 - bits)), bits=16), levels(found, bits - 8))


def test_scaled_values_are_known_by_zeros_unless_the_photo_is_nearly_black():
    """The standard scales to 16 bits; of 1/16 of white it is taken as not scaled."""
    found = values(10, 1) << 2
    for photo, bits, shift in (
        (found, 12, 4),  # 8 or 10 bits in 12: as black if it were scaled
        (found << 2, 14, 8),
        (found << 2 | 1, 14, 6),
        (found, 14, 6),
    ):
        close(photos.decode(png_of(photo, bits)), levels(photo, shift))
    with pytest.raises(UserWarning, match="values of 12 bits"):
        photos.decode(png_of(found))


@pytest.mark.parametrize("channels", [1, 3])
def test_nearly_black_photos_are_warned_of(channels):
    found = np.zeros((4, 4, channels), int)
    for top, bits in ((1, 8), (255, 8), (256, 10), (1024, 12), (4095, 12)):
        found[1, 1] = top
        with pytest.raises(UserWarning, match=f"values of {bits} bits.*bits={bits}"):
            photos.decode(png_of(found))
    for top in (0, 4096, 65535):
        photos.decode(png_of(np.full((4, 4, channels), top)))
    photos.decode(png_of(np.full((4, 4, channels), 300), 16))


def test_bits_of_a_file_come_before_those_of_a_model_and_after_those_given():
    found = values(10)
    said, unsaid = png_of(found, 10), png_of(found)
    close(photos.decode(said, bits=ModelBits(12)), levels(found, 2))
    close(photos.decode(unsaid, bits=ModelBits(12)), levels(found, 4))
    close(photos.decode(said, bits=12), levels(found, 4))
    full = png_of(found << 6, 16)
    close(photos.decode(full, bits=ModelBits(12)), levels(found, 2))
    for value, bits, enough in ((4096, 12, 16), (4000, 10, 12)):
        said = f"{value:,}, more than the model's {bits} bits: pass bits={enough}\\.$"
        with pytest.raises(ValueError, match=said):
            photos.decode(png_of(np.full((2, 2, 1), value)), bits=ModelBits(bits))


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("bits", [10, 12, 16])
def test_tiffs_in_colours_have_the_bits_that_are_said(bits, order, planes, trained):
    found = values(bits)
    turned = tiff(found, order, planes, turn=6)
    expected = levels(found, bits - 8)
    close(photos.decode(turned, bits=bits), np.rot90(expected, -1))
    full = tiff(found << (16 - bits), order, planes)
    for decode in (photos.decode, trained):
        close(decode(full), expected)


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("extra", [(), (0,), (2,)])
def test_nearly_black_tiffs_in_colours_are_warned_of(extra, planes):
    if extra == (0,) and planes == 2 and Version(PIL.__version__) < Version("12.2"):
        pytest.skip("Pillow before 12.2 refuses planes with a fourth of no meaning")
    dark = values(12, 3 + len(extra))
    dark[..., 3:] = 2**16 - 1  # opaque
    encoded = tiff(dark, planes=planes, extra=extra)
    with pytest.raises(UserWarning, match="values of 12 bits.*bits=12"):
        photos.decode(encoded)
    close(photos.decode(encoded, bits=16), levels(dark, 8))
    with pytest.raises(ValueError, match="values up to 4,095, more than bits=10"):
        photos.decode(encoded, bits=10)
    # Transparency within the colours.
    with pytest.raises(ValueError, match="save it without compression or transp"):
        photos.decode(tiff(values(12, 4), extra=(1,)), bits=12)


def test_packed_tiffs_in_cmyk_and_of_12_bits():
    gray = values(12, 1)
    image = Image.fromarray(gray[..., 0].astype("uint16"))
    packed = encode(image, "TIFF", compression="tiff_lzw")
    close(photos.decode(packed, bits=12), levels(gray, 4))
    found = values(12, 4)
    ink = Image.fromarray((found >> 4).astype("uint8"), "CMYK")
    expected = np.asarray(ink.convert("RGB"))
    close(photos.decode(tiff(found, photometric=5), bits=12), expected)
    # Two values in three bytes, the first one's higher bits first.
    entries = {256: 2, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 3}
    found = photos.decode(directory(bytes([0xFF, 0xF8, 0x00]), entries))
    assert found[0, :, 0].tolist() == [255, 128]


@pytest.mark.parametrize(
    "encoded",
    [
        *(tiff(values(8), bits=8, turn=turn) for turn in range(1, 9)),
        *(tiff(values(channels=1), photometric=photometric) for photometric in (0, 1)),
        png_of(values(channels=1)),
        (GOLDENS / "cmyk_without_adobe_marker.jpg").read_bytes(),
        PLAIN[:2] + segment(0xE1, XMP) + PLAIN[2:],
    ],
)
def test_an_opened_image_is_as_its_file(encoded):
    """Turned once, and by its EXIF; of ink or light."""
    image = Image.open(io.BytesIO(encoded))
    np.testing.assert_array_equal(photos.decode(image), photos.decode(encoded))


def test_images_of_pillow_with_numbers_are_as_arrays():
    for mode in ("I", "F"):
        image = Image.fromarray(PIXELS[..., 0]).convert(mode)
        np.testing.assert_array_equal(photos.decode(image), PIXELS[..., [0, 0, 0]])
        with pytest.raises(ValueError, match="scale them to that range"):
            photos.decode(image.point(lambda value: value * 256 + 0))

"""Photos of every kind of file have the same pixels wherever they are read."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from zoo import photos
from zoo.photos import files, jpeg
from zoo.preparation import ModelBits

HEIGHT, WIDTH = 20, 33
# JPEG in colour: the decoders' transforms round differently.
TOLERANCES = {
    "cmyk_without_adobe_marker.jpg": 12,
    "cmyk_with_adobe_marker.jpg": 12,
    "no_end_marker.jpg": 2,
}
TWELVE_BITS = "grey_12_bits_in_16.png"
NAMES = (
    *TOLERANCES,
    "cutout.gif",
    "frame_with_offset.gif",
    "grey_16.png",
    "photo.tif",
)
# What a SavedModel answers by TensorFlow's ops alone.
SERVED = ("grey_16.png",)


@pytest.fixture(scope="module")
def expected(goldens):
    with np.load(goldens / "photos" / "pixels.npz") as pixels:
        return dict(pixels)


def picture(seed=0):
    pixels = np.random.RandomState(seed).randint(0, 256, (4, 5, 3), np.uint8)
    return np.asarray(Image.fromarray(pixels).resize((WIDTH, HEIGHT)))


def encode(image, file_format, **options):
    stream = io.BytesIO()
    image.save(stream, file_format, **options)
    return stream.getvalue()


def png(values, significant=None):
    """A PNG of 16 bits, gray (height, width) or with 2 to 4 channels."""

    def chunk(kind, content):
        check = zlib.crc32(kind + content)
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
        )

    channels = 1 if values.ndim == 2 else values.shape[2]
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    size = struct.pack(">IIBBBBB", *values.shape[1::-1], 16, colour, 0, 0, 0)
    rows = values.astype(">u2").reshape(len(values), -1)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    bits = (
        b"" if significant is None else chunk(b"sBIT", bytes([significant] * channels))
    )
    parts = (chunk(b"IHDR", size), bits, chunk(b"IDAT", zlib.compress(lines)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


def tiff(content, bits, width, height, photometric=1, kind=1):
    """A TIFF of one strip of gray; `kind` is 1 for unsigned, 2 signed, 3 floats."""
    entries = [
        (256, width), (257, height), (258, bits), (259, 1), (262, photometric),
        (273, 8), (277, 1), (278, height), (279, len(content)), (339, kind),
    ]  # fmt: skip
    content += b"\0" * (len(content) % 2)
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, n) for tag, n in entries)
    head = struct.pack("<2sHI", b"II", 42, 8 + len(content))
    return head + content + struct.pack("<H", len(entries)) + directory + b"\0" * 4


def close(found, pixels, most=0):
    assert (found.dtype, found.shape) == ("uint8", pixels.shape)
    assert np.abs(found.astype(int) - pixels).max() <= most


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_file_has_its_pixels(name, goldens, expected, trained):
    path = goldens / "photos" / name
    for found in (photos.decode(path), trained(path.read_bytes())):
        close(found, expected[name], TOLERANCES.get(name, 0))


@pytest.mark.parametrize("name", [*NAMES, TWELVE_BITS])
def test_serve_bytes_refuses_what_it_would_see_otherwise(
    name, goldens, expected, served
):
    encoded = (goldens / "photos" / name).read_bytes()
    if name in SERVED:
        close(served(encoded), expected[name])
        return
    with pytest.raises(Exception, match="does not read|Unknown image|Invalid JPEG"):
        served(encoded)


@pytest.mark.parametrize("options", [{}, {"save_all": True}])
def test_serve_bytes_reads_opaque_gifs(options, served):
    image = Image.fromarray(picture()).quantize(16)
    if options:
        options |= {"append_images": [image.rotate(180)], "loop": 0}
    encoded = encode(image, "GIF", **options)
    close(served(encoded), photos.decode(encoded))


def test_a_cmyk_photo_without_adobe_marker_is_not_inverted(trained):
    """By the JPEG standard: white paper has no ink, which is 0."""
    encoded = encode(Image.new("CMYK", (16, 16)), "JPEG")
    marker = encoded.index(b"\xff\xee")
    length = 2 + int.from_bytes(encoded[marker + 2 : marker + 4], "big")
    without = encoded[:marker] + encoded[marker + length :]
    # What Pillow writes is inverted, so that without the marker it is black.
    for decode in (photos.decode, trained):
        assert decode(encoded).min() >= 250 and decode(without).max() <= 5
    with Image.open(io.BytesIO(without)) as image:
        assert photos.decode(image).max() <= 5


@pytest.mark.parametrize(
    "options",
    [{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_blocks": 2}],
)
@pytest.mark.parametrize("trailer", [b"", b"\0", b"SEFT" * 50])
def test_jpegs_without_end_marker_are_read(options, trailer, trained):
    whole = encode(Image.fromarray(picture()), "JPEG", **options)
    assert jpeg.has_end_marker(whole)
    assert not jpeg.has_end_marker(whole[:-2] + trailer)
    pixels = photos.decode(whole)
    close(photos.decode(whole[:-2] + trailer), pixels)
    close(trained(whole[:-2] + trailer), pixels)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_jpegs_whose_scan_is_cut_are_refused(options, trained):
    whole = encode(Image.fromarray(picture()), "JPEG", **options)
    start = whole.index(b"\xff\xda")
    for cut in (len(whole) - 8, (start + len(whole)) // 2):
        with pytest.raises(ValueError, match="cannot be read as an image"):
            photos.decode(whole[:cut])
        with pytest.raises(Exception, match="cannot be read as an image"):
            trained(whole[:cut])


def test_a_jpeg_with_a_trailer_has_the_pixels_of_tensorflow(trained):
    """Fast as before: the end marker stands before the trailer."""
    whole = encode(Image.fromarray(picture()), "JPEG")
    np.testing.assert_array_equal(trained(whole + b"trailer"), trained(whole))


def test_values_of_12_bits_have_the_pixels_that_a_setting_says(goldens, expected):
    path = goldens / "photos" / TWELVE_BITS
    close(photos.decode(path, bits=12), expected[TWELVE_BITS])
    with pytest.warns(UserWarning, match=r"values of 12 bits.* bits=12\.$"):
        photos.decode(path)
    too_few = (
        r"values up to 4,046, more than bits=10: leave out bits=10 for it, or pass"
    )
    with pytest.raises(ValueError, match=too_few):
        photos.decode(path, bits=10)
    prepared = photos.prepare(path, (64, 96), bits=12)
    np.testing.assert_allclose(prepared * 127.5 + 127.5, expected[TWELVE_BITS], 0, 1e-4)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("bits", [10, 12, 14])
def test_significant_bits_of_a_png_count(channels, bits, trained):
    """Right-aligned, as cameras have them, or scaled as the standard says."""
    values = np.random.RandomState(0).randint(0, 2**bits, (5, 7, channels))
    values[0, 0] = 2**bits - 1
    colours = np.repeat(values, 3, 2) if channels == 1 else values[..., :3]
    expected = (colours >> (bits - 8)).astype("uint8")
    replicated = values << (16 - bits) | values >> (2 * bits - 16)
    for scaled in (values, values << (16 - bits), replicated):
        encoded = png(scaled[..., 0] if channels == 1 else scaled, bits)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            close(photos.decode(encoded), expected)
        close(trained(encoded), expected)
    close(photos.decode(png(np.squeeze(values, 2) if channels == 1 else values),
                        bits=bits), expected)  # fmt: skip


def test_scaled_values_are_known_by_zeros_unless_the_photo_is_nearly_black():
    """The standard scales to 16 bits; of 1/16 of white it is taken as not scaled."""
    values = np.random.RandomState(0).randint(0, 2**10, (5, 7)) << 2
    values[0, 0] = 2**12 - 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for photo, bits, shift in (
            (values, 12, 4),  # 8 or 10 bits in 12: as black if it were scaled
            (values << 2, 14, 8),
            (values << 2 | 1, 14, 6),
            (values, 14, 6),
        ):
            levels = np.repeat(photo[..., None] >> shift, 3, 2).astype("uint8")
            close(photos.decode(png(photo, bits)), levels)
    with pytest.warns(UserWarning, match="values of 12 bits"):
        photos.decode(png(values))


@pytest.mark.parametrize(("top", "bits"), [(200, 8), (1023, 10), (1024, 12)])
@pytest.mark.parametrize("channels", [1, 3])
def test_nearly_black_photos_are_warned_of(top, bits, channels):
    values = np.zeros((4, 4, channels), int)
    values[1, 1] = top
    with pytest.warns(UserWarning, match=f"values of {bits} bits.*bits={bits}"):
        photos.decode(png(values[..., 0] if channels == 1 else values))


def test_black_photos_and_bright_ones_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for top in (0, 4096, 65535):
            photos.decode(png(np.full((4, 4), top)))
            photos.decode(png(np.full((4, 4, 3), top)))
        photos.decode(png(np.full((4, 4), 300), 16))


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_gray_of_16_bits_with_transparency_has_all_its_bits(bits, trained):
    """It was refused wherever bits were said."""
    values = np.random.RandomState(0).randint(0, 2**bits, (5, 7, 2))
    values[0, 0] = 2**bits - 1
    expected = np.repeat((values[..., :1] >> (bits - 8)).astype("uint8"), 3, 2)
    scaled = values << (16 - bits) | values >> max(2 * bits - 16, 0)
    close(photos.decode(png(values), bits=bits), expected)
    close(photos.decode(png(values << (16 - bits)), bits=16), expected)
    for decode in (photos.decode, trained):
        close(decode(png(values, bits)), expected)
        close(decode(png(scaled, bits)), expected)


def test_bits_of_a_file_come_before_those_of_a_model_and_after_those_given():
    values = np.random.RandomState(0).randint(0, 2**10, (5, 7, 3))
    values[0, 0] = 2**10 - 1
    said, unsaid = png(values, 10), png(values)
    of_10, of_12 = ((values >> shift).astype("uint8") for shift in (2, 4))
    close(photos.decode(said, bits=ModelBits(12)), of_10)
    close(photos.decode(unsaid, bits=ModelBits(12)), of_12)
    close(photos.decode(said, bits=12), of_12)
    full = values << 6
    close(photos.decode(png(full, 16), bits=ModelBits(12)), (full >> 8).astype("uint8"))


def test_the_bits_of_a_model_are_named_where_values_have_more():
    for value, bits, enough in (("4,096", 12, 16), ("4,000", 10, 12)):
        said = (
            rf"up to {value}, more than the model's {bits} bits: pass bits={enough}\.$"
        )
        values = np.full((2, 2), int(value.replace(",", "")))
        with pytest.raises(ValueError, match=said):
            photos.decode(png(values), bits=ModelBits(bits))


def test_bits_may_be_integers_of_numpy():
    encoded = png(np.full((2, 2), 4000))
    for kind in (np.int64, np.uint8):
        close(photos.decode(encoded, bits=kind(12)), photos.decode(encoded, bits=12))


@pytest.mark.parametrize("bits", [7, 17, 12.0, np.float64(12), True, "12"])
def test_other_bits_are_refused(bits):
    with pytest.raises(ValueError, match="bits must be 8 to 16"):
        photos.decode(picture(), bits=bits)


@pytest.mark.parametrize("turn", range(1, 9))
def test_tiffs_stand_upright(turn, trained):
    encoded = encode(Image.fromarray(picture()), "TIFF", tiffinfo={274: turn})
    as_png = encode(Image.fromarray(picture()), "PNG", exif=_exif(turn))
    for decode in (photos.decode, trained):
        close(decode(encoded), photos.decode(as_png))


def _exif(turn):
    exif = Image.Exif()
    exif[274] = turn
    return exif


def test_of_a_tiff_the_first_page_is_taken(trained):
    pages = [Image.fromarray(picture(seed)) for seed in (0, 1)]
    encoded = encode(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    for decode in (photos.decode, trained):
        close(decode(encoded), picture())


@pytest.mark.parametrize("photometric", [0, 1])
def test_tiffs_of_16_bits_have_the_higher_8(photometric):
    values = np.random.RandomState(0).randint(0, 2**16, (5, 7)).astype("<u2")
    found = photos.decode(tiff(values.tobytes(), 16, 7, 5, photometric))
    pixels = np.repeat(values[..., None] >> 8, 3, axis=2)
    close(found, pixels if photometric else 255 - pixels)


def test_tiffs_of_12_bits_say_so_themselves():
    # Two values in three bytes, the first one's higher bits first.
    found = photos.decode(tiff(bytes([0xFF, 0xF8, 0x00]), 12, 2, 1))
    assert found[0, :, 0].tolist() == [255, 128]


@pytest.mark.parametrize(("dtype", "kind"), [("<f4", 3), ("<i4", 2)])
def test_tiffs_of_other_numbers_are_refused_by_name(dtype, kind):
    content = np.full((4, 4), 100, dtype).tobytes()
    with pytest.raises(ValueError, match="has values of .*: save it with 8 or 16 bits"):
        photos.decode(tiff(content, 32, 4, 4, kind=kind))


def test_avif_is_read_where_pillow_reads_it(trained, monkeypatch):
    if not files.reads_avif():
        assert ".avif" not in photos.endings()
        pytest.skip("Pillow was built without AVIF")
    assert ".avif" in photos.endings()
    encoded = encode(Image.fromarray(picture()), "AVIF", quality=95)
    found = photos.decode(encoded)
    assert np.abs(found.astype(int) - picture()).mean() < 10
    np.testing.assert_array_equal(trained(encoded), found)
    monkeypatch.setattr(files, "reads_avif", lambda: False)
    with pytest.raises(ValueError, match="cannot be read as an image"):
        photos.decode(encoded)

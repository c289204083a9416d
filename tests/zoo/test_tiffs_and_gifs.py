"""Values of TIFF files and canvases of GIF files, against their specifications."""

import io
import struct
import warnings

import numpy as np
import PIL
import pytest
from packaging.version import Version
from PIL import Image
from test_photo_files import close, encode

from zoo import photos

HEIGHT, WIDTH = 6, 7


def values(bits=16, channels=3):
    values = np.random.RandomState(0).randint(0, 2**bits, (HEIGHT, WIDTH, channels))
    values[0, 0] = 2**bits - 1
    return values


def tiff(values, order="<", planes=1, photometric=2, bits=16, turn=1, extra=()):
    """An uncompressed TIFF of one strip, or of one per plane."""
    height, width, channels = values.shape
    kind = f"{order}u{bits // 8}"
    stored = values if planes == 1 else np.moveaxis(values, 2, 0)
    content = stored.astype(kind).tobytes()
    count = channels if planes == 2 else 1
    part = len(content) // count
    entries = {
        256: ("H", [width]), 257: ("H", [height]), 258: ("H", [bits] * channels),
        259: ("H", [1]), 262: ("H", [photometric]),
        273: ("I", [8 + part * number for number in range(count)]),
        274: ("H", [turn]), 277: ("H", [channels]), 278: ("H", [height]),
        279: ("I", [part] * count), 284: ("H", [planes]),
    }  # fmt: skip
    if extra:
        entries[338] = ("H", list(extra))
    content += b"\0" * (len(content) % 2)
    place = 8 + len(content)
    directory, behind = struct.pack(f"{order}H", len(entries)), b""
    after = place + 2 + 12 * len(entries) + 4
    for tag, (letter, numbers) in sorted(entries.items()):
        packed = struct.pack(f"{order}{len(numbers)}{letter}", *numbers)
        head = (tag, 3 if letter == "H" else 4, len(numbers))
        directory += struct.pack(f"{order}HHI", *head)
        if len(packed) > 4:
            directory += struct.pack(f"{order}I", after + len(behind))
            behind += packed
        else:
            directory += packed.ljust(4, b"\0")
    start = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HI", 42, place)
    return start + content + directory + b"\0" * 4 + behind


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("bits", [10, 12, 16])
def test_tiffs_of_16_bits_in_colours_have_the_bits_that_are_said(
    bits, order, planes, trained
):
    """Planes were each taken for other pixels; bits were passed over."""
    found = values(bits)
    expected = (found >> (bits - 8)).astype("uint8")
    close(photos.decode(tiff(found, order, planes), bits=bits), expected)
    turned = tiff(found, order, planes, turn=6)
    close(photos.decode(turned, bits=bits), np.rot90(expected, -1))
    full = tiff(found << (16 - bits), order, planes)
    for decode in (photos.decode, trained):
        close(decode(full), (found << (16 - bits) >> 8).astype("uint8"))


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("extra", [(), (0,), (2,)])
def test_nearly_black_tiffs_in_colours_are_warned_of(extra, planes):
    if extra == (0,) and planes == 2 and Version(PIL.__version__) < Version("12.2"):
        pytest.skip("Pillow before 12.2 refuses planes with a fourth of no meaning")
    dark = values(12, 3 + len(extra))
    dark[..., 3:] = 2**16 - 1  # opaque
    encoded = tiff(dark, planes=planes, extra=extra)
    with pytest.warns(UserWarning, match="values of 12 bits.*bits=12"):
        photos.decode(encoded)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(photos.decode(encoded, bits=16), (dark[..., :3] >> 8).astype("uint8"))
    with pytest.raises(ValueError, match="values up to 4,095, more than bits=10"):
        photos.decode(encoded, bits=10)


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate"])
def test_packed_tiffs_of_16_bits_have_the_low_bytes_too(compression):
    """Pillow writes none in colours: what it reads is repacked with tags of its own."""
    found = values(12, 4)
    encoded = tiff(found, photometric=5)
    ink = Image.frombytes(
        "CMYK", (WIDTH, HEIGHT), (found >> 4).astype("uint8").tobytes()
    )
    close(photos.decode(encoded, bits=12), np.asarray(ink.convert("RGB")))
    gray = found[..., 0].astype("uint16")
    packed = encode(Image.fromarray(gray), "TIFF", compression=compression)
    expected = np.repeat((gray >> 4).astype("uint8")[..., None], 3, 2)
    close(photos.decode(packed, bits=12), expected)


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("photometric", [0, 1])
@pytest.mark.parametrize("bits", [8, 16])
def test_gray_tiffs_that_name_planes_are_no_negatives(bits, photometric, planes):
    """With one sample per pixel the tag has no meaning."""
    found = values(bits, 1)
    levels = found >> (bits - 8)
    expected = np.repeat(levels if photometric else 255 - levels, 3, 2)
    encoded = tiff(found, planes=planes, photometric=photometric, bits=bits)
    close(photos.decode(encoded), expected.astype("uint8"))


def test_tiffs_with_transparency_within_the_colours_are_refused_where_dark():
    dark = values(12, 4)
    with pytest.raises(ValueError, match="save it without compression or transp"):
        photos.decode(tiff(dark, extra=(1,)), bits=12)


COLOURS = np.array([(k, 255 - k, k // 2) for k in range(256)], "uint8")
LOCAL = COLOURS[::-1].copy()


def gif(frame, place=(0, 0), size=None, background=0, transparent=None,
        local=None, palette=COLOURS):  # fmt: skip
    height, width = frame.shape
    image = Image.new("P", (width, height))
    image.putdata(frame.ravel().tolist())
    image.putpalette(COLOURS.tobytes())
    encoded = encode(image, "GIF", optimize=False)
    start = encoded.index(b"\x2c\0\0\0\0" + struct.pack("<HH", width, height))
    pixels = encoded[start + 10 :]
    flags = 0xF7 if palette is not None else 0x70
    made = b"GIF89a" + struct.pack(
        "<HHBBB", *(size or (width, height)), flags, background, 0
    )
    made += palette.tobytes() if palette is not None else b""
    if transparent is not None:
        made += bytes([0x21, 0xF9, 4, 1, 0, 0, transparent, 0])
    made += b"\x2c" + struct.pack("<HHHH", *place, width, height)
    made += bytes([0x87 if local is not None else 0])
    return made + (local.tobytes() if local is not None else b"") + pixels


def on_canvas(colour, frame):
    canvas = np.empty((12, 14, 3), "uint8")
    canvas[:] = colour
    canvas[3 : 3 + HEIGHT, 2 : 2 + WIDTH] = frame
    return canvas


@pytest.mark.parametrize("background", [0, 7, 255])
@pytest.mark.parametrize("local", [None, LOCAL])
def test_around_the_frame_of_a_gif_is_its_background(background, local, trained):
    """GIF89a, section 18: an index of the global palette; 0 of any was taken."""
    frame = np.random.RandomState(0).randint(0, 256, (HEIGHT, WIDTH))
    encoded = gif(frame, (2, 3), (14, 12), background, local=local)
    colours = COLOURS if local is None else local
    expected = on_canvas(COLOURS[background], colours[frame])
    for decode in (photos.decode, trained):
        close(decode(encoded), expected)


def test_around_the_frame_of_a_gif_is_what_is_transparent_in_it(trained):
    """As browsers have it; the colour of what is transparent stays, as elsewhere."""
    frame = np.random.RandomState(0).randint(0, 256, (HEIGHT, WIDTH))
    encoded = gif(frame, (2, 3), (14, 12), 7, transparent=21)
    for decode in (photos.decode, trained):
        close(decode(encoded), on_canvas(COLOURS[21], COLOURS[frame]))


def test_a_canvas_without_a_palette_is_black(trained):
    frame = np.random.RandomState(0).randint(0, 256, (HEIGHT, WIDTH))
    encoded = gif(frame, (2, 3), (14, 12), 7, local=LOCAL, palette=None)
    for decode in (photos.decode, trained):
        close(decode(encoded), on_canvas(0, LOCAL[frame]))


def test_a_frame_that_fills_its_gif_has_no_background(trained):
    frame = np.random.RandomState(0).randint(0, 256, (HEIGHT, WIDTH))
    encoded = gif(frame, background=9)
    with Image.open(io.BytesIO(encoded)) as image:
        close(photos.decode(encoded), np.asarray(image.convert("RGB")))
    close(trained(encoded), COLOURS[frame])


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_tiff_that_pillow_has_opened_is_turned_once(turn):
    encoded = tiff(values(8).astype("uint8"), bits=8, turn=turn)
    image = Image.open(io.BytesIO(encoded))
    np.testing.assert_array_equal(photos.decode(image), photos.decode(encoded))


@pytest.mark.parametrize("photometric", [0, 1])
def test_values_of_a_tiff_that_pillow_has_opened_are_ink_or_light(photometric):
    encoded = tiff(values(channels=1), photometric=photometric)
    image = Image.open(io.BytesIO(encoded))
    np.testing.assert_array_equal(photos.decode(image), photos.decode(encoded))


def test_warnings_of_few_bits_may_be_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="bits=12"):
            photos.decode(tiff(values(12)))

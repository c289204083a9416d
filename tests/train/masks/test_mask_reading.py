"""Values of masks in files of every kind, and what is refused of them."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from train.data.checking import DataError
from train.masks import reading
from train.masks.classes import of_table, of_values
from train.masks.reading import Occurrence, Pair, read_mask

RANDOM = np.random.RandomState(0)


def saved(folder, values, mode=None, name="mask.png", **settings):
    image = Image.fromarray(np.asarray(values))
    if mode is not None:
        image = image.convert(mode)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **settings)
    return str(path)


def made_png(folder, values, depth, colour, extra=b""):
    """Writes the packed rows of a PNG with a header of our own."""

    def chunk(kind, content):
        packed = struct.pack(">I", len(content)) + kind + content
        return packed + struct.pack(">I", zlib.crc32(kind + content))

    height, width = np.shape(values)[:2]
    rows = bytearray()
    for row in np.asarray(values).reshape(height, -1):
        bits = "".join(f"{int(value):0{depth}b}" for value in row)
        bits += "0" * (-len(bits) % 8)
        rows += b"\0" + bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    content = (
        chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(bytes(rows)))
    )
    path = folder / "made.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content + chunk(b"IEND", b""))
    return path, chunk


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_grays_of_all_depths_are_their_values(depth, tmp_path):
    values = RANDOM.randint(0, 2**depth, (5, 7))
    path, _ = made_png(tmp_path, values, depth, 0)
    found = read_mask(path)
    np.testing.assert_array_equal(found, values)
    assert found.dtype == ("uint16" if depth == 16 else "uint8")


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_palettes_are_their_indices(depth, tmp_path):
    values = RANDOM.randint(0, 2**depth, (6, 5))
    _, chunk = made_png(tmp_path, values, depth, 0)
    # Colours repeat, so only indices tell values apart; tRNS makes some transparent.
    palette = chunk(b"PLTE", bytes([9, 9, 9] * 2**depth)) + chunk(b"tRNS", b"\0")
    path, _ = made_png(tmp_path, values, depth, 3, palette)
    np.testing.assert_array_equal(read_mask(path), values)


def test_pillows_palette_is_read_as_pillow_reads_it(tmp_path):
    image = Image.fromarray(RANDOM.randint(0, 200, (9, 4), "uint8"), "P")
    image.putpalette(RANDOM.randint(0, 256, 768).tolist())
    image.save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "a.png"), np.asarray(image))


def test_colours_have_the_values_of_the_table(tmp_path):
    colours = {(255, 0, 0): 256, (0, 0, 1): 4, (0, 1, 0): 0, (255, 255, 255): 9}
    values = RANDOM.choice([*colours.values()], (7, 8))
    of_value = {value: colour for colour, value in colours.items()}
    pixels = np.array([[of_value[one] for one in row] for row in values], "uint8")
    found = read_mask(saved(tmp_path, pixels), colours)
    np.testing.assert_array_equal(found, values)
    assert found.dtype == np.uint16
    opaque = np.dstack([pixels, np.full((7, 8), 255, "uint8")])
    np.testing.assert_array_equal(read_mask(saved(tmp_path, opaque), colours), values)
    small = {colour: value % 256 for colour, value in colours.items()}
    assert read_mask(saved(tmp_path, pixels), small).dtype == np.uint8


def test_a_mask_is_turned_as_its_exif_says(tmp_path):
    values = RANDOM.randint(0, 9, (3, 5)).astype("uint8")
    exif = Image.Exif()
    exif[274] = 6
    path = saved(tmp_path, values, exif=exif)
    np.testing.assert_array_equal(read_mask(path), np.rot90(values, -1))


GRAY, RGB = np.zeros((2, 3), "uint8"), np.full((2, 3, 3), 9, "uint8")


def jpeg():
    file = io.BytesIO()
    Image.fromarray(RGB).save(file, "JPEG")
    return file.getvalue()


def transparent(folder):
    pixels = np.dstack([RGB, [[255, 255, 255], [255, 0, 9]]]).astype("uint8")
    return saved(folder, pixels)


def bomb(folder):
    path, chunk = made_png(folder, GRAY, 8, 0)
    header = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 0, 0, 0, 0)
    content = path.read_bytes()
    path.write_bytes(content[:8] + chunk(b"IHDR", header) + content[33:])
    return path


def written(content):
    def write(folder):
        (folder / "mask.png").write_bytes(content)
        return folder / "mask.png"

    return write


REFUSED = {
    "jpeg": (written(jpeg()), r"mask.png is not a PNG file: save masks as PNG"),
    "empty": (written(b""), r"mask.png is not a PNG file"),
    "cut": (written(b"\x89PNG\r\n\x1a\n\0\0"), r"mask.png cannot be .*\(it is cut\)"),
    "missing": (lambda folder: folder / "no.png", r"no.png cannot be opened \(No such"),
    "folder": (lambda folder: folder, r"cannot be opened .*a folder"),
    "colour": (lambda folder: saved(folder, RGB), r"in colour: .*r,g,b of classes.csv"),
    "transparent": (transparent, r"2 transparent pixels of no known class: save"),
    "bomb": (bomb, r"40,000 x 40,000 pixels, where 178,956,970 are the most"),
    "deep colour": (
        lambda folder: made_png(folder, np.zeros((2, 3, 3)), 16, 2)[0],
        r"16 bits per colour",
    ),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_other_files_are_refused_by_name(make, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_mask(make(tmp_path))


def test_colours_that_the_table_lacks_are_counted(tmp_path):
    pixels = RGB.copy()
    pixels[0, 0], pixels[1] = (1, 2, 3), (255, 0, 7)
    message = r"lacks: 255,0,7 \(3 pixels\), 1,2,3 \(1 pixel\); add them"
    with pytest.raises(DataError, match=message):
        read_mask(saved(tmp_path, pixels), {(9, 9, 9): 1})


def pair(folder, photo, values, name, **settings):
    mask = saved(folder, values, name=f"masks/{name}.png")
    return Pair(saved(folder, photo, name=f"{name}.jpg", **settings), mask)


def test_a_survey_counts_the_pixels_and_masks_of_each_value(tmp_path):
    pairs, masks = [], RANDOM.choice([0, 3, 255], (4, 6, 5)).astype("uint8")
    masks[2:] = 3
    for number, values in enumerate(masks):
        photo = np.zeros((6, 5, 3), "uint8")
        pairs.append(pair(tmp_path, photo, values, f"{number}"))
    parts = {"train": pairs[:3], "validation": pairs[3:]}
    found = reading.survey("photos", parts)
    for value, one in found["train"].items():
        assert one.pixels == (masks[:3] == value).sum()
        assert one.masks == (masks[:3] == value).any(axis=(1, 2)).sum()
        assert one.first == pairs[0].mask
    assert found["validation"] == {3: Occurrence(30, 1, pairs[3].mask)}
    whole = reading.joined(found)
    assert {value: one.pixels for value, one in whole.items()} == {
        value: (masks == value).sum() for value in (0, 3, 255)
    }
    assert whole[3].masks == 4


def test_a_mask_has_the_size_of_its_upright_photo(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    photo = np.zeros((4, 6, 3), "uint8")
    tall = pair(tmp_path, photo, np.zeros((6, 4), "uint8"), "tall", exif=exif)
    reading.survey("photos", {"all": [tall]})
    lying = pair(tmp_path, photo, np.zeros((4, 6), "uint8"), "lying", exif=exif)
    small = pair(tmp_path, photo, np.zeros((4, 5), "uint8"), "small")
    message = (
        r"(?s)1 of the 2 masks .*lying.png has 6 x 4 pixels, and .* 4 x 6: turn it like"
    )
    with pytest.raises(DataError, match=message):
        reading.survey("photos", {"all": [tall, lying]})
    message = (
        r"2 of the 3 masks .*small.png has 5 x 4 .* size of its photo; others: .*lying"
    )
    with pytest.raises(DataError, match=message):
        reading.survey("photos", {"all": [tall, small], "test": [lying]})


def test_values_without_a_class_are_counted_and_named(tmp_path):
    (tmp_path / "classes.csv").write_text("value,name\n1,road\n2,car\n")
    classes = of_table(tmp_path / "classes.csv")
    found = {1: Occurrence(9, 1, "a.png"), 7: Occurrence(1200, 2, "b.png")}
    message = r"classes.csv lacks: 7 \(1,200 pixels of 2 masks, first b.png\); add"
    with pytest.raises(DataError, match=message):
        reading.check_values("photos", found, classes)
    reading.check_values("photos", found, of_values([1, 7]))


def test_a_class_that_no_mask_has_is_noted(tmp_path):
    (tmp_path / "classes.csv").write_text("value,name\n1,road\n2,car\n3,tree\n")
    classes = of_table(tmp_path / "classes.csv")
    one = Occurrence(1, 1, "a.png")
    parts = {"train": {1: one, 255: one}, "test": {2: one}}
    expected = "2 of the 3 classes occur in no mask to train on: car, tree"
    assert reading.notes(parts, classes) == (expected,)
    assert reading.notes({"all": {1: one, 2: one, 3: one}}, classes) == ()

"""Class maps of photos: their size, colours, files and areas."""

import csv
import hashlib

import numpy as np
import pytest
from PIL import Image

from train.masks import drawing
from train.masks.classes import of_table
from train.masks.reading import read_mask
from zoo import photos

RANDOM = np.random.RandomState(0)


def test_colours_of_the_palette_are_distinguishable_and_always_the_same():
    colours = drawing.palette().astype(int)
    assert colours.shape == (256, 3) and colours[255].tolist() == [0, 0, 0]
    apart = np.abs(colours[:, None] - colours).max(axis=-1)
    apart[np.diag_indices(256)] = 999
    assert apart.min() >= 36 and apart[:24, :24].min() >= 73
    # Files that were written with it must show the same colours.
    digest = hashlib.sha256(drawing.palette().tobytes()).hexdigest()
    assert digest[:16] == "8be73eec0e7bf18d"


@pytest.mark.parametrize("size", [(40, 61), (3, 2), (7, 9)])
@pytest.mark.parametrize("most", [2**24, 1000])
def test_scores_are_resized_before_the_largest_is_chosen(size, most, monkeypatch):
    monkeypatch.setattr(drawing, "_MOST_NUMBERS", most)
    scores = RANDOM.normal(size=(7, 9, 5)).astype("float32")
    expected = photos.resize(scores, size).argmax(axis=-1)
    found = drawing.class_map(scores, size)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)
    if size == (40, 61):
        coarse = scores.argmax(axis=-1)[:, :, None]
        assert (found != np.rint(photos.resize(coarse, size))[..., 0]).any()


def test_more_classes_than_a_map_has_are_refused():
    with pytest.raises(ValueError, match="at most 255 classes, got 256"):
        drawing.class_map(np.zeros((1, 1, 256)), (1, 1))


def test_a_written_map_is_read_back_by_pillow_and_as_a_mask(tmp_path):
    numbers = RANDOM.randint(0, 256, (13, 17)).astype("uint8")
    drawing.write_class_map(tmp_path / "map.png", numbers)
    with Image.open(tmp_path / "map.png") as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.asarray(image), numbers)
        shown = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(shown, drawing.palette()[numbers])
    np.testing.assert_array_equal(read_mask(tmp_path / "map.png"), numbers)
    few = numbers % 3
    drawing.write_class_map(tmp_path / "few.png", few)
    np.testing.assert_array_equal(read_mask(tmp_path / "few.png"), few)


def test_the_table_of_maps_is_one_of_masks(tmp_path):
    names = [f"class {number}" for number in range(254)] + ["=1+1, road"]
    drawing.write_classes(tmp_path / "classes.csv", names)
    classes = of_table(tmp_path / "classes.csv")
    assert [*classes.names] == names
    numbers = RANDOM.randint(0, 255, (9, 9))
    np.testing.assert_array_equal(classes.numbers(numbers), numbers)
    pixels = drawing.palette()[numbers]
    Image.fromarray(pixels).save(tmp_path / "colours.png")
    found = read_mask(tmp_path / "colours.png", classes.colours)
    np.testing.assert_array_equal(found, numbers)


def test_an_overlay_mixes_the_colours_of_classes_with_the_photo():
    photo = RANDOM.randint(0, 256, (6, 7, 3)).astype("uint8")
    numbers = RANDOM.choice([0, 5, 255], (6, 7))
    found = drawing.overlay(photo, numbers, 0.25)
    colours = drawing.palette()[numbers].astype(float)
    expected = 0.75 * photo + 0.25 * colours
    expected[numbers == 255] = photo[numbers == 255]
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found, expected, atol=0.5 + 1e-4)
    with pytest.raises(ValueError, match=r"its photo, \(6, 7\), got \(3, 7\)"):
        drawing.overlay(photo, numbers[:3])


def test_areas_are_counted_and_written(tmp_path):
    numbers = RANDOM.choice([0, 2, 255], (20, 30), p=[0.5, 0.3, 0.2])
    rows = drawing.areas("-1.jpg", numbers, ["road", "car", "tree, old"])
    assert [(row.label, row.pixels) for row in rows] == [
        ("road", (numbers == 0).sum()),
        ("tree, old", (numbers == 2).sum()),
    ]
    assert sum(row.share for row in rows) == pytest.approx((numbers != 255).mean())
    drawing.write_areas(tmp_path / "areas.csv", rows)
    with open(tmp_path / "areas.csv", newline="") as file:
        header, *written = csv.reader(file)
    assert header == ["file", "class", "pixels", "share"]
    # A spreadsheet would compute what begins with a minus.
    first = ["'-1.jpg", "road", str(rows[0].pixels), f"{rows[0].share:.6f}"]
    assert written[0] == first and len(written) == 2

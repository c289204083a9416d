"""What is said of a data set before a run."""

from unittest import mock

import numpy as np
import pytest
from copied_photos import COPIES, encoded, photo
from PIL import Image

from train.common import library_messages
from train.data import copies
from train.data.review import review
from train.data.sources import load
from train.reports.review import findings, flags_of, overview
from zoo.photos.sixteen_bits import DarkPhotoWarning


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    for part, count in (("train", 11), ("test", 3)):
        for number, name in enumerate(("daisy", "rose")):
            (tmp_path / "photos" / part / name).mkdir(parents=True)
            for seed in range(count):
                image = photo(100 * number + seed + 50 * (part == "test"))
                path = tmp_path / "photos" / part / name / f"{seed}.jpg"
                path.write_bytes(encoded(image))
    return tmp_path / "photos"


def said(folder):
    source = load(str(folder))
    return findings(review(source, is_short=True), source.name)


def test_of_clean_data_nothing_is_said(folder):
    assert said(folder) == []
    [line, files] = overview(review(load(str(folder))), str(folder))
    assert line.endswith("28 photos (6 test, 22 train) of 2 classes, 14 each")
    assert files == "files: 28 JPEG; 160 x 120 pixels"


def test_copies_in_train_and_test_are_named_once(folder):
    leaked = COPIES["cropped around"](photo(150))
    (folder / "train" / "rose" / "leak.jpg").write_bytes(leaked)
    same = (folder / "train" / "daisy" / "3.jpg").read_bytes()
    (folder / "train" / "rose" / "other.jpg").write_bytes(same)
    assert said(folder) == [
        "identical: 2 photos in 1 group: train/daisy/3.jpg = train/rose/other.jpg",
        "near-identical: 2 photos in 1 group: test/rose/0.jpg = train/rose/leak.jpg",
        "contradictions: 2 photos in 1 group, the same under several labels: "
        "train/daisy/3.jpg = train/rose/other.jpg",
        "leaks: 2 photos in 1 group, copies in several parts: test/rose/0.jpg = "
        "train/rose/leak.jpg",
    ]


def test_of_many_photos_identical_ones_are_found_without_decoding(folder, monkeypatch):
    monkeypatch.setattr(copies, "MOST_DECODED", 3)
    same = (folder / "train" / "daisy" / "3.jpg").read_bytes()
    (folder / "test" / "daisy" / "again.jpg").write_bytes(same)
    lines = said(folder)
    assert [line.partition(":")[0] for line in lines] == ["identical", "leaks"]


def test_dark_photos_of_16_bits_are_named_until_bits_are_said(folder, monkeypatch):
    for seed, shift in ((500, 4), (501, 4), (502, 0)):
        values = np.asarray(photo(seed, (64, 64)).convert("L")).astype("uint16") * 257
        path = folder / "train" / "rose" / f"{seed}.png"
        Image.fromarray(values >> shift).save(path)
    no_more_of = mock.Mock()
    monkeypatch.setattr(library_messages, "no_more_of", no_more_of)
    [line] = said(folder)
    assert flags_of(review(load(str(folder)))) == []
    assert line.startswith(
        "dark: 2 of 3 photos of 16 bits are nearly black, as if only"
    )
    assert "pass --bits=12" in line
    assert line.endswith(": train/rose/500.png, train/rose/501.png")
    no_more_of.assert_called_once_with(DarkPhotoWarning)
    (folder / "train" / "rose" / "502.png").unlink()
    assert flags_of(review(load(str(folder)))) == ["--bits=12"]
    source = load(str(folder), bits=12)
    found = review(source)
    assert findings(found, source.name) == flags_of(found) == []


def test_uneven_classes_and_unread_photos_have_advice(folder):
    for seed in range(30):
        path = folder / "train" / "rose" / f"more{seed}.jpg"
        path.write_bytes(encoded(photo(300 + seed, (60, 60))))
    (folder / "train" / "daisy" / "0.jpg").unlink()
    (folder / "train" / "daisy" / "1.jpg").unlink()
    (folder / "test" / "rose" / "0.jpg").write_bytes(b"no photo")
    few, uneven, unread = said(folder)
    assert few.startswith("few: 1 class of fewer than 10 photos to train on")
    assert "daisy (9)" in few
    assert "4.6 times the training photos" in uneven
    assert unread.startswith("unread: 1 photo cannot be decoded: test/rose/0.jpg")

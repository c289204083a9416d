"""Copies among photos: found whatever was done to them, and none among others."""

import dataclasses
import itertools
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from copied_photos import COPIES, encoded, photo
from made_data import lay_out, packed
from PIL import Image

from train.data import copies, fingerprint_cache, fingerprints, near_copies
from train.data.checking import DataError
from train.data.sources import load
from train.data.sources.folder_source import file_split
from train.data.sources.splits import in_memory
from train.data.sources.subset import hold_out


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """An empty cache folder."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(folder))
    return folder


def split_of(folder, files):
    """A split of some files, which are written."""
    lay_out(folder, files)
    paths = [str(folder / name) for name in files]
    return file_split(str(folder), paths, np.zeros(len(paths)))


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_is_found_whatever_was_done_to_it(kind, tmp_path):
    originals = [photo(seed) for seed in range(6)]
    files = {
        f"{n}.jpg": encoded(image, quality=92) for n, image in enumerate(originals)
    }
    files |= {f"copy{n}.jpg": COPIES[kind](originals[n]) for n in range(6)}
    groups = copies.groups(split_of(tmp_path, files))
    assert groups.tolist() == [*range(6)] * 2


def test_other_photos_are_no_copies(tmp_path):
    files = {f"{seed}.jpg": encoded(photo(seed)) for seed in range(40)}
    assert copies.groups(split_of(tmp_path, files)).tolist() == [*range(40)]


def test_photos_that_show_nothing_and_small_ones_must_be_identical(tmp_path):
    flat = Image.new("RGB", (64, 64), (200, 200, 200))
    small = photo(0).resize((24, 24))
    files = {
        "white.png": encoded(flat, "PNG"),
        "white.jpg": encoded(flat),
        "small.png": encoded(small, "PNG"),
        "small.jpg": encoded(small),
        "again.png": encoded(small, "PNG"),
        "broken.jpg": b"no photo",
        "broken too.jpg": b"no photo",
    }
    groups = copies.groups(split_of(tmp_path, files))
    assert groups.tolist() == [0, 1, 2, 3, 2, 5, 6]


def test_a_photo_turned_by_exif_is_a_copy_of_the_upright_one(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = photo(1).transpose(Image.Transpose.ROTATE_90)
    files = {"a.jpg": encoded(photo(1)), "b.jpg": encoded(turned, exif=exif)}
    assert copies.groups(split_of(tmp_path, files)).tolist() == [0, 0]


def test_many_photos_are_compared_in_blocks(monkeypatch):
    small = np.stack(
        [
            np.asarray(photo(seed, (64, 64)).convert("L").resize((32, 32)))
            for seed in range(30)
        ]
    )
    small = np.concatenate([small, small[:7], small[5:9, :, ::-1]])
    whole = near_copies.near_pairs(small)
    monkeypatch.setattr(near_copies, "_ROWS", 8)
    monkeypatch.setattr(near_copies, "_COLUMNS", 5)
    monkeypatch.setattr(near_copies, "_PAIRS", 2)
    np.testing.assert_array_equal(near_copies.near_pairs(small), whole)
    expected = {(n, 30 + n) for n in range(7)} | {(5 + n, 37 + n) for n in range(4)}
    # Copies of one photo are copies of each other.
    assert {tuple(pair) for pair in whole.tolist()} == expected | {(35, 37), (36, 38)}


def test_of_many_photos_identical_ones_count_alone(tmp_path, monkeypatch):
    files = {"a.jpg": encoded(photo(0)), "b.png": encoded(photo(0), "PNG")}
    files |= {"c.jpg": files["a.jpg"], "d.jpg": b"\0" * len(files["a.jpg"])}
    split = split_of(tmp_path, files)
    assert copies.groups(split).tolist() == [0, 0, 0, 3]
    monkeypatch.setattr(copies, "MOST_DECODED", 3)
    monkeypatch.setattr(copies, "known", None)
    assert copies.groups(split).tolist() == [0, 1, 0, 3]


def test_photos_that_are_known_are_not_read_again(tmp_path, monkeypatch, cache):
    read = []
    taken = fingerprints._taken
    monkeypatch.setattr(
        fingerprints,
        "_taken",
        lambda named, bits: read.append(named) or taken(named, bits),
    )
    files = {f"{seed}.jpg": encoded(photo(seed)) for seed in range(4)}
    split = split_of(tmp_path, files)
    first = fingerprint_cache.known(split)
    again = fingerprint_cache.known(split)
    assert len(read) == 4
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.small, other.small)
        assert one._replace(small=None) == other._replace(small=None)
    (tmp_path / "2.jpg").write_bytes(encoded(photo(9)))
    assert fingerprint_cache.known(split)[2].digest != first[2].digest
    assert len(read) == 5
    # With other bits a photo looks otherwise.
    fingerprint_cache.known(dataclasses.replace(split, bits=12))
    assert len(read) == 9
    # A cache that is damaged, or cannot be written, costs time alone.
    (cache / "fingerprints.sqlite").write_bytes(b"damaged")
    assert copies.groups(split).tolist() == [0, 1, 2, 3] and len(read) == 13
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "0.jpg"))
    assert copies.groups(split).tolist() == [0, 1, 2, 3] and len(read) == 17


def test_pixels_of_published_data_are_read_where_somebody_asks():
    pixels = np.stack([np.asarray(photo(seed, (40, 40))) for seed in (0, 1, 0)])
    pixels[2, ..., :] = np.clip(pixels[2] * 1.1, 0, 255)
    split = in_memory("some", pixels, np.zeros(3), tf.identity, str)
    found = fingerprints.fingerprints(split)
    assert copies.near(found).tolist() == [[0, 2]]
    assert found[0].header == ("pixels", 40, 40, 8, 3)
    assert copies.groups(split).tolist() == [0, 1, 2]


# Our own splits


def test_a_split_without_copies_is_what_it_was():
    labels = np.repeat([0, 1, 2], [50, 7, 143])
    for count in (0, 1, 40):
        plain = hold_out(labels, count)
        grouped = hold_out(labels, count, np.arange(200))
        for one, other in zip(plain, grouped, strict=True):
            np.testing.assert_array_equal(one, other)


def test_copies_are_held_out_together_or_not_at_all():
    rng = np.random.default_rng(0)
    groups = copies.joined(300, rng.integers(0, 300, (120, 2)))
    labels = groups % 4
    kept, held = hold_out(labels, 60, groups)
    assert sorted([*kept, *held]) == [*range(300)]
    assert not {*groups[kept]} & {*groups[held]}
    first = np.unique(groups)
    assert len({*groups[held]}) == round(60 * len(first) / 300)
    again = hold_out(labels, 60, groups)
    np.testing.assert_array_equal(held, again[1])


def test_copies_of_a_folder_stay_on_one_side(tmp_path):
    for label, seed in itertools.product("ab", range(12)):
        own = photo(100 * (label == "b") + seed)
        files = {f"{label}/{seed}.jpg": encoded(own)}
        if seed < 8:
            files[f"{label}/{seed} copy.jpg"] = COPIES["cropped at one side"](own)
        if seed < 4:
            # The same photo under another label, too.
            files[f"{'b' if label == 'a' else 'a'}/x{label}{seed}.jpg"] = encoded(own)
        lay_out(tmp_path / "photos", files)
    source = load(str(tmp_path / "photos"), validation_fraction=0.3)
    parts, side_of = source.splits(), {}
    for part, split in parts.items():
        for path in split.names():
            label, name = path.split(os.sep)[-2:]
            key = name[1:] if name[0] == "x" else label + name.replace(" copy", "")
            assert side_of.setdefault(key, part) == part, path
    assert {*parts} == {"train", "validation", "test"} and len(side_of) == 24


def test_copies_of_few_bits_stay_on_one_side(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for seed in range(6):
            image = photo(seed + 9 * (name == "b"), (64, 64)).convert("L")
            for copy in ("1", "2"):
                values = np.asarray(image).astype("uint16") * 16 + 8 * (copy == "2")
                Image.fromarray(values).save(tmp_path / name / f"{seed}-{copy}.png")
    source = load(str(tmp_path), bits=12)
    sides = [
        {path.rpartition("-")[0] for path in part.names()}
        for part in (source.train, source.test)
    ]
    assert not sides[0] & sides[1] and len(sides[1]) == 2


def test_a_class_of_copies_of_one_photo_is_refused(tmp_path):
    files = {f"a/{seed}.jpg": encoded(photo(seed)) for seed in range(3)}
    files |= {f"b/{n}.jpg": encoded(photo(9), quality=80 + n) for n in range(4)}
    lay_out(tmp_path, files)
    with pytest.raises(DataError, match="class 'b' has 4 images, such as .*copies"):
        load(str(tmp_path))
    shutil.rmtree(tmp_path / "b")
    lay_out(tmp_path, {f"train/a/{n}.jpg": files["b/0.jpg"] for n in range(3)})
    lay_out(tmp_path, {"test/a/9.jpg": files["a/0.jpg"]})
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(DataError, match="all 3 images of .* are copies of one"):
        load(str(tmp_path), validation_fraction=0.4)


def test_copies_in_records_are_validated_together(tmp_path):
    images = [encoded(photo(seed)) for seed in range(10)]
    images += [images[0], COPIES["mirrored"](photo(1)), images[2], images[3]]
    records = [
        packed(**{"image/encoded": image, "image/class/label": 0}) for image in images
    ]
    lay_out(tmp_path, {"train.tfrecord": records, "test.tfrecord": records[:1]})
    source = load(str(tmp_path), validation_fraction=0.5)
    same = {10: 0, 11: 1, 12: 2, 13: 3}
    sides = []
    for split in (source.train, source.validation):
        places = [int(name.rpartition(" ")[2]) - 1 for name in split.names()]
        assert len(split.hashes) == len(places)
        sides.append({same.get(place, place) for place in places})
    assert not sides[0] & sides[1] and sides[0] | sides[1] == {*range(10)}

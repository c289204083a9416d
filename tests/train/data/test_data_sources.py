"""What each kind of data source reads, what it leaves out, and what it refuses."""

import csv
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from made_data import examples, images, lay_out, png, record, tiny_images

from train.data import finding
from train.data.registry import PARTS
from train.data.sources import DataError, load, splits
from train.data.sources.folder_source import load_folder
from train.data.sources.subset import hold_out
from zoo.text import printable

pytestmark = pytest.mark.usefixtures("png_only")

TFDS_DIR = Path(__file__).parents[4] / "shared" / "tfds"
needs_cifar100 = pytest.mark.skipif(
    not (TFDS_DIR / "cifar100").is_dir(), reason=f"no cifar100 in {TFDS_DIR}"
)
DIVIDED = images({"train/daisy": 3, "train/tulip": 2, "test/daisy": 2, "test/tulip": 1})
TRAIN, TEST = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)], [(5, 0), (6, 0), (7, 1)]
NUMBERED = images({"images": 10})
ROWS = (
    "images/0.png,tulip,train",
    "images/1.png,daisy,train",
    "images/2.png,tulip,test",
    "images/3.png,daisy,validation",
    "images/4.png,daisy,train",
)
RECORDS = {
    "train-00001-of-00002.tfrecord": [record(3, 1), record(4, 0)],
    "train-00000-of-00002.tfrecord": [record(number, number) for number in range(3)],
    "test-0.tfrecords": [record(5, 2)],
}
RECORDED = [(0, 0), (1, 1), (2, 2), (3, 1), (4, 0)]
HUGE = "1" + 5000 * "0"
UNTRAINED = {"test-0.tfrecords": [record(5, 2)]}
EMPTY = {"train/rose/.hidden.png": "", "train/rose/older": None}


def table(*rows, name="a.csv", header="path,label,split"):
    return NUMBERED | {name: "\n".join([header, *rows, ""])}


def lacking(files, part):
    return {name: files[name] for name in files if not name.startswith(part)}


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Lays out files in `data`, and loads them by a path that begins there."""
    monkeypatch.chdir(tmp_path)

    def load_files(files, dataset="data", fraction=0.0, **settings):
        lay_out(tmp_path / "data", files)
        return load(dataset, "data", validation_fraction=fraction, **settings)

    return load_files


VALIDATION = {"validation/daisy/0.png": png(8), "validation/tulip/0.png": png(9)}
UNTESTED = lacking(DIVIDED, "test") | images({"val/daisy": 1, "val/tulip": 1}, first=8)
ACCENTS = images(
    {"train/zebra": 1, "test/zebra": 1, "train/e\u0301te\u0301": 1, "test/\xe9t\xe9": 1}
)
# A byte order mark, CRLF, quotes, more columns, spaces, empty lines.
SPREADSHEET = NUMBERED | {
    "images/a, b.png": png(77),
    "a.csv": b"\xef\xbb\xbfLabel,notes,Path,split\r\n"
    b'"rose,""red""",,images/1.png, Train\r\n\r\n'
    b'caf\xc3\xa9,"two\r\nlines","images/a, b.png",train\r\n'
    b"caf\xc3\xa9,,images/2.png ,test\r\n",
}
BESIDE = (
    table("images/0.png,b", "images/1.png,a", name="train.csv", header="path,label")
    | table("c,images/2.png", name="test.csv", header="label,path")
    | table("images/3.png,b", name="validation.csv", header="path,label")
)
EVEN = table(
    *(f"images/{i}.png,{2 * i + 2},train" for i in range(6)), "images/9.png,10,test"
)
LONG = table(
    f"images/0.png,{HUGE},train", "images/1.png,9,train", "images/2.png,9,test"
)
PIECES = {
    "train-00000-of-00002": [record(0, 0)],
    "train-00001-of-00002.tfrecord.gz": [record(1, 1)],
    "validation-00000-of-00001": [record(2, 1)],
}
NAMED = {
    "train.tfrecord": [record(0, 2, b"rose"), record(1, 0, b"aster")],
    "test.tfrecord": [record(2, 2, b"rose")],
}


def case(files, classes, dataset="data", fraction=0.0, **parts):
    """Returns files, how they are loaded, and what of them are in which parts."""
    return files, dataset, fraction, classes, parts


def of_table(files, classes, fraction=0.0, **parts):
    return case(files, classes, "data/a.csv", fraction, **parts)


def of_tfds(labels, fraction=0.0, **parts):
    return case(tiny_images(labels), "no yes", "tiny_images", fraction, **parts)


ROWS_OF_TRAIN = [(0, 1), (1, 0), (4, 0)]
BOTH_VALIDATED = [(8, 0), (9, 1)]
READ = {
    "a folder of each part": case(DIVIDED, "daisy tulip", train=TRAIN, test=TEST),
    # macOS has accents as characters of their own.
    "folders of other systems": case(
        ACCENTS, "zebra \xe9t\xe9", train=[(0, 0), (2, 1)], test=[(1, 0), (3, 1)]
    ),
    "a folder for validation": case(
        DIVIDED | VALIDATION,
        "daisy tulip",
        fraction=0.02,
        train=TRAIN,
        validation=BOTH_VALIDATED,
        test=TEST,
    ),
    "a folder for validation that no fraction asks for": case(
        DIVIDED | VALIDATION, "daisy tulip", train=TRAIN, test=TEST
    ),
    "a folder val that is the test": case(
        UNTESTED, "daisy tulip", train=TRAIN, test=BOTH_VALIDATED
    ),
    # Classes may be in one part only, and have one image.
    "a whole folder of parts": case(
        DIVIDED | {"val/rose/0.png": png(8)},
        "daisy rose tulip",
        fraction=None,
        all=[*TRAIN[:3], *TEST[:2], (8, 1), (3, 2), (4, 2), (7, 2)],
    ),
    "a whole folder of classes, one of them called train": case(
        images({"train": 1, "plane": 1}),
        "plane train",
        fraction=None,
        all=[(1, 0), (0, 1)],
    ),
    "a table": of_table(
        table(*ROWS),
        "daisy tulip",
        fraction=0.5,
        train=ROWS_OF_TRAIN,
        validation=[(3, 0)],
        test=[(2, 1)],
    ),
    "tables beside each other": case(
        BESIDE | table("a,images/2.png", name="test.csv", header="label,path"),
        *("a b", "data/train.csv", 0.5),
        train=[(0, 1), (1, 0)],
        validation=[(3, 1)],
        test=[(2, 0)],
    ),
    "whole tables beside each other": case(
        BESIDE, "a b c", "data/train.csv", None, all=[(0, 1), (1, 0), (3, 1), (2, 2)]
    ),
    "a table as spreadsheets write it": of_table(
        SPREADSHEET, 'caf\xe9 rose,"red"', train=[(1, 1), (77, 0)], test=[(2, 0)]
    ),
    "a table of numbers, which sort as numbers": of_table(
        EVEN, "2 4 6 8 10 12", train=[(i, i) for i in range(6)], test=[(9, 4)]
    ),
    "a table of a number of 5,001 digits": of_table(
        LONG, f"9 {HUGE}", train=[(0, 1), (1, 0)], test=[(2, 0)]
    ),
    "a whole table without a column split": of_table(
        table("images/3.png,b", "images/1.png,a", header="path,label"),
        "a b",
        fraction=None,
        all=[(3, 1), (1, 0)],
    ),
    "a whole table of any parts": of_table(
        table(*ROWS, "images/5.png,rose,", "images/6.png,rose,later"),
        "daisy rose tulip",
        fraction=None,
        all=[(0, 2), (1, 0), (2, 2), (3, 0), (4, 0), (5, 1), (6, 1)],
    ),
    "records": case(
        RECORDS | {"class_names.txt": "a\nb\nc\n\n", ".hidden.tfrecord": ""},
        "a b c",
        train=RECORDED,
        test=[(5, 2)],
    ),
    "records of a pattern": case(
        RECORDS
        | {"train-9.old": [record(9, 9)], "test-00000-of-00001": [record(7, 1)]},
        *("0 1 2", "data/*-00000-of-*"),
        train=[(0, 0), (1, 1), (2, 2)],
        test=[(7, 1)],
    ),
    "records whose validation is the test, compressed and without an ending": case(
        PIECES, "0 1", train=[(0, 0), (1, 1)], test=[(2, 1)]
    ),
    "records with names": case(
        NAMED, "aster 1 rose", train=[(0, 2), (1, 0)], test=[(2, 2)]
    ),
    "whole records": case(RECORDS, "0 1 2", fraction=None, all=[*RECORDED, (5, 2)]),
    "whole records of a test": case(
        RECORDS, "0 1 2", "data/test-*", None, all=[(5, 2)]
    ),
    "a folder of images goes before records": case(
        DIVIDED | RECORDS, "daisy tulip", train=TRAIN, test=TEST
    ),
    # Gray, with the end of train for validation.
    "TFDS": of_tfds(
        {"train": [0, 1] * 5, "test": [1, 0], "validation": [1]},
        fraction=0.3,
        train=[(i, i % 2) for i in range(7)],
        validation=[(7, 1), (8, 0), (9, 1)],
        test=[(0, 1), (1, 0)],
    ),
    "TFDS whose test has no labels": of_tfds(
        {"train": [0, 1], "test": [-1, -1], "validation": [1, 0, 1]},
        train=[(0, 0), (1, 1)],
        test=[(0, 1), (1, 0), (2, 1)],
    ),
    # All splits with labels, without any for training too.
    "whole TFDS": of_tfds(
        {"train": [0, 1], "test": [-1, -1], "extra": [1, 0, 1]},
        fraction=None,
        all=[(0, 1), (1, 0), (2, 1), (0, 0), (1, 1)],
    ),
}


@pytest.mark.parametrize(
    ("files", "dataset", "fraction", "classes", "parts"), READ.values(), ids=READ
)
def test_what_a_source_reads(files, dataset, fraction, classes, parts, loaded):
    source = loaded(files, dataset, fraction, log=str)
    assert source.name == dataset
    assert source.class_names == tuple(classes.split())
    found = {part: getattr(source, part) for part in (*PARTS, "all")}
    found = {part: split for part, split in found.items() if split is not None}
    assert found.keys() == parts.keys()
    for part, split in found.items():
        pairs = examples(split)
        # The parts of a whole come in an order of their own.
        ordered = sorted if part == "all" else list
        assert ordered(pairs) == ordered(parts[part])
        labels = [label for _, label in pairs]
        assert split.num_examples == len(labels) == len(split.names())
        assert split.labels().tolist() == labels
        counts = np.bincount(labels, minlength=9)
        np.testing.assert_array_equal(split.class_counts(9), counts)


def test_a_source_knows_its_total_and_where_examples_are(loaded):
    source = loaded(DIVIDED | VALIDATION)
    assert source.total == 10 and source.train.locate(3) == "data/train/tulip/0.png"
    source = loaded(tiny_images({"train": 5 * [0, 1], "test": [1]}), "tiny_images")
    assert source.total == 11 and source.test.name == "tiny_images test"
    assert source.train.locate(3) == "example 3 of tiny_images train"
    source = loaded(RECORDS, "data/t*-0*")
    assert source.total == 6 and source.train.name == "data/t*-0* train"
    places = [source.train.locate(index) for index in (2, 3)]
    assert places[0] == "data/train-00000-of-00002.tfrecord record 3"
    assert places[1] == "data/train-00001-of-00002.tfrecord record 1"


def test_paths_of_a_table_may_be_absolute(tmp_path):
    lay_out(tmp_path, NUMBERED)
    rows = [f"{tmp_path}/{row}" for row in ROWS]
    lay_out(tmp_path / "elsewhere", {"a.csv": "\n".join(["path,label,split", *rows])})
    assert examples(load(str(tmp_path / "elsewhere" / "a.csv")).test) == [(2, 1)]


def test_every_ending_of_images_is_taken_and_nothing_hidden(loaded):
    names = ["a.jpg", "b.JPEG", "c.PNG", "d.png", "e.BMP", "f.gif", "g.webp"]
    others = [".hidden.jpg", "notes.txt", "../.cache/h.jpg"]
    paths = [f"{part}/rose/{name}" for part in ("train", "test") for name in names]
    paths += [f"train/rose/{name}" for name in others]
    split = loaded(dict.fromkeys(paths, ""), log=str).train
    assert [Path(name).name for name in split.names()] == names


# Parts that are held out


OF_IMAGES = images({"train/a": 3, "train/b": 7, "test/a": 1, "test/b": 1})
OF_ROWS = [f"images/{i}.png,{'ba'[i % 3 == 0]},train" for i in range(1, 10)]
OF_RECORDS = [record(i, int(i % 3 > 0)) for i in range(9)]
HELD_OUT = {
    "folder": (OF_IMAGES, "data"),
    "table": (table("images/0.png,a,test", *OF_ROWS), "data/a.csv"),
    "records": ({"train-0.tfrecord": OF_RECORDS, **UNTRAINED}, "data"),
}


@pytest.mark.parametrize(("files", "dataset"), HELD_OUT.values(), ids=HELD_OUT)
def test_a_validation_part_is_stratified_and_always_alike(files, dataset, loaded):
    source, again = (loaded(files, dataset, 0.3) for _ in "ab")
    kept, held = examples(source.train), examples(source.validation)
    whole = examples(load(dataset).train)
    assert sorted(kept + held) == sorted(whole)
    assert [one for one in whole if one in kept] == kept
    assert held == examples(again.validation)
    assert np.bincount([label for _, label in held]).tolist() == [1, 2]
    assert source.validation.name.startswith("the validation part of ")


def test_a_folder_of_classes_has_a_fifth_for_the_test(loaded):
    files = images({"daisy": 11, "rose": 2, "tulip": 5})
    source, again = (loaded(files, fraction=0.25) for _ in "ab")
    assert source.class_names == ("daisy", "rose", "tulip")
    assert source.test.class_counts(3).tolist() == [2, 1, 1]
    assert source.validation.num_examples == round((9 + 1 + 4) * 0.25)
    parts = [getattr(source, part) for part in PARTS]
    everything = sum(map(examples, parts), [])
    assert sorted(number for number, _ in everything) == list(range(18))
    assert all(label == (number > 10) + (number > 12) for number, label in everything)
    assert [examples(getattr(again, part)) for part in PARTS] == [*map(examples, parts)]


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, 0.04, 0.97, float("nan")])
def test_a_fraction_that_leaves_nothing_is_refused(loaded, fraction):
    with pytest.raises(DataError, match="validation_fraction=.* 5 examples of .*train"):
        loaded(DIVIDED, fraction=fraction)


def test_hold_out_gives_each_class_its_share():
    labels = np.repeat([0, 1, 2], [50, 7, 143])
    kept, held = hold_out(labels, 40)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), range(200))
    assert np.all(np.abs(np.bincount(labels[held]) - [10, 1.4, 28.6]) < 1)
    assert hold_out(labels, 0)[1].size == 0


def test_picked_examples_are_those_of_the_whole(loaded):
    split = loaded(DIVIDED).train
    assert split.class_counts(3).tolist() == [3, 2, 0]
    for indices in ([], [0], [1, 2, 4]):
        part = splits.pick(split, indices)
        assert part.num_examples == len(indices)
        assert examples(part) == [examples(split)[index] for index in indices]
        assert part.labels().tolist() == split.labels()[indices].tolist()
        assert part.names() == [split.locate(index) for index in indices]


# What is refused


# The files, the data set, and what the message must name.
NOT_THERE = [
    (DIVIDED | EMPTY, "data", "data/train/rose has no images: expected", "some (.jpg"),
    (DIVIDED | EMPTY, "data/train", "data/train/rose has no images"),
    (DIVIDED, "data/train/daisy", "no class folders", "folder above it", "/data/train"),
    ({"a/1.HEIC": ""}, "data", "no images", "pip install pillow-heif"),
    (DIVIDED, "data/trian/daisy", 'data/trian/daisy": did you mean data/train/daisy?'),
    ({"pho\n\x1btos": None}, "./data/photos", r"you mean data/pho\x0a\x1btos? pass"),
    (DIVIDED, "data/train/daisy/0.png", '0.png", it is a file: pass the folder'),
    ({}, "photoz/", 'no folder "photoz/"'),
    ({}, "./photoz", 'no folder "./photoz"'),
    ({}, "/no/photoz", 'no folder "/no/photoz"'),
    ({}, "~/photoz", 'no folder "~/photoz"'),
    ({}, "data/a.csv", "no file data/a.csv: check the path"),
    ({}, "vtab/clevr", '"clevr"', "did you mean clevr_count"),
    ({"../cifar1000": ""}, "cifar1000", '"cifar1000", it is a file: pass'),
    ({"../a.zip": ""}, "a.zip", '"a.zip", it is a file: pass'),
    ({"../cifar100": ""}, "./cifar100", '"./cifar100", it is a file: pass'),
    ({}, "cifar1000", "did you mean cifar100", "test}/class/"),
    ({}, "digit", "did you mean digits"),
    ({}, "mnst", "did you mean", "mnist"),
    ({}, "my photos", '"my photos" is not an existing folder'),
    ({}, "cifar100:9.9.9", '"cifar100:9.9.9" is not an existing folder'),
]


@pytest.mark.parametrize("row", NOT_THERE, ids=lambda row: row[2])
def test_what_is_not_there_is_refused_before_anything_is_read(
    row, tmp_path, monkeypatch
):
    files, dataset, *parts = row
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("zoo.photos.files.reads_heic", lambda: False)
    (tmp_path / "data").mkdir()
    lay_out(tmp_path / "data", files)
    with pytest.raises(DataError) as refused:
        finding.check(dataset, "data")
    for part in parts:
        assert part in str(refused.value)


NO_LIST = "line breaks or other control characters"


def named(text):
    return {"test.tfrecord": [record(2, 2, text)]}


def third(bad):
    return RECORDS | {"train-9.tfrecord": [record(0, 0), record(1, 0), bad]}


# Lines of a table, and what the message must name.
BAD_ROWS = {
    "images/1.png,a,training": 'line 2: the split "training"',
    "images/1.png,a,": 'line 2: the split ""',
    "images/0.png,a,train\nimages/1.png, ,train": "line 3 has no label",
    ",a,train": "line 2 has no path",
    "images/1.png,a": "line 2 has 2 values for 3 columns: put what has",
    "x, y.png,a,train": "line 2 has 4 values for 3 columns",
    'images/0.png,"a,train\nimages/1.png,b,test': "line 3: unexpected end",
    "images/0.png,a,train\nimages/./0.png,b,test": "lists 1 image more than once",
    "images/0.png,a,train\nimages/1.png,b,test": "line 3: no image for training has",
    "images/0.png,a,test": "nothing for train",
    "images/0.png,a,train": "nothing for test",
    "": "nothing for train",
}
HEADERS = ("", "file,class", "path;label;split", "path,label,path", "0.png,a,train")
# The third record of a file, and what the message must say of it.
BAD_RECORDS = [
    (record(1, None), "has no image/class/label with one value of int64_list"),
    (record(1, 0, **{"image/encoded": None}), "has no image/encoded"),
    (record(1, 0, **{"image/encoded": b""}), "has an empty image"),
    (record(1, b"daisy"), "has no image/class/label with one value"),
    (record(1, [0, 1]), "has no image/class/label with one value"),
    (record(1, -1), "has the label -1: labels count from 0"),
    (b"\xff\xff\xff", "is no tf.train.Example"),
]
NO_NAMES = (b"two\nlines", b"latin\xff", b"\x1b[31m")
TWICE = table("images/0.png,a,train", "images/./0.png,b,test")
LATIN = NUMBERED | {"a.csv": b"path,label,split\ni,caf\xe9,test"}
UNDIVIDED = table("images/0.png,a", header="path,label")
ALONE = table("images/0.png,a", name="train.csv", header="path,label")
GONE = table(*(f"images/{i}.png,a,train" for i in range(8, 25)), "images/0.png,a,test")
UNLABELLED = tiny_images({"train": [0, 1], "test": [-1, -1]})
TEXTS = tiny_images({"train": [0], "test": [0]}, label=("text", {}))
REFUSED = [
    (lacking(DIVIDED, "train"), "data", "no folder data/train: expected one folder"),
    (lacking(DIVIDED, "test"), "data", "no folder data/test", "pass that folder"),
    (DIVIDED | VALIDATION | {"val": None}, "data", "both validation and val: keep one"),
    (DIVIDED | images({"test/rose": 1}), "data", "data/test has", "'rose'", "lacks"),
    (DIVIDED | images({"train/rose": 1}), "data", "data/train has", "'rose'", "lacks"),
    ({"train/0.png": "", "test": None}, "data", "train has no class folders: expected"),
    (images({"daisy": 1}), "data", "daisy has one image", "add some"),
    *((table(rows), "data/a.csv", told) for rows, told in BAD_ROWS.items()),
    *((table(header=one), "data/a.csv", "line 1 has the columns") for one in HEADERS),
    (TWICE, "data/a.csv", "images/0.png (data/a.csv line 3, first data/a.csv line 2)"),
    (LATIN, "data/a.csv", "not in UTF-8", "save it again"),
    (UNDIVIDED, "data/a.csv", "does not say which images are for training"),
    (ALONE, "data/train.csv", "does not say which images are for training"),
    (GONE, "data/a.csv", "15 of the 18 images", "/19.png and 5 more", "--skip_corrupt"),
    (RECORDS, "data/none*", "no TFRecord files data/none*: expected"),
    (UNTRAINED, "data", "nothing for train: expected TFRecord"),
    (UNTRAINED | {"train.tfrecord": []}, "data", "for train are empty"),
    (RECORDS | {"test-0.tfrecords": []}, "data", "for test are empty"),
    (NAMED | named(b"lily"), "data", "label 2 has the names ['lily', 'rose']"),
    (NAMED | {"class_names.txt": "a\nb\n"}, "data", "label 2", "2 lines", "label is 0"),
    (NAMED | {"class_names.txt": "a\x0bb\n"}, "data", "names.txt line 1", NO_LIST),
    *((NAMED | named(text), "data", f"{text!r}", "not UTF-8") for text in NO_NAMES),
    *((third(bad), "data", f"train-9.tfrecord record 3 {e}") for bad, e in BAD_RECORDS),
    (UNLABELLED, "tiny_images", "no labelled test", "['test', 'train']"),
    (tiny_images({"test": [0, 1]}), "tiny_images", "no train split, only ['test']"),
    (TEXTS, "tiny_images", "not an image classification", "'label'", "ClassLabel"),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[2])
def test_what_a_source_refuses(row, loaded):
    files, dataset, *parts = row
    with pytest.raises(DataError) as refused:
        loaded(files, dataset)
    for part in parts:
        assert part in str(refused.value)


def test_a_whole_data_set_of_tfds_needs_labels(loaded):
    with pytest.raises(DataError, match="has no labels: choose"):
        loaded(tiny_images({"test": [-1, -1]}), "tiny_images", None)


@pytest.mark.parametrize("fraction", [None, 0.1])
def test_a_loader_too_names_the_folder_above_a_class(tmp_path, fraction):
    train = lay_out(tmp_path, DIVIDED) / "train"
    with pytest.raises(DataError, match=f"directly: .* the folder above it, {train}$"):
        load_folder(str(train / "daisy"), None, fraction, False)


@pytest.mark.parametrize("damage", ["flipped", "cut", "text"])
def test_damaged_records_are_counted_to_the_damage(loaded, tmp_path, damage):
    loaded(RECORDS)
    path = tmp_path / "data" / "train-00000-of-00002.tfrecord"
    content = bytearray(path.read_bytes())
    size = len(content) // 3
    if damage == "flipped":
        content[size + size // 2] ^= 1
    elif damage == "cut":
        content = content[: size + size // 2]
    else:
        content = content[:size] + b"no record at all, but text"
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=f"{path.name} is damaged after 1 whole records"
    ):
        load("data")


def test_tfds_that_cannot_be_downloaded_is_asked_for(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    def offline(self):
        raise ConnectionError("no route to host\n\nA page of help:\n- more")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", offline)
    with pytest.raises(
        DataError, match=r"no route to host\): prep.*--data_dir"
    ) as told:
        load("oxford_iiit_pet", tmp_path)
    assert "help" not in str(told.value)


def test_of_a_long_refusal_by_tfds_the_first_line_is_shown(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    def refused(name, data_dir):
        raise ValueError("No such version.\nAvailable versions:\n- 1.0.0")

    monkeypatch.setattr(tfds, "builder", refused)
    with pytest.raises(DataError, match="cannot open it: No such version.$"):
        load("cifar100", tmp_path)


def test_a_file_does_not_hide_the_data_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cifar100").touch()
    finding.check("cifar100", tmp_path)


# Names, and what is ignored


def test_ten_names_are_all_shown():
    names = list("abcdefghijk")
    ten = "a, b, c, d, e, f, g, h, i, j"
    assert splits.named(names[:10]) == ten
    assert splits.named(names) == f"{ten} and 1 more"


PHOTOS = images({"daisy": 3, "tulip": 3}, "webp")


def test_what_is_ignored_is_counted_and_named_in_one_line(
    loaded, tmp_path, monkeypatch, capsys
):
    others = ("notes.txt", "tulip/x.heic", "Thumbs.db", "daisy/.DS_Store", "a.jpg")
    files = PHOTOS | dict.fromkeys(others, "") | {"daisy/older/1.png": png(1)}
    lines = []
    monkeypatch.setattr("zoo.photos.files.reads_heic", lambda: False)
    lay_out(tmp_path / "data", files)
    (tmp_path / "data" / "daisy" / "gone.png").symlink_to("nowhere")
    source = loaded({}, log=lines.append)
    names = ("a.jpg", "daisy/gone.png", "daisy/older/", "notes.txt", "tulip/x.heic")
    assert source.ignored == names
    assert lines == [
        f"data: 5 entries are ignored, no images in class folders: {', '.join(names)}; "
        "HEIC photos are read where pillow-heif is: pip install pillow-heif"
    ]
    assert source.train.num_examples + source.test.num_examples == 6
    monkeypatch.setattr("zoo.photos.files.reads_heic", lambda: True)
    assert load("data", log=str).ignored == names[:-1]
    lay_out(tmp_path / "clean", PHOTOS)
    assert load("clean").ignored == () and capsys.readouterr().out == ""


def test_records_of_other_names_are_ignored_and_named(loaded, capsys):
    others = ("train_2.tfrecord", "Train-3.tfrecord", "val-0.tfrecord")
    files = RECORDS | dict.fromkeys(others, [record(8, 0)]) | {"older": None}
    source = loaded(files)
    assert source.train.num_examples == 5
    names = ("Train-3.tfrecord", "older/", "train_2.tfrecord", "val-0.tfrecord")
    assert source.ignored == names
    assert capsys.readouterr().out == (
        f"data: 4 entries are ignored, no TFRecord files of train, validation or "
        f"test by their names: {', '.join(names)}\n"
    )
    # Of a pattern, what it means.
    assert load("data/t*").ignored == ("train_2.tfrecord",)


NAMES = {
    b"two\nlines": r"two\x0alines",
    b"return\r": r"return\x0d",
    b"\x1b[31mred": r"\x1b[31mred",
    b"latin\xff": r"latin\udcff",
    "paragraph\u2029": r"paragraph\u2029",
    "\u202egpj": r"\u202egpj",
    "\u2067\u05e9\u2069": "\\u2067\u05e9\\u2069",
}
# With the marks that Hebrew and Arabic names have.
MARKED = ("\u05e9\u05dc\u05d5\u05dd\u200f (1)", "\u061cعبّاد", "a\u200e")


@pytest.mark.parametrize(("name", "shown"), NAMES.items(), ids=ascii)
def test_names_that_no_list_could_hold_are_refused_by_path(loaded, name, shown):
    name = os.fsdecode(name)
    for path, place in (
        (f"{name}/0.png", f"data/{shown}"),
        (f"tulip/{name}.webp", f"data/tulip/{shown}.webp"),
    ):
        with pytest.raises(DataError) as refused:
            loaded(PHOTOS | {path: png(0)})
        assert str(refused.value).startswith(f"{place} has {NO_LIST}")
        shutil.rmtree("data")


@pytest.mark.parametrize(
    "row", [("images/0.png", "two\nlines", "train"), ("images/\x1b.png", "a", "train")]
)
def test_names_that_no_list_could_hold_are_refused_by_line(tmp_path, row):
    dataset = tmp_path / "a.csv"
    with open(dataset, "w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "split"), row])
    with pytest.raises(DataError, match=f"^{dataset} line .*has {NO_LIST}") as refused:
        load(str(dataset))
    assert str(refused.value).isprintable()


def test_names_in_every_script_are_taken(loaded):
    names = ("Gänse blümchen", "向日葵\u3000", "👩\u200d🌾", "عبّاد\u200c", *MARKED)
    classes = loaded(images(dict.fromkeys(names, 2))).class_names
    assert set(classes) == set(names)


def test_ignored_names_are_printable(loaded):
    names = {os.fsdecode(name): "" for name in (*NAMES, *MARKED)}
    shown = loaded(PHOTOS | names).ignored
    assert set(shown) == {*NAMES.values(), *MARKED}
    assert all(printable(name) == name for name in shown)


# Digits and CIFAR-100


def test_digits_are_those_of_scikit_learn_split_by_class():
    from sklearn.datasets import load_digits

    source = load("digits", validation_fraction=0.1)
    parts = [source.train, source.validation, source.test]
    whole = load("digits", validation_fraction=None)
    assert [split.num_examples for split in parts] == [1293, 144, 360]
    assert whole.total == source.total == whole.all.num_examples == 1797
    assert source.class_names == tuple("0123456789")

    def pixels(splits):
        return sorted(
            (image.tobytes(), int(label))
            for split in splits
            for image, label in split.records().as_numpy_iterator()
        )

    levels = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    pairs = zip(levels, load_digits().target, strict=True)
    expected = sorted((image.tobytes(), int(label)) for image, label in pairs)
    assert pixels(parts) == pixels([whole.all]) == expected
    for split in parts:
        share = whole.all.class_counts(10) * split.num_examples / 1797
        assert np.abs(split.class_counts(10) - share).max() < 2
    record, _ = next(iter(source.test.records()))
    image = source.test.decode(record).numpy()
    assert image.dtype == np.uint8 and image.max() == 255
    np.testing.assert_array_equal(image, np.repeat(record.numpy(), 3, axis=-1))


@needs_cifar100
def test_cifar100_is_what_tfds_gives_without_a_network(monkeypatch, capfd):
    import tensorflow_datasets as tfds

    def refuse(*args):
        raise AssertionError(f"network access to {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    source = load("cifar100:3.*.*", str(TFDS_DIR), validation_fraction=0.02)
    next(iter(source.train.records()))
    out, err = capfd.readouterr()
    assert out == "" and "WARNING" not in err and "%|" not in err
    assert len(source.class_names) == 100
    assert (source.class_names[0], source.class_names[99]) == ("apple", "worm")
    for part, instruction, count in (
        ("train", "train[:98%]", 49_000),
        ("validation", "train[98%:]", 1_000),
        ("test", "test", 10_000),
    ):
        split = getattr(source, part)
        plain = tfds.load(
            "cifar100",
            split=instruction,
            data_dir=TFDS_DIR,
            as_supervised=True,
            read_config=tfds.ReadConfig(try_autocache=False),
        )
        assert len(plain) == split.num_examples == count
        for (content, label), (image, expected) in zip(
            split.records().take(20), plain.take(20), strict=True
        ):
            assert content.dtype == tf.string
            np.testing.assert_array_equal(tf.io.decode_png(split.read(content)), image)
            assert int(label) == int(expected)

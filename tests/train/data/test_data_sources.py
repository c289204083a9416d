"""What each kind of data source reads, what it leaves out, and what it refuses."""

import os
from pathlib import Path

import numpy as np
import pytest
from made_data import (
    DIVIDED,
    MARKED,
    NAMED,
    NAMES,
    NUMBERED,
    PHOTOS,
    RECORDS,
    UNTRAINED,
    VALIDATION,
    examples,
    images,
    lacking,
    lay_out,
    png,
    record,
    table,
    tiny_images,
)

from train.data.columns import Columns
from train.data.registry import PARTS
from train.data.sources import DataError, load
from train.data.sources.subset import hold_out

pytestmark = pytest.mark.usefixtures("png_only")

ROWS = (
    "images/0.png,tulip,train",
    "images/1.png,daisy,train",
    "images/2.png,tulip,test",
    "images/3.png,daisy,validation",
    "images/4.png,daisy,train",
)
HUGE = "1" + 5000 * "0"


CSV, TFDS = "data/a.csv", "tiny_images"
UNTESTED = lacking(DIVIDED, "test") | images({"val/daisy": 1, "val/tulip": 1}, first=8)
# macOS has accents as characters of their own.
ACCENTS = images(
    {"train/zebra": 1, "test/zebra": 1, "train/e\u0301te\u0301": 1, "test/\xe9t\xe9": 1}
)
# Classes may be in one part only, and have one image.
LONELY = DIVIDED | {"val/rose/0.png": png(8)}
CALLED_TRAIN = images({"train": 1, "plane": 1})
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
    | table("a,images/2.png", name="test.csv", header="label,path")
    | table("images/3.png,b", name="validation.csv", header="path,label")
)
# Numbers sort as numbers, also those of 5,001 digits.
EVEN = table(
    *(f"images/{i}.png,{2 * i + 2},train" for i in range(6)), "images/9.png,10,test"
)
LONG = table(
    f"images/0.png,{HUGE},train", "images/1.png,9,train", "images/2.png,9,test"
)
UNSPLIT = table("images/3.png,b", "images/1.png,a", header="path,label")
# No usual names, an empty line of a spreadsheet, and a row without a label.
NAMED_COLUMNS = table(
    *("images/0.png,x,1", ",,", "images/1.png,y,2", "images/2.png,,2"),
    header="Photo ID,breed,fold",
)
USUAL_COLUMNS = table(
    *("daisy,images/0.png,train", "tulip,images/1.png,val", "daisy,images/2.png,train"),
    *("tulip,images/3.png,test", "tulip,images/4.png,train"),
    header="Class Name,FileName,subset",
)
# As spreadsheets write them where a comma is the decimal sign, and as databases do.
SEMICOLONS = table(
    *('images/0.png;"a;b";train', "images/1.png;c,d;train", "images/2.png;c,d;test"),
    header='"path";label;split',
)
TABS = table(
    *("images/0.png\ta\ttrain", "images/1.png\tb,c\ttrain", "images/2.png\ta\ttest"),
    header="path\tlabel\tsplit",
)
ANY = table(*ROWS, "images/5.png,rose,", "images/6.png,rose,later")
TITLED = RECORDS | {"class_names.txt": "a\nb\nc\n\n", ".hidden.tfrecord": ""}
OLD = RECORDS | {"train-9.old": [record(9, 9)], "test-00000-of-00001": [record(7, 1)]}
# The validation is the test; compressed, and without an ending.
PIECES = {
    "train-00000-of-00002": [record(0, 0)],
    "train-00001-of-00002.tfrecord.gz": [record(1, 1)],
    "validation-00000-of-00001": [record(2, 1)],
}
# Gray, with the end of train for validation.
OF_TFDS = tiny_images({"train": [0, 1] * 5, "test": [1, 0], "validation": [1]})
UNTESTED_TFDS = tiny_images(
    {"train": [0, 1], "test": [-1, -1], "validation": [1, 0, 1]}
)
FOLDERS = "daisy tulip; train 0:0 1:0 2:0 3:1 4:1 test 5:0 6:0 7:1"
BOTH = "daisy tulip; train 0:0 1:0 2:0 3:1 4:1 validation 8:0 9:1 test 5:0 6:0 7:1"
# Files, the data set, the fraction for validation, or None for a whole; the classes,
# and the number and the label of each image by part.
READ = [
    (DIVIDED, "data", 0, FOLDERS),
    (ACCENTS, "data", 0, "zebra \xe9t\xe9; train 0:0 2:1 test 1:0 3:1"),
    (DIVIDED | VALIDATION, "data", 0.02, BOTH),
    (DIVIDED | VALIDATION, "data", 0, FOLDERS),
    (UNTESTED, "data", 0, "daisy tulip; train 0:0 1:0 2:0 3:1 4:1 test 8:0 9:1"),
    (LONELY, "data", None, "daisy rose tulip; all 0:0 1:0 2:0 3:2 4:2 5:0 6:0 7:2 8:1"),
    (lacking(DIVIDED, "train"), "data", None, "daisy tulip; all 5:0 6:0 7:1"),
    (CALLED_TRAIN, "data", None, "plane train; all 0:1 1:0"),
    (table(*ROWS), CSV, 0.5, "daisy tulip; train 0:1 1:0 4:0 validation 3:0 test 2:1"),
    (BESIDE, "data/train.csv", 0.5, "a b; train 0:1 1:0 validation 3:1 test 2:0"),
    (BESIDE, "data/train.csv", None, "a b; all 0:1 1:0 2:0 3:1"),
    (SPREADSHEET, CSV, 0, 'caf\xe9 rose,"red"; train 1:1 77:0 test 2:0'),
    (EVEN, CSV, 0, "2 4 6 8 10 12; train 0:0 1:1 2:2 3:3 4:4 5:5 test 9:4"),
    (LONG, CSV, 0, f"9 {HUGE}; train 0:1 1:0 test 2:0"),
    (UNSPLIT, CSV, None, "a b; all 1:0 3:1"),
    (
        *(USUAL_COLUMNS, CSV, 0.1),
        "daisy tulip; train 0:0 2:0 4:1 validation 1:1 test 3:1",
    ),
    (SEMICOLONS, CSV, 0, "a;b c,d; train 0:0 1:1 test 2:1"),
    (TABS, CSV, 0, "a b,c; train 0:0 1:1 test 2:0"),
    (ANY, CSV, None, "daisy rose tulip; all 0:2 1:0 2:2 3:0 4:0 5:1 6:1"),
    (TITLED, "data", 0, "a b c; train 0:0 1:1 2:2 3:1 4:0 test 5:2"),
    (OLD, "data/*-00000-of-*", 0, "0 1 2; train 0:0 1:1 2:2 test 7:1"),
    (PIECES, "data", 0, "0 1; train 0:0 1:1 test 2:1"),
    (NAMED, "data", 0, "aster 1 rose; train 0:2 1:0 test 2:2"),
    (RECORDS, "data", None, "0 1 2; all 0:0 1:1 2:2 3:1 4:0 5:2"),
    (RECORDS, "data/test-*", None, "0 1 2; all 5:2"),
    (DIVIDED | RECORDS, "data", 0, FOLDERS),
    (
        OF_TFDS,
        TFDS,
        0.3,
        "no yes; train 0:0 1:1 2:0 3:1 4:0 5:1 6:0 validation 7:1 8:0 9:1 test 0:1 1:0",
    ),
    (UNTESTED_TFDS, TFDS, 0, "no yes; train 0:0 1:1 test 0:1 1:0 2:1"),
    # All splits with labels.
    (UNTESTED_TFDS, TFDS, None, "no yes; all 0:0 0:1 1:0 1:1 2:1"),
]


@pytest.mark.parametrize(("files", "dataset", "fraction", "expected"), READ)
def test_what_a_source_reads(files, dataset, fraction, expected, loaded):
    source = loaded(files, dataset, fraction, log=str)
    assert source.name == dataset
    classes, _, expected = expected.partition("; ")
    assert source.class_names == tuple(classes.split())
    found = []
    for part in (*PARTS, "all"):
        if (split := getattr(source, part)) is None:
            continue
        pairs = examples(split)
        labels = [label for _, label in pairs]
        assert split.num_examples == len(labels) == len(split.names())
        assert split.labels().tolist() == labels
        counts = np.bincount(labels, minlength=9)
        np.testing.assert_array_equal(split.class_counts(9), counts)
        # The parts of a whole come in an order of their own.
        ordered = sorted(pairs) if part == "all" else pairs
        found += [part, *(f"{number}:{label}" for number, label in ordered)]
    assert found == expected.split()


def test_a_source_knows_its_total_and_where_examples_are(loaded):
    assert loaded(DIVIDED | VALIDATION).total == 10
    assert loaded(OF_TFDS, TFDS).total == 13
    source = loaded(RECORDS, "data/t*-0*")
    assert source.total == 6 and source.train.name == "data/t*-0* train"
    assert source.train.locate(2) == "data/train-00000-of-00002.tfrecord record 3"
    assert source.train.locate(3) == "data/train-00001-of-00002.tfrecord record 1"


def test_paths_of_a_table_may_be_absolute(loaded, tmp_path):
    rows = [f"{tmp_path}/data/{row}" for row in ROWS]
    source = loaded(table(*rows, name="other/a.csv"), "data/other/a.csv")
    assert examples(source.test) == [(2, 1)]


def test_every_ending_of_images_is_taken_and_nothing_hidden(loaded):
    names = ["a.jpg", "b.JPEG", "c.PNG", "d.png", "e.BMP", "f.gif", "g.webp"]
    others = [".hidden.jpg", "notes.txt", "../.cache/h.jpg"]
    paths = [f"{part}/rose/{name}" for part in ("train", "test") for name in names]
    paths += [f"train/rose/{name}" for name in others]
    split = loaded(dict.fromkeys(paths, ""), log=str).train
    assert [Path(name).name for name in split.names()] == names


# Parts that are held out


OF_IMAGES = images({"train/a": 3, "train/b": 6, "test/a": 1, "test/b": 1})
OF_RECORDS = {"train-0.tfrecord": [record(i, int(i > 2)) for i in range(9)]}


@pytest.mark.parametrize("files", [OF_IMAGES, OF_RECORDS | UNTRAINED])
def test_a_validation_part_is_stratified_and_always_alike(files, loaded):
    source, again = (loaded(files, fraction=0.3) for _ in "ab")
    kept, held = examples(source.train), examples(source.validation)
    whole = examples(load("data").train)
    assert sorted(kept + held) == sorted(whole)
    assert [one for one in whole if one in kept] == kept
    assert held == examples(again.validation)
    assert source.train.labels().tolist() == [label for _, label in kept]
    labels = source.validation.labels()
    assert labels.tolist() == [label for _, label in held]
    assert np.bincount(labels).tolist() == [1, 2]
    assert source.validation.name.startswith("the validation part of ")


def test_a_folder_of_classes_has_a_fifth_for_the_test(loaded):
    files = images({"daisy": 12, "rose": 2, "tulip": 5})
    source = loaded(files, fraction=0.25)
    assert source.class_names == ("daisy", "rose", "tulip")
    assert source.test.class_counts(3).tolist() == [2, 1, 1]
    assert source.validation.num_examples == round((10 + 1 + 4) * 0.25)
    everything = sum((examples(getattr(source, part)) for part in PARTS), [])
    assert sorted(number for number, _ in everything) == list(range(19))
    assert all(label == (number > 11) + (number > 13) for number, label in everything)


def test_a_table_without_split_has_the_test_of_a_folder_of_its_photos(loaded, tmp_path):
    files = images({"b": 12, "a": 7})
    order = np.random.default_rng(0).permutation([*files])
    rows = table(*(f"{path},{path[0]}" for path in order), header="path,label")
    of_table = loaded(files | rows, "data/a.csv", fraction=0.2)
    lay_out(tmp_path / "folder", files)
    of_folder = load("folder", validation_fraction=0.2)
    for part in PARTS:
        found = examples(getattr(of_table, part))
        assert found == examples(getattr(of_folder, part))
    assert of_table.test.class_counts(2).tolist() == [1, 2]
    assert of_table.test.name == "the test part of data/a.csv"


def test_columns_are_those_that_are_named_and_rows_without_label_are_counted(
    loaded, capsys
):
    columns = Columns(image="photo id", label="breed", split="no")
    source = loaded(NAMED_COLUMNS, CSV, None, columns=columns)
    assert sorted(examples(source.all)) == [(0, 0), (1, 1)]
    assert source.class_names == ("x", "y")
    assert capsys.readouterr().out == (
        "data/a.csv: 1 entry is ignored, no rows with a label: data/images/2.png (line "
        "5)\n"
    )


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 0.04, 0.97, float("nan")])
def test_a_fraction_that_leaves_nothing_is_refused(loaded, fraction):
    with pytest.raises(DataError, match="validation_fraction=.* 5 examples of .*train"):
        loaded(DIVIDED, fraction=fraction)


def test_hold_out_gives_each_class_its_share():
    labels = np.repeat([0, 1, 2], [50, 7, 143])
    kept, held = hold_out(labels, 40)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), range(200))
    assert np.all(np.abs(np.bincount(labels[held]) - [10, 1.4, 28.6]) < 1)
    assert hold_out(labels, 0)[1].size == 0


# Names, and what is ignored


def test_what_is_ignored_is_counted_and_named_in_one_line(
    loaded, tmp_path, monkeypatch, capsys
):
    others = ("notes.txt", "tulip/x.heic", "Thumbs.db", "daisy/.DS_Store", "a.jpg")
    files = PHOTOS | dict.fromkeys(others, "") | {"daisy/older/1.png": png(1)}
    monkeypatch.setattr("zoo.photos.files.reads_heic", lambda: False)
    lay_out(tmp_path / "data", files)
    (tmp_path / "data" / "daisy" / "gone.png").symlink_to("nowhere")
    source = loaded({})
    names = ("a.jpg", "daisy/gone.png", "daisy/older/", "notes.txt", "tulip/x.heic")
    assert source.ignored == names
    assert capsys.readouterr().out == (
        f"data: 5 entries are ignored, no images in class folders: {', '.join(names)}; "
        "HEIC photos are read where pillow-heif is: pip install pillow-heif\n"
    )
    assert source.train.num_examples + source.test.num_examples == 6
    monkeypatch.setattr("zoo.photos.files.reads_heic", lambda: True)
    assert load("data", log=str).ignored == names[:-1]
    lay_out(tmp_path / "clean", PHOTOS)
    assert load("clean").ignored == () and capsys.readouterr().out == ""


def test_records_of_other_names_are_ignored_and_named(loaded, capsys):
    others = ("Train-3.tfrecord", "train_2.tfrecord", "val-0.tfrecord")
    source = loaded(RECORDS | dict.fromkeys(others, [record(8, 0)]) | {"z": None})
    assert source.train.num_examples == 5
    assert source.ignored == (*others, "z/")
    assert capsys.readouterr().out == (
        f"data: 4 entries are ignored, no TFRecord files of train, validation or "
        f"test by their names: {', '.join(source.ignored)}\n"
    )
    # A pattern ignores only files that it means.
    assert load("data/t*").ignored == ("train_2.tfrecord",)


def test_names_in_every_script_are_taken_and_those_that_are_ignored_printable(loaded):
    names = ("Gänse blümchen", "向日葵\u3000", "👩\u200d🌾", "عبّاد\u200c", *MARKED)
    others = {os.fsdecode(name): "" for name in NAMES}
    source = loaded(images(dict.fromkeys(names, 2)) | others)
    assert {*source.class_names} == {*names}
    assert {*source.ignored} == {*NAMES.values()}


def test_digits_are_those_of_scikit_learn_split_by_class():
    from sklearn.datasets import load_digits

    source = load("digits", validation_fraction=0.1)
    parts = [source.train, source.validation, source.test]
    whole = load("digits", validation_fraction=None)
    assert [split.num_examples for split in parts] == [1293, 144, 360]
    assert whole.total == source.total == whole.all.num_examples == 1797
    assert source.class_names == tuple("0123456789")

    def pixels(splits):
        pairs = [pair for split in splits for pair in split.records()]
        return sorted((image.numpy().tobytes(), int(label)) for image, label in pairs)

    levels = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    pairs = zip(levels, load_digits().target, strict=True)
    expected = sorted((image.tobytes(), int(label)) for image, label in pairs)
    assert pixels(parts) == pixels([whole.all]) == expected
    for split in parts:
        share = whole.all.class_counts(10) * split.num_examples / 1797
        assert np.abs(split.class_counts(10) - share).max() < 2

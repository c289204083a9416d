"""What each kind of data source refuses, in words that name it and the remedy."""

import os
from pathlib import Path

import pytest
from made_data import (
    DIVIDED,
    NAMED,
    NAMES,
    NUMBERED,
    PHOTOS,
    RECORDS,
    UNTRAINED,
    VALIDATION,
    images,
    lacking,
    lay_out,
    png,
    record,
    table,
    tiny_images,
)

from train.data import checking
from train.data.columns import Columns
from train.data.sources import DataError, load

pytestmark = pytest.mark.usefixtures("png_only")

RUN = {"config.json": "{}", "data.json": "{}", "features/a.npz": ""}
EMPTY = {"train/rose/.hidden.png": "", "train/rose/older": None}
# The files, the data set, and what the message must name.
NOT_THERE = [
    (DIVIDED | EMPTY, "data", "data/train/rose has no images: expected", "some (.jpg"),
    (DIVIDED | EMPTY, "data/train", "data/train/rose has no images"),
    (DIVIDED, "data/train/daisy", "no class folders", "folder above it", "/data/train"),
    (RUN, "data", "data is a run, not a data set: pass the photos"),
    ({"a/1.HEIC": ""}, "data", "no images", "pip install pillow-heif"),
    (DIVIDED, "data/trian/daisy", 'data/trian/daisy": did you mean data/train/daisy?'),
    ({"pho\n\x1btos": None}, "./data/photos", r"you mean data/pho\x0a\x1btos? pass"),
    (DIVIDED, "data/train/daisy/0.png", '0.png", it is a file: pass the folder'),
    ({}, "photoz/", 'no folder "photoz/"'),
    ({}, "~/photoz", 'no folder "~/photoz"'),
    ({}, "data/a.csv", "no file data/a.csv: check the path"),
    ({}, "vtab/clevr", '"clevr"', "did you mean clevr_count"),
    ({"../cifar1000": ""}, "cifar1000", '"cifar1000", it is a file: pass'),
    ({"../a.7z": ""}, "a.7z", '"a.7z", it is a file: pass'),
    ({}, "data/a.zip", "no file data/a.zip: check the path"),
    ({"../cifar100": ""}, "./cifar100", '"./cifar100", it is a file: pass'),
    ({}, "cifar1000", "did you mean cifar100", "test}/class/"),
    ({}, "digit", "did you mean digits"),
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
        checking.check(dataset, "data")
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
    "images/0.png, ,train": "has no row with a label: expected the columns path,label",
    ",a,train": "line 2 has no path",
    "images/1.png,a": "line 2 has 2 values for 3 columns: put what has",
    "x, y.png,a,train": "line 2 has 4 values for 3 columns",
    'images/0.png,"a,train\nimages/1.png,b,test': "line 3: unexpected end",
    "images/0.png,a,train\nimages/./0.png,b,test": "lists 1 image more than once",
    "images/0.png,a,train\nimages/1.png,b,test": "line 3: no image for training has",
    "images/0.png,a,test": "nothing for train",
    "images/0.png,a,train": "nothing for test",
    "": "nothing for train",
    'images/0.png,"two\nlines",train': r"data/a.csv line 3: the label 'two\nlines' has",
    "images/\x1b.png,a,train": r"line 2: the path 'images/\x1b.png' has line breaks or",
}
# The columns of a table, those that flags name, and what the message must name.
HEADERS = [
    ("", {}, "the columns none, of which none is the image or the label"),
    ("path|label|split", {}, "the columns path|label|split, of which none"),
    ("0.png,a,train", {}, "pass --image_column and --label_column; expected"),
    ("file,a,b", {}, "none is the label by its name: pass --label_column;"),
    ("path,label,path", {}, "'path' and 'path', each of which may be the image"),
    ("file,Photo,label", {}, "'file' and 'Photo', each", "--image_column"),
    ("file,class,target", {}, "'class' and 'target', each", "--label_column"),
    ("file,class,subset,partition", {}, "--split_column"),
    ("file,class", {"label": "breed"}, "'breed', which --label_column", "file, class"),
]
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
SEMICOLONS = table("images/0.png;a;b", header="path;label")
UNLISTED = table(header="path,label")
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
    (images({"daisy": 1}), "data", "'daisy' has one image", "add some"),
    *((table(rows), "data/a.csv", told) for rows, told in BAD_ROWS.items()),
    (TWICE, "data/a.csv", "images/0.png (data/a.csv line 3, first data/a.csv line 2)"),
    (LATIN, "data/a.csv", "not in UTF-8", "save it again"),
    (UNDIVIDED, "data/a.csv", "the class 'a' has one image, data/images/0.png, which"),
    (ALONE, "data/train.csv", "the class 'a' has one image"),
    (
        SEMICOLONS,
        "data/a.csv",
        "line 2 has 3 values for 2 columns: put what has semico",
    ),
    (UNLISTED, "data/a.csv", "has nothing for train: expected the columns path,label"),
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


# Folders and files of names that no list could hold.
for name, shown in NAMES.items():
    for path in (f"{os.fsdecode(name)}/0.png", f"tulip/{os.fsdecode(name)}.webp"):
        place = path.removesuffix("/0.png").replace(os.fsdecode(name), shown)
        files = PHOTOS | {path: png(0)}
        REFUSED.append((files, "data", f"data/{place} has {NO_LIST}"))


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: ascii(row[2]))
def test_what_a_source_refuses(row, loaded):
    files, dataset, *parts = row
    with pytest.raises(DataError) as refused:
        loaded(files, dataset)
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize("row", HEADERS, ids=lambda row: row[0])
def test_columns_that_are_missing_or_could_be_several_are_named(row, loaded):
    header, columns, *parts = row
    with pytest.raises(DataError, match="data/a.csv line 1 has ") as refused:
        loaded(table(header=header), "data/a.csv", columns=Columns(**columns))
    for part in parts:
        assert part in str(refused.value)


def test_columns_of_what_is_no_table_are_refused(loaded):
    with pytest.raises(DataError, match="^data is no table.*leave out --image_column"):
        loaded(DIVIDED, columns=Columns(split="no"))


def test_a_whole_data_set_of_tfds_needs_labels(loaded):
    with pytest.raises(DataError, match="has no labels: choose"):
        loaded(tiny_images({"test": [-1, -1]}), "tiny_images", None)


DAMAGES = {
    "changed": lambda whole, size: whole[: size + 50] + b"!" + whole[size + 51 :],
    "cut": lambda whole, size: whole[: size + size // 2],
    "text": lambda whole, size: whole[:size] + b"no record at all, but text",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_records_are_counted_to_the_damage(loaded, tmp_path, damage):
    loaded(RECORDS)
    path = tmp_path / "data" / "train-00000-of-00002.tfrecord"
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole, len(whole) // 3))
    with pytest.raises(DataError, match=f"{path.name} is damaged after 1 whole rec"):
        load("data")


def test_of_an_error_of_tfds_the_first_line_is_shown_and_the_remedy(
    tmp_path, monkeypatch
):
    import tensorflow_datasets as tfds

    def refuse(*arguments, **settings):
        raise ConnectionError("no route to host\n\nA page of help:\n- more")

    for owner, name, told in (
        (tfds.core.DatasetBuilder, "download_and_prepare", r"\): prep.*--data_dir$"),
        (tfds, "builder", "$"),
    ):
        monkeypatch.setattr(owner, name, refuse)
        with pytest.raises(DataError, match=f": no route to host{told}"):
            load("oxford_iiit_pet", data_dir=tmp_path)


def test_a_file_does_not_hide_the_data_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cifar100").touch()
    checking.check("cifar100", tmp_path)

import csv

import numpy as np
import pytest
import tensorflow as tf

from train.data.sources import DataError, load

ROWS = [
    ("images/0.png", "tulip", "train"),
    ("images/1.png", "daisy", "train"),
    ("images/2.png", "tulip", "test"),
    ("images/3.png", "daisy", "validation"),
    ("images/4.png", "daisy", "train"),
]


@pytest.fixture
def folder(tmp_path, png_only):
    (tmp_path / "images").mkdir()
    for i in range(10):
        png = tf.io.encode_png(np.full((2, 3, 3), i, np.uint8)).numpy()
        (tmp_path / "images" / f"{i}.png").write_bytes(png)
    return tmp_path


def write(path, rows, header="path,label,split"):
    lines = [row if isinstance(row, str) else ",".join(row) for row in rows]
    path.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    return str(path)


def examples(split):
    """The first pixel, which is the number of the image, and the label of each."""
    return [
        (int(split.decode(record)[0, 0, 0]), int(label))
        for record, label in split.records()
    ]


def test_rows_are_examples_in_order(folder):
    source = load(write(folder / "photos.csv", ROWS), validation_fraction=0.5)
    assert source.name == str(folder / "photos.csv")
    assert source.class_names == ("daisy", "tulip")
    assert examples(source.train) == [(0, 1), (1, 0), (4, 0)]
    assert examples(source.validation) == [(3, 0)]
    assert examples(source.test) == [(2, 1)]
    assert source.train.class_counts(2).tolist() == [2, 1]
    assert source.train.name == f"{folder / 'photos.csv'} train"
    assert load(str(folder / "photos.csv")).validation is None


def test_a_part_of_train_is_held_out_where_no_row_is_for_validation(folder):
    rows = [(f"images/{i}.png", str(i % 2), "train") for i in range(8)]
    rows.append(("images/8.png", "1", "test"))
    source = load(write(folder / "a.csv", rows), validation_fraction=0.25)
    assert sorted(label for _, label in examples(source.validation)) == [0, 1]
    seen = examples(source.train) + examples(source.validation)
    assert sorted(seen) == [(i, i % 2) for i in range(8)]


def test_validation_is_the_test_where_there_is_no_other(folder):
    rows = [row for row in ROWS if row[2] != "test"]
    source = load(write(folder / "a.csv", rows))
    assert examples(source.test) == [(3, 0)]
    assert source.validation is None


def test_files_beside_each_other(folder):
    rows = ["images/0.png,b", "images/1.png,a"]
    dataset = write(folder / "train.csv", rows, "path,label")
    write(folder / "test.csv", ["a,images/2.png"], "label,path")
    source = load(dataset, validation_fraction=0.5)
    both = examples(source.train) + examples(source.validation)
    assert sorted(both) == [(0, 1), (1, 0)]
    assert examples(source.test) == [(2, 0)]
    write(folder / "validation.csv", ["images/3.png,b"], "path,label")
    source = load(dataset, validation_fraction=0.5)
    assert examples(source.train) == [(0, 1), (1, 0)]
    assert examples(source.validation) == [(3, 1)]


def test_what_spreadsheets_write(folder):
    """A byte order mark, CRLF, quotes, more columns, spaces, empty lines."""
    path = folder / "photos.CSV"
    (folder / "images" / "a, b.png").write_bytes(
        (folder / "images" / "7.png").read_bytes()
    )
    path.write_bytes(
        b"\xef\xbb\xbfLabel,notes,Path,split\r\n"
        b'"rose, ""red""",,images/1.png, Train\r\n'
        b"\r\n"
        b'caf\xc3\xa9,"two\r\nlines","images/a, b.png",train\r\n'
        b"caf\xc3\xa9,,images/2.png ,test\r\n"
    )
    source = load(str(path))
    assert source.class_names == ("café", 'rose, "red"')
    assert examples(source.train) == [(1, 1), (7, 0)]
    assert examples(source.test) == [(2, 0)]


def test_numbers_sort_as_numbers(folder):
    rows = [(f"images/{i}.png", str(2 * i + 2), "train") for i in range(6)]
    rows.append(("images/9.png", "10", "test"))
    source = load(write(folder / "a.csv", rows))
    assert source.class_names == ("2", "4", "6", "8", "10", "12")
    assert examples(source.test) == [(9, 4)]


def test_numbers_of_any_length_sort_as_numbers(folder):
    huge = "1" + 5000 * "0"
    rows = [("images/0.png", huge, "train"), ("images/1.png", "9", "train")]
    rows += [("images/2.png", "9", "test"), ("images/3.png", huge, "validation")]
    assert load(write(folder / "a.csv", rows)).class_names == ("9", huge)


def test_absolute_paths(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    rows = [(str(folder / path), label, part) for path, label, part in ROWS]
    source = load(write(elsewhere / "photos.csv", rows))
    assert examples(source.test) == [(2, 1)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["images/1.png,a,training"],
            'line 2: the split "training" is not one of train',
        ),
        (["images/1.png,a,"], 'line 2: the split "" is not one of'),
        (["images/0.png,a,train", "images/1.png, ,train"], "line 3 has no label"),
        ([",a,train"], "line 2 has no path"),
        (["images/1.png,a"], "line 2 has 2 values for 3 columns: put what has commas"),
        (["x, y.png,a,train"], "line 2 has 4 values for 3 columns"),
        (['images/0.png,"a,train', "images/1.png,b,test"], "line 3: unexpected end"),
        (
            ["images/0.png,a,train", "images/./0.png,b,test"],
            r"table lists 1 image more than once.*0.png \(.*line 3, first .*line 2\)",
        ),
        (
            ["images/0.png,a,train", "images/1.png,b,test"],
            'line 3: no image for training has the label "b"',
        ),
        (["images/0.png,a,test"], "has nothing for train"),
        (["images/0.png,a,train"], "has nothing for test"),
        ([], "has nothing for train"),
    ],
)
def test_bad_rows(folder, rows, message):
    with pytest.raises(DataError, match=rf"a\.csv {message}|{message}"):
        load(write(folder / "a.csv", rows))


@pytest.mark.parametrize(
    "header", ["", "file,class", "path;label;split", "path,label,path", "0.png,a,train"]
)
def test_bad_header(folder, header):
    dataset = write(folder / "a.csv", [], header)
    with pytest.raises(DataError, match="line 1 has the columns .*path,label,split"):
        load(dataset)


def test_missing_images_are_counted_and_named(folder):
    rows = [(f"images/{i}.png", "a", "train") for i in range(8, 25)]
    dataset = write(folder / "a.csv", [*rows, ("images/0.png", "a", "test")])
    with pytest.raises(DataError) as caught:
        load(dataset)
    message = str(caught.value)
    assert message.startswith(f"15 of the 18 images of {dataset} are not there: ")
    assert str(folder / "images" / "19.png") in message
    assert "20.png" not in message
    assert "and 5 more" in message
    source = load(dataset, skip_corrupt=True)
    assert examples(source.train) == [(8, 0), (9, 0)]
    assert len(source.skipped) == 15


def test_no_such_file(tmp_path):
    with pytest.raises(
        DataError, match=r"there is no file .*photos.csv: check the path"
    ):
        load(str(tmp_path / "photos.csv"))


def test_a_file_in_another_encoding(folder):
    write(folder / "a.csv", ROWS)
    (folder / "a.csv").write_bytes((folder / "a.csv").read_bytes() + b"x,caf\xe9,test")
    with pytest.raises(DataError, match="not in UTF-8 .*save it again"):
        load(str(folder / "a.csv"))


def test_no_column_and_no_file_for_testing(folder):
    for name in ("photos.csv", "train.csv"):
        dataset = write(folder / name, ["images/0.png,a"], "path,label")
        with pytest.raises(DataError, match="does not say which images are for train"):
            load(dataset)


@pytest.mark.parametrize(
    "row", [("images/0.png", "two\nlines", "train"), ("images/\x1b.png", "a", "train")]
)
def test_names_with_control_characters_are_refused(folder, row):
    dataset = folder / "a.csv"
    with open(dataset, "w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "split"), row])
    with pytest.raises(DataError) as raised:
        load(str(dataset))
    assert str(raised.value).startswith(f"{dataset} line ")
    assert "has line breaks or other control characters" in str(raised.value)
    assert str(raised.value).isprintable()


def test_a_whole_file_needs_no_parts(folder):
    rows = [("images/3.png", "b"), ("images/1.png", "a")]
    dataset = write(folder / "photos.csv", rows, "path,label")
    whole = load(dataset, validation_fraction=None)
    assert examples(whole.all) == [(3, 1), (1, 0)] and whole.total == 2
    assert whole.train is whole.validation is whole.test is None
    # With parts it is all of them, in any column split.
    whole = load(write(folder / "all.csv", ROWS), validation_fraction=None)
    assert examples(whole.all) == [(0, 1), (1, 0), (2, 1), (3, 0), (4, 0)]
    rows = [("images/0.png", "a", ""), ("images/2.png", "b", "later")]
    whole = load(write(folder / "any.csv", rows), validation_fraction=None)
    assert examples(whole.all) == [(0, 0), (2, 1)]
    write(folder / "train.csv", [("images/0.png", "a")], "path,label")
    write(folder / "test.csv", [("images/1.png", "new")], "path,label")
    whole = load(str(folder / "train.csv"), validation_fraction=None)
    assert examples(whole.all) == [(0, 0), (1, 1)]
    assert whole.class_names == ("a", "new")

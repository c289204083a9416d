"""Photos that the user leaves out or labels otherwise, by files."""

import json
import os

import pytest
import tensorflow as tf
from made_data import examples, images, lay_out, record

from train.data import run_data
from train.data.checking import DataError
from train.data.sources import corrections, load

FILES = images({"train/daisy": 4, "train/rose": 4, "test/daisy": 2, "test/rose": 2})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path / "data", FILES)
    return tmp_path / "data"


def loaded(folder, **corrections):
    lines = []
    return load(str(folder), log=lines.append, **corrections), lines


def test_a_table_leaves_photos_out_and_labels_others(folder, tmp_path):
    # Relative to the data set, to the current folder, and absolute.
    paths = [
        "train/daisy/1.png",
        "data/train/rose/0.png",
        str(folder / "test/rose/1.png"),
    ]
    lay_out(tmp_path, {"out.csv": "path\n" + "\n".join(paths)})
    rows = [
        "label; path;note",
        "rose; train/daisy/0.png;",
        "",
        "daisy;test/daisy/0.png;x",
    ]
    lay_out(tmp_path, {"new.csv": "\n".join(rows)})
    source, [line] = loaded(folder, without="out.csv", relabel=tmp_path / "new.csv")
    assert line == f"{folder}: left out 3 images, relabelled 1, as asked"
    assert examples(source.train) == [(0, 1), (2, 0), (3, 0), (5, 1), (6, 1), (7, 1)]
    assert examples(source.test) == [(8, 0), (9, 0), (10, 1)]
    assert source.left_out == (
        "train/daisy/1.png",
        "train/rose/0.png",
        "test/rose/1.png",
    )
    assert source.relabelled == {"train/daisy/0.png": "rose"}
    assert source.train.names()[0].endswith(os.path.join("daisy", "0.png"))
    assert source.train.class_counts(2).tolist() == [2, 4]


def test_the_json_of_a_check_leaves_all_but_first_copies_out(folder, tmp_path):
    found = {
        "identical": [["train/daisy/0.png", "train/daisy/1.png"]],
        "near": [],
        "leaks": [["test/rose/0.png", "train/rose/0.png", "train/rose/1.png"]],
        "contradictions": [["train/daisy/2.png", "train/rose/2.png"]],
        "unread": {"test/daisy/1.png": "it is cut"},
        "label_errors": [{"path": "train/rose/3.png", "label": "daisy"}],
    }
    lay_out(tmp_path, {"check.json": json.dumps(found)})
    source, _ = loaded(folder, without="check.json", relabel="check.json")
    assert examples(source.train) == [(0, 0), (3, 0), (7, 0)]
    assert examples(source.test) == [(8, 0), (10, 1), (11, 1)]


def test_records_are_left_out_and_relabelled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    records = [record(number, number % 2) for number in range(5)]
    files = {"train.tfrecord": records, "test.tfrecord": records[:2]}
    lay_out(tmp_path / "data", files)
    lay_out(tmp_path, {"out.csv": "path\ntrain.tfrecord record 2\n"})
    lay_out(tmp_path, {"new.csv": "path,label\ndata/train.tfrecord record 4,0\n"})
    source, _ = loaded("data", without="out.csv", relabel="new.csv")
    assert examples(source.train) == [(0, 0), (2, 0), (3, 0), (4, 0)]
    files = source.train.record_files()
    ranges = tf.data.Dataset.range(files.ranges)
    ranged = ranges.flat_map(files.read_range).as_numpy_iterator()
    labels = {int(index): int(label) for index, (_, label) in ranged}
    assert labels == {0: 0, 1: 0, 2: 0, 3: 0}
    assert source.train.labels().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "flag, text, words",
    [
        ("without", "path\nrose/9.png\n", ["names 1 photo that", "rose/9.png"]),
        ("without", "file\na.png\n", ["no column path", "expected the JSON"]),
        ("without", '{"near": ["a.png"]}', ["list of lists of paths"]),
        ("without", "{", ["cannot read"]),
        ("relabel", "path,label\ntrain/rose/1.png,daisi\n", ["did you mean daisy"]),
        ("relabel", "path,label\ntrain/rose/1.png,\n", ["no row of file has a label"]),
        ("relabel", "path,label\n\n , \n,rose\n", ["line 4 has no path"]),
        ("relabel", "path,label\n,rose\n", ["line 2 has no path"]),
        ("relabel", "path,label\na,rose\na,tulip\n", ['"rose" and "tulip" for a:']),
        ("relabel", "path\ntrain/rose/1.png\n", ["no column label"]),
        ("relabel", '{"label_errors": [{"path": "a"}]}', ["cannot read", "label"]),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(folder, tmp_path, flag, text, words):
    lay_out(tmp_path, {"file": text})
    with pytest.raises(DataError) as refused:
        loaded(folder, **{flag: "file"})
    assert all(word in str(refused.value) for word in words)


def test_labelled_photos_that_the_data_lack_are_trained_on(folder, tmp_path):
    lay_out(tmp_path, images({"new": 3}, first=len(FILES)))
    rows = ["train/daisy/0.png,rose", f"{tmp_path}/new/0.png,rose", "new/1.png,daisy"]
    lay_out(tmp_path, {"asked.csv": "\n".join(["path,label", *rows, "new/2.png,"])})
    source, [line] = loaded(folder, relabel="asked.csv", validation_fraction=0.25)
    assert line.endswith("relabelled 1, added 2 to train on, as asked")
    names = source.train.names() + source.validation.names()
    assert names.count(str(tmp_path / "new/0.png")) == 1
    assert source.train.labels()[-2:].tolist() == [1, 0]
    assert (source.train.num_examples, source.total) == (8, 14)
    assert source.added == {
        f"{tmp_path}/new/0.png": "rose",
        f"{tmp_path}/new/1.png": "daisy",
    }
    assert len([*source.train.records()]) == 8
    # The record of a run adds them again, also where the data are not divided.
    (tmp_path / "record.json").write_text(json.dumps(corrections.record(source)))
    again, _ = loaded(folder, relabel="record.json", validation_fraction=None)
    assert again.all.names()[-2:] == source.train.names()[-2:]
    # Files that come later override earlier ones.
    lay_out(tmp_path, {"later.csv": f"path,label\n{tmp_path}/new/0.png,daisy\n"})
    both, _ = loaded(folder, relabel=["asked.csv", "later.csv"])
    assert {*both.added.values()} == {"daisy"} and len(both.added) == 2
    with pytest.raises(
        DataError, match="--relabel=later.csv names 1 photo that digits"
    ):
        load("digits", relabel="later.csv", log=str)


def test_labels_of_held_out_photos_that_are_not_used_train_nothing(folder, tmp_path):
    lay_out(folder, images({"validation/daisy": 1, "validation/rose": 1}, first=12))
    lay_out(tmp_path, {"new.csv": "path,label\nvalidation/rose/0.png,daisy\n"})
    lay_out(tmp_path, images({"new": 1}, first=12))
    rows = ["validation/rose/0.png,daisy", "new/0.png,rose"]
    lay_out(tmp_path, {"more.csv": "\n".join(["path , label", *rows])})
    lay_out(tmp_path, {"out.csv": "path\nvalidation/daisy/0.png\n"})
    # A photo to train on may be a copy of one that is not used.
    source, [line] = loaded(folder, relabel="more.csv", without="out.csv")
    assert line.endswith(
        "left out 0 images, relabelled 0, added 1 to train on, as asked"
    )
    assert (source.validation, source.train.num_examples) == (None, 9)
    assert (source.left_out, source.relabelled) == ((), {})
    held_out, _ = loaded(folder, relabel="new.csv", validation_fraction=0.1)
    assert held_out.validation.labels().tolist() == [0, 0]


def test_a_photo_that_was_added_is_left_out_again(folder, tmp_path):
    lay_out(tmp_path, images({"new": 2}, first=len(FILES)))
    lay_out(tmp_path, {"more.csv": "path,label\nnew/0.png,rose\nnew/1.png,daisy\n"})
    lay_out(tmp_path, {"out.csv": "path\nnew/0.png\ntrain/rose/0.png\n"})
    source, _ = loaded(folder, relabel="more.csv", without="out.csv")
    assert source.added == {f"{tmp_path}/new/1.png": "daisy"}
    # Its record does the same.
    (tmp_path / "record.json").write_text(json.dumps(corrections.record(source)))
    again, _ = loaded(folder, relabel="record.json", without="record.json")
    assert again.train.names() == source.train.names()
    assert again.train.num_examples == 8 == again.total - 5


def test_photos_by_the_path_of_a_link_are_those_of_the_data(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "photo.png").symlink_to(folder / "test/rose/0.png")
    rows = ["link/test/daisy/0.png,rose", "photo.png,daisy"]
    lay_out(tmp_path, {"new.csv": "\n".join(["path,label", *rows])})
    source, _ = loaded(folder, relabel="new.csv")
    assert not source.added
    assert source.relabelled == {
        "test/daisy/0.png": "rose",
        "test/rose/0.png": "daisy",
    }


def test_copies_of_photos_that_are_held_out_are_not_trained_on(folder, tmp_path):
    lay_out(tmp_path, images({"new": 1}, first=len(FILES)))
    (tmp_path / "copy.png").write_bytes((folder / "test/rose/1.png").read_bytes())
    rows = ["path,label", f"{tmp_path}/copy.png,rose", "new/0.png,rose"]
    lay_out(tmp_path, {"new.csv": "\n".join(rows)})
    told = f"adds 1 photo to train on that .* copies of: {tmp_path}/copy.png; remove"
    with pytest.raises(DataError, match=told):
        loaded(folder, relabel="new.csv")
    lay_out(tmp_path, {"out.csv": "path\ncopy.png\n"})
    source, _ = loaded(folder, relabel="new.csv", without="out.csv")
    assert [*source.added] == [f"{tmp_path}/new/0.png"]
    lay_out(tmp_path, {"out.csv": "path\ntest/rose/1.png\n"})
    source, _ = loaded(folder, relabel="new.csv", without="out.csv")
    assert len(source.added) == 2


def test_leaving_out_a_whole_part_is_refused(folder, tmp_path):
    paths = [name for name in FILES if name.startswith("test")]
    lay_out(tmp_path, {"out.csv": "path\n" + "\n".join(paths)})
    with pytest.raises(DataError, match="leaves out all images of .*test"):
        loaded(folder, without="out.csv")


def test_a_run_knows_what_was_corrected(folder, tmp_path):
    plain = run_data.facts_of(loaded(folder)[0])
    assert "corrections" not in plain
    lay_out(tmp_path, {"new.csv": "path,label\ntrain/rose/1.png,daisy\n"})
    corrected, _ = loaded(folder, relabel="new.csv")
    facts = run_data.facts_of(corrected)
    assert facts["corrections"] and plain == {
        name: value for name, value in facts.items() if name != "corrections"
    }
    found = corrections.record(corrected)
    assert found == {"left_out": [], "relabelled": {"train/rose/1.png": "daisy"}}
    # The record corrects other loads alike.
    lay_out(tmp_path, {"record.json": json.dumps(found)})
    again, _ = loaded(folder, without="record.json", relabel="record.json")
    assert run_data.facts_of(again) == facts

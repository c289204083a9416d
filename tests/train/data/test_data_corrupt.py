"""Images that cannot be decoded are found, named, and left out when asked."""

from pathlib import Path

import pytest
import tensorflow as tf
from made_data import (
    examples,
    images,
    lay_out,
    numbered_split,
    png,
    record,
    tiny_images,
)

from train.data.pipeline import (
    check_readable,
    evaluation_batches,
    explained,
)
from train.data.registry import PARTS
from train.data.sources import DataError, corrupt, find_corrupt, load

pytestmark = pytest.mark.usefixtures("png_only")
DIVIDED = images({f"{p}/{name}": 5 for p in ("train", "test") for name in "ab"})
BROKEN = [b"", b"not an image", png(1)[:40]]


@pytest.fixture
def folder(tmp_path):
    return lay_out(tmp_path, DIVIDED)


def test_corrupt_files_are_named_across_batches(tmp_path):
    split = load(str(lay_out(tmp_path, images({"train/a": 150, "test/a": 1})))).train
    bad = [split.locate(index) for index in (3, 140, 141, 149)]
    for path, content in zip(bad, BROKEN, strict=False):
        Path(path).write_bytes(content)
    Path(bad[3]).unlink()
    assert find_corrupt(split) == bad
    assert find_corrupt(load("digits").test) == []


def test_corrupt_images_are_left_out_when_asked(folder, capsys):
    before = load(str(folder), validation_fraction=0.4)
    bad = {"train": 1, "validation": 2, "test": 9}
    paths = [getattr(before, part).locate(index) for part, index in bad.items()]
    rests = [examples(getattr(before, part)) for part in PARTS]
    for path, content in zip(paths, BROKEN, strict=True):
        Path(path).write_bytes(content)
    source = load(str(folder), validation_fraction=0.4, skip_corrupt=True)
    assert source.skipped == tuple(paths)
    for part, rest in zip(PARTS, rests, strict=True):
        del rest[bad[part]]
        split = getattr(source, part)
        assert examples(split) == rest and split.num_examples == len(rest)
        assert split.labels().tolist() == [label for _, label in rest]
        assert not {*split.names()} & {*paths}
    out, err = capsys.readouterr()
    assert out.startswith(f"{folder}: left out 3 images that cannot be read: ")
    assert all(path in out for path in paths) and "checking" not in err
    whole = load(str(folder), validation_fraction=None, skip_corrupt=True)
    assert whole.all.num_examples == 17 and {*whole.skipped} == {*paths}


def test_a_split_of_corrupt_images_alone_is_refused(folder):
    for path in (folder / "test").glob("*/*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"none of the 10 images of .*test can be dec"):
        load(str(folder), skip_corrupt=True)


def test_whole_images_are_checked_with_progress_and_stay(folder, monkeypatch, capsys):
    monkeypatch.setattr(corrupt, "_SHOWN_IMAGES", 10)
    (folder / "test" / "a" / "0.png").unlink()
    source = load(str(folder), skip_corrupt=True)
    assert source.skipped == () and source.train.num_examples == 10
    out, err = capsys.readouterr()
    assert out == ""
    assert f"checking {folder / 'train'}: 100%" in err
    assert f"checking {folder / 'test'}" not in err


TABLE = "path,label,split\ntrain/a/0.png,a,train\nno.png,a,train\ntest/a/0.png,a,test"
BAD = record(0, 0, **{"image/encoded": b"no image"})
RECORDS = {"train.tfrecord": [record(0, 0), BAD], "test.tfrecord": [record(0, 0)]}
OF_TFDS = tiny_images({"train": [0, "corrupt"], "test": [0]})
# Files, the data set, and the corrupt example.
CORRUPT = [
    (DIVIDED | {"a.csv": TABLE}, "data/a.csv", "data/no.png"),
    (RECORDS, "data", "data/train.tfrecord record 2"),
    (OF_TFDS, "tiny_images", "example 1 of tiny_images train"),
]


@pytest.mark.parametrize(("files", "dataset", "corrupt"), CORRUPT)
def test_corrupt_examples_of_other_data_are_left_out(files, dataset, corrupt, loaded):
    source = loaded(files, dataset, skip_corrupt=True)
    assert source.skipped == (corrupt,)
    assert examples(source.train) == [(0, 0)] and source.train.labels() == [0]


def test_damaged_files_of_tfds_are_no_corrupt_images(tmp_path):
    lay_out(tmp_path, tiny_images({"train": [0, 1, 0, 1], "test": [0]}))
    path = next(tmp_path.glob("*/*/*train*"))
    content = bytearray(path.read_bytes())
    content[len(content) * 5 // 8] ^= 1
    path.write_bytes(content)
    split = load("tiny_images", data_dir=tmp_path).train
    batches = evaluation_batches(split, image_size=(4, 4), batch_size=2)
    for read in (
        lambda: load("tiny_images", data_dir=tmp_path, skip_corrupt=True),
        lambda: list(explained(batches, split)),
    ):
        with pytest.raises(DataError, match="files of tiny_images train are damaged"):
            read()


# In a run


def failing():
    raise tf.errors.InvalidArgumentError(None, None, "strange shapes")
    yield


def test_an_error_in_a_batch_names_the_images_that_explain_it(tmp_path):
    source = load(str(lay_out(tmp_path, images({"train/a": 14, "test/a": 14}))))
    bad = source.train.names()[:12]
    for path in bad:
        Path(path).write_bytes(b"\xff\xd8\xff")
    with pytest.raises(DataError) as told:
        list(explained(failing(), source.train))
    message = str(told.value)
    assert message.startswith(f"12 of the 14 images of {tmp_path}/train cannot be dec")
    assert f": {', '.join(bad[:10])} and 2 more; save them again" in message
    assert "--skip_corrupt" in message
    with pytest.raises(DataError, match=r"12 of the 28 images of .*train and .*test "):
        check_readable(source.train, None, source.test)
    with pytest.raises(DataError, match="although every image decodes: strange shapes"):
        list(explained(failing(), numbered_split(3)))

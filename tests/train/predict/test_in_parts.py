"""Answers in parts: the same rows as in one file, whatever ends the work on them."""

import functools
import gzip
import io
import json
import os
import pathlib
import pickle
import tarfile
import types
import zipfile

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
import tqdm
from full_disk import full_disk
from photo_folder import by_mean, lines_of, paths, rows_of, tar_of
from PIL import Image

from train.common.errors import RunError
from train.predict import in_parts, part_work, photo_predictor, shards
from train.predict.photo_predictor import PhotoPredictor
from train.predict.prediction import predict


@pytest.fixture
def small_parts(monkeypatch):
    for module in (in_parts, part_work):
        monkeypatch.setattr(module, "_PHOTOS", 4)


def failing_at(call, error=KeyboardInterrupt):
    """Returns a model that fails at a batch."""
    calls = iter(range(1000))

    def compute(images):
        if next(calls) == call:
            raise error
        return by_mean(images)

    return compute


def test_parts_have_the_rows_of_one_file(folder, stub, small_parts):
    stub()
    whole = predict("stub", ["photos"], out="whole.csv", features="whole.npz")
    found = in_parts.predict(
        "stub", ["photos"], "out", parts="csv", features="vectors", show_progress=False
    )
    expected = pathlib.Path("whole.csv").read_text().splitlines()[1:]
    assert lines_of("out") == sorted(expected)
    assert (
        (found.answered, found.unreadable)
        == (10, 1)
        == (
            whole.answered,
            whole.unreadable,
        )
    )
    assert found.counts == whole.counts
    [reason] = found.reasons
    assert "photos/5bad.jpg cannot be read as an image" in reason
    assert len(os.listdir("vectors")) == 3
    vectors = {row["file"]: row["features"] for row in rows_of("vectors")}
    arrays = np.load("whole.npz")
    for file, features in zip(arrays["files"], arrays["features"], strict=True):
        np.testing.assert_array_equal(np.float32(vectors[file]), features)
    manifest = json.loads(pathlib.Path("out/_manifest.json").read_text())
    assert (manifest["rows"], manifest["unread"], manifest["parts"]) == (10, 1, 3)


def test_parts_in_parquet_are_read_as_one_table(folder, stub, small_parts):
    stub()
    in_parts.predict("stub", ["photos"], "out", features="x", show_progress=False)
    table = pyarrow.parquet.read_table("out")
    assert table.column_names[:3] == ["file", "label", "probability"]
    assert table["probability"].type == "double"
    predict("stub", ["photos"], out="whole.jsonl")
    lines = pathlib.Path("whole.jsonl").read_text().splitlines()
    whole = map(json.loads, lines)
    expected = {(row["file"], row["label"], row["probability"]) for row in whole}
    rows = table.to_pylist()
    assert {(row["file"], row["label"], row["probability"]) for row in rows} == expected
    assert rows[0]["label_5"] is None
    # As NumPy and faiss take vectors: without a copy.
    features = pyarrow.parquet.read_table("x")["features"].combine_chunks()
    matrix = features.flatten().to_numpy(zero_copy_only=True).reshape(-1, 3)
    assert matrix.dtype == np.float32
    assert matrix.shape == (10, 3)


@pytest.mark.parametrize("call", [0, 1, 2])
def test_an_interruption_loses_and_repeats_nothing(call, folder, stub, small_parts):
    stub()
    go = functools.partial(
        in_parts.predict, "stub", ["photos"], "out", parts="csv", show_progress=False
    )
    stub(failing_at(call))
    with pytest.raises(KeyboardInterrupt):
        go()
    before = {path: path.stat().st_mtime_ns for path in pathlib.Path("out").glob("p*")}
    stub()
    found = go()
    assert found.earlier + found.answered == 10
    assert len(before) == call
    for path, changed in before.items():
        assert path.stat().st_mtime_ns == changed
    assert sorted(line.split(",")[0] for line in lines_of("out")) == paths()
    again = go()
    assert (again.earlier, again.answered, again.unreadable) == (10, 0, 1)


def test_progress_counts_photos_of_a_part_before_it_is_written(
    folder, stub, monkeypatch
):
    stub()
    tar_of("a.tar", ["0.png"])
    with tarfile.open("a.tar", "a") as archive:
        link = tarfile.TarInfo("set/link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "0.png"
        archive.addfile(link)
    seen = []

    class Bar(tqdm.tqdm):
        def update(self, n=1):
            seen.append((n, len(os.listdir("out/_done"))))
            return super().update(n)

    monkeypatch.setattr(in_parts, "progress_bar", Bar)
    found = in_parts.predict("stub", ["photos", "a.tar"], "out")
    counted = {done: [n for n, at in seen if at == done and n] for done in range(3)}
    # A photo of the archive; its link, the bad photo, and batches of 4 and the rest.
    assert {done: sorted(n) for done, n in counted.items()} == {
        0: [1],
        1: [1, 1, 2, 4, 4],
        2: [],
    }
    assert found.answered + found.unreadable == 13


def test_photos_that_came_later_are_not_part_of_a_plan(folder, stub, small_parts):
    stub(failing_at(0))
    with pytest.raises(KeyboardInterrupt):
        in_parts.predict("stub", ["photos"], "out", parts="csv", show_progress=False)
    os.rename("photos/9.png", "photos/a.png")
    stub()
    found = in_parts.predict(
        "stub", ["photos"], "out", parts="csv", show_progress=False
    )
    assert (found.answered, found.unreadable) == (9, 2)
    assert any("photos/9.png" in reason for reason in found.reasons)


def test_another_list_on_standard_input_is_refused(
    folder, stub, small_parts, monkeypatch
):
    def go(*numbers, end="\n"):
        lines = "".join(f"{path}{end}" for path in paths(*numbers)).encode()
        lines = lines.removesuffix(b"\r\n")
        stdin = types.SimpleNamespace(buffer=io.BytesIO(lines))
        monkeypatch.setattr("sys.stdin", stdin)
        return in_parts.predict("stub", ["-"], "out", show_progress=False)

    stub(failing_at(1))
    with pytest.raises(KeyboardInterrupt):
        go(*range(1, 8))
    stub()
    for other in ([1], range(1, 9), [2, 1, *range(3, 8)]):
        with pytest.raises(RunError, match=r"out has .* list on standard input"):
            go(*other)
    found = go(*range(1, 8))
    assert (found.earlier, found.answered) == (4, 3)
    assert go(*range(1, 8), end="\r\n").earlier == 7


def test_other_settings_and_other_files_are_refused(folder, stub, small_parts):
    stub()
    in_parts.predict("stub", ["photos"], "out", show_progress=False)
    for photos, given, what in (
        (["photos/1.png"], {}, r"photos \['photos'\] \(now \['photos/1.png'\]\)\. "),
        (["photos"], {"parts": "csv"}, r"format 'parquet' \(now 'csv'\)\. Pass the "),
        (["photos"], {"features": "x"}, f"features False .now '{folder}/x'"),
    ):
        told = f"^{folder}/out has answers of other settings: {what}"
        with pytest.raises(RunError, match=told):
            in_parts.predict("stub", photos, "out", show_progress=False, **given)
    stub(digest=lambda: "2f")
    with pytest.raises(RunError, match="settings: other weights. Pass the same"):
        in_parts.predict("stub", ["photos"], "out", show_progress=False)
    for same in ("out", "out/x"):
        with pytest.raises(RunError, match="must be two folders"):
            in_parts.predict("stub", ["photos"], "out", features=same)
    with pytest.raises(RunError, match="--features=x.npz has the name of a file"):
        in_parts.predict("stub", ["photos"], "out", features="x.npz")
    with pytest.raises(RunError, match="photos has other files: pass another --out"):
        in_parts.predict("stub", ["photos"], "photos", show_progress=False)
    assert not os.path.exists("photos/_manifest.json")


def test_a_full_disk_leaves_whole_parts_and_the_command_goes_on(
    folder, stub, small_parts
):
    stub()
    go = functools.partial(
        in_parts.predict, "stub", ["photos"], "out", parts="csv", show_progress=False
    )
    stub(failing_at(1))
    with pytest.raises(KeyboardInterrupt):
        go()
    stub()
    with full_disk(40), pytest.raises(RunError, match="Cannot write .*Free space"):
        go()
    assert sorted(os.listdir("out")) == [
        "_done",
        "_manifest.json",
        "_plan",
        "part-00000.csv",
    ]
    assert go().answered == 6
    assert sorted(line.split(",")[0] for line in lines_of("out")) == paths()


def test_what_was_removed_is_written_anew(folder, stub, small_parts):
    stub()
    go = functools.partial(
        in_parts.predict, "stub", ["photos"], "out", parts="csv", show_progress=False
    )
    go()
    os.remove("out/part-00001.csv")
    found = go()
    assert (found.earlier, found.answered) == (7, 3)
    for path in pathlib.Path("out").glob("*.*"):
        path.unlink()
    assert go().answered == 10
    assert sorted(line.split(",")[0] for line in lines_of("out")) == paths()


def test_photos_that_a_disk_refused_are_tried_again(folder, stub, monkeypatch):
    stub()
    prepare = photo_predictor.prepare

    def refusing(photo, *given):
        if photo.endswith("3.png"):
            raise OSError(5, "Input/output error", photo)
        return prepare(photo, *given)

    go = functools.partial(
        in_parts.predict, "stub", ["photos"], "out", parts="csv", show_progress=False
    )
    with monkeypatch.context() as patch:
        patch.setattr(photo_predictor, "prepare", refusing)
        assert go().unreadable == 2
    stub()
    assert (go().answered, go().earlier) == (10, 10)


def test_no_photo_leaves_nothing_that_stays(folder, stub):
    stub()
    os.mkdir("empty")
    for _ in range(2):
        with pytest.raises(RunError, match="There is no photo: give files, folders"):
            in_parts.predict("stub", ["empty"], "out", show_progress=False)
    os.rename("photos/1.png", "empty/1.png")
    assert in_parts.predict("stub", ["empty"], "out", show_progress=False).answered == 1


def zip_of(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            if os.path.exists(f"photos/{name}"):
                archive.write(f"photos/{name}", f"set/{name}")
            else:
                archive.writestr(f"set/{name}", "")


def records_of(path, names, key="image/encoded"):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name in names:
            content = pathlib.Path(f"photos/{name}").read_bytes()
            value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
            features = tf.train.Features(feature={key: value})
            writer.write(tf.train.Example(features=features).SerializeToString())


def test_shards_are_parts_of_any_number_of_photos(folder, stub, small_parts):
    stub()
    os.mkdir("shards")
    names = sorted(os.listdir("photos"))
    tar_of("shards/a.tar", names[:6])
    records_of("shards/b.tfrecord", names[6:9])
    records_of("shards/b-00001-of-00002", names[9:], key="image")
    found = in_parts.predict("stub", ["shards"], "out", show_progress=False)
    assert (found.answered, found.unreadable) == (10, 1)
    of_shards = {row["file"]: row["probability"] for row in rows_of("out")}
    in_parts.predict("stub", ["photos"], "plain", show_progress=False)
    of_files = {row["file"]: row["probability"] for row in rows_of("plain")}
    assert of_shards["shards/a.tar/set/0.png"] == of_files["photos/0.png"]
    assert of_shards["shards/b.tfrecord/1"] == of_files[f"photos/{names[7]}"]
    assert sorted(of_shards.values()) == sorted(of_files.values())


@pytest.mark.parametrize(("most_parts", "parts"), [(64, 4), (2, 2)])
def test_a_zip_file_is_several_parts(most_parts, parts, folder, stub, monkeypatch):
    stub()
    monkeypatch.setattr(in_parts, "_PHOTOS", 3)
    monkeypatch.setattr(in_parts, "_MOST_PARTS", most_parts)
    names = sorted(os.listdir("photos"))
    zip_of("a.zip", [*names, "note.txt"])
    totals = []

    def noted(**settings):
        totals.append(settings["total"])
        return tqdm.tqdm(disable=True)

    monkeypatch.setattr(in_parts, "progress_bar", noted)
    found = in_parts.predict("stub", ["a.zip"], "out")
    assert (found.answered, found.unreadable, totals) == (10, 1, [11])
    assert len(list(pathlib.Path("out").glob("part-*"))) == parts
    in_parts.predict("stub", ["photos"], "plain", show_progress=False)
    of_files = {row["file"]: row["probability"] for row in rows_of("plain")}
    assert {row["file"]: row["probability"] for row in rows_of("out")} == {
        f"a.zip/set/{pathlib.Path(file).name}": value
        for file, value in of_files.items()
    }
    assert len(rows_of("out")) == 10


def test_a_zip_file_that_is_damaged_is_one_photo_that_is_not_read(folder, stub):
    stub()
    zip_of("a.zip", ["0.png"])
    content = pathlib.Path("a.zip").read_bytes()
    pathlib.Path("a.zip").write_bytes(content[:-30])
    found = in_parts.predict("stub", ["a.zip"], "out", show_progress=False)
    assert (found.answered, found.unreadable) == (0, 1)
    assert found.reasons[0].startswith("a.zip: it is damaged")


@pytest.mark.parametrize("ending", [".tar", ".zip"])
def test_an_archive_without_photos_is_a_part_without_rows(ending, folder, stub):
    stub()
    write = tar_of if ending == ".tar" else zip_of
    write(f"a{ending}", [])
    found = in_parts.predict("stub", [f"a{ending}"], "out", show_progress=False)
    assert (found.answered, found.unreadable, len(os.listdir("out/_plan"))) == (0, 0, 1)


@pytest.mark.parametrize("first", ["0.png", "a.png"])
def test_a_zip_file_that_changes_between_two_commands_is_refused(
    first, folder, stub, small_parts
):
    names = [f"{number}.png" for number in range(8)]
    zip_of("a.zip", names)
    stub(failing_at(1))
    with pytest.raises(KeyboardInterrupt):
        in_parts.predict("stub", ["a.zip"], "out", show_progress=False)
    # Another photo is in it, or one of the same name.
    os.rename("photos/9.png", f"photos/{first}")
    zip_of("a.zip", [first, *names[1:]])
    os.utime("a.zip", ns=(0, 0))
    stub()
    for _ in range(2):
        with pytest.raises(RunError, match=r"a\.zip has changed .* another --out"):
            in_parts.predict("stub", ["a.zip"], "out", show_progress=False)
    assert in_parts.predict("stub", ["a.zip"], "b", show_progress=False).answered == 8


def test_a_copy_of_a_zip_file_of_another_time_is_the_same(folder, stub, small_parts):
    zip_of("a.zip", [f"{number}.png" for number in range(8)])
    stub(failing_at(1))
    with pytest.raises(KeyboardInterrupt):
        in_parts.predict("stub", ["a.zip"], "out", show_progress=False)
    os.utime("a.zip", ns=(0, 0))
    stub()
    found = in_parts.predict("stub", ["a.zip"], "out", show_progress=False)
    assert found.earlier + found.answered == 8


@pytest.mark.parametrize("comment", [b"", b"PK" * 2**15])
def test_the_version_of_a_zip_file_is_that_of_its_list(comment, folder):
    rng = np.random.default_rng(0)
    content = rng.bytes(100_000)

    def version(changed=None, name="b"):
        with zipfile.ZipFile("a.zip", "w") as archive:
            archive.comment = comment[: 2**16 - 1]
            for number in range(100):
                info = zipfile.ZipInfo(f"{number}{name * 1000}")
                archive.writestr(info, bytes([number, number == changed]))
            archive.writestr(zipfile.ZipInfo("last"), content)
        return shards.version_of("a.zip")

    same = version()
    assert version() == same and len(same) == 2
    # The list is longer than what is read to find it.
    assert version(changed=0) != same != version(name="c")
    assert version(changed=0)[0] == same[0]
    assert shards.version_of("none.zip") == []


def test_a_slice_of_a_zip_file_with_too_few_photos_is_refused(
    folder, stub, small_parts, monkeypatch
):
    stub()
    zip_of("a.zip", ["0.png", "1.png"])
    monkeypatch.setattr(shards, "num_photos", lambda shard: 3)
    with pytest.raises(RunError, match=r"a\.zip has changed"):
        in_parts.predict("stub", ["a.zip"], "out", show_progress=False)


def test_parts_whose_photos_cannot_be_read_have_the_columns_of_others(folder, stub):
    stub()
    tar_of("a.tar", ["5bad.jpg"])
    given = {"features": "x", "show_progress": False}
    found = in_parts.predict("stub", ["a.tar", "photos/1.png"], "out", **given)
    assert (found.answered, found.unreadable) == (1, 1)
    [row], [vector] = rows_of("out"), rows_of("x")
    assert (row["file"], vector["file"]) == ("photos/1.png", "photos/1.png")
    assert pyarrow.parquet.read_table("x/part-00000.parquet").num_rows == 0


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".zip"])
def test_a_bad_photo_of_a_shard_leaves_the_others(ending, folder, stub):
    stub()
    large = np.random.default_rng(0).integers(0, 256, (1300, 1300, 3), "uint8")
    Image.fromarray(large).save("photos/large.png")
    assert os.path.getsize("photos/large.png") > 2**22
    names = ["0.png", "large.png", "5bad.jpg", "1.png"]
    if ending == ".zip":
        zip_of("a.zip", names)
        content = pathlib.Path("a.zip").read_bytes()
        # A byte of the first photo changes, and its checksum does not.
        content = content[:200] + bytes([content[200] ^ 1]) + content[201:]
        pathlib.Path("a.zip").write_bytes(content)
    else:
        mode = "w:gz" if ending.endswith("gz") else "w"
        with tarfile.open(f"a{ending}", mode) as archive:
            for name in names:
                archive.add(f"photos/{name}", f"set/{name}")
            link = tarfile.TarInfo("set/link.png")
            link.type, link.linkname = tarfile.SYMTYPE, "0.png"
            archive.addfile(link)
    found = in_parts.predict("stub", [f"a{ending}"], "out", show_progress=False)
    expected = {"large.png", "1.png"} | ({"0.png"} if ending != ".zip" else set())
    files = [row["file"] for row in rows_of("out")]
    assert sorted(files) == sorted(f"a{ending}/set/{name}" for name in expected)
    assert found.unreadable == 2


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_record_that_declares_a_huge_length_ends_its_shard(ending, folder, stub):
    stub()
    records_of("a.tfrecord", ["0.png", "1.png"])
    content = pathlib.Path("a.tfrecord").read_bytes()
    content += (10**15).to_bytes(8, "little") + b"1234" + content[:100]
    if ending:
        content = gzip.compress(content)
    pathlib.Path(f"b.tfrecord{ending}").write_bytes(content)
    found = in_parts.predict(
        "stub", [f"b.tfrecord{ending}"], "out", show_progress=False
    )
    assert (found.answered, found.unreadable) == (2, 1)
    assert "record 2 is cut, or longer than a photo" in found.reasons[0]


def test_a_damaged_shard_keeps_what_is_before_the_damage(folder, stub):
    stub()
    records_of("a.tfrecord", ["0.png", "1.png"])
    content = pathlib.Path("a.tfrecord").read_bytes()
    pathlib.Path("a.tfrecord").write_bytes(content[:-10])
    found = in_parts.predict("stub", ["a.tfrecord"], "out", show_progress=False)
    assert [row["file"] for row in rows_of("out")] == ["a.tfrecord/0"]
    assert found.unreadable == 1
    assert found.reasons[0].startswith("a.tfrecord: record 1 is cut")
    records_of("b.tfrecord", ["0.png"], key="other")
    [(number, content, reason)] = shards.photos_of("b.tfrecord")
    assert (number, content) == ("0", None)
    assert reason.startswith("the record has no image/encoded with one value, only ot")


@pytest.mark.parametrize(
    ("photos", "precision", "share"),
    [(11, "float32", 4), (0, "float32", 0), (None, "float32", None), (9, "int8", None)],
)
def test_a_process_expects_its_share_of_the_photos(photos, precision, share, stub):
    expected = []
    stub(expect=expected.append)
    predictor = PhotoPredictor("stub", precision=precision, num_photos=photos)
    work = part_work.PartWork(predictor, None, "1f")
    own = pickle.loads(pickle.dumps(work.shared_by(3)))
    assert own.predictor.num_photos == share
    own.predictor.load()
    assert expected == [share or None]


def test_the_callable_pickles_to_its_settings(folder, files):
    predictor = PhotoPredictor(str(files / "model.onnx"))
    content = pathlib.Path("photos/1.png").read_bytes()
    rows = predictor(["photos/0.png", content, "photos/5bad.jpg"])
    assert [row["file"] for row in rows] == ["photos/0.png", "", "photos/5bad.jpg"]
    assert rows[2]["label"] is None
    assert "cannot be read" in rows[2]["error"]
    message = pickle.dumps(predictor)
    assert len(message) < 1000
    again = pickle.loads(message)
    assert "classifier" not in vars(again)
    assert again(["photos/0.png", content]) == rows[:2]

"""FIFOs, links and endless files with the names of ours are refused, not waited for."""

import os
import pathlib
import signal
import tempfile

import numpy as np
import pytest

import zoo
from keras_vit.runtimes import choices
from train.common import files
from train.common.errors import RunError
from train.data.finding import DataError
from train.data.sources.csv_source import load_csv
from train.models.keras_files import load_model
from train.models.run_directory import RunDirectory
from train.run import config_file
from zoo.files import description

LARGE = 10 * 10**9


@pytest.fixture(autouse=True)
def not_waiting():
    """Ends a test that waits for a FIFO, which nobody writes to."""

    def end(*_):
        raise AssertionError("waited for a FIFO")

    earlier = signal.signal(signal.SIGALRM, end)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, earlier)


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def sparse(path, size=LARGE):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(size)


def lock(folder):
    with RunDirectory(folder).locked():
        pass


# What reads the file of a name in a folder.
READERS = {
    ".run.lock": lock,
    "config.json": lambda folder: RunDirectory(folder).read_config(),
    "data.json": lambda folder: RunDirectory(folder).changed_data({}),
    "class_names.txt": lambda folder: RunDirectory(folder).read_class_names(),
    "model.keras": lambda folder: load_model(folder / "model.keras"),
    "images.csv": lambda folder: load_csv(folder / "images.csv", None, 0.1, False),
    "run.yaml": lambda folder: config_file.read(folder / "run.yaml"),
    ".x.csv.lock": lambda folder: files.locked(folder / "x.csv", "--out").__enter__(),
    "export.json": lambda folder: files.check_replaceable(
        folder, "export.json", dict, "export"
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_fifo_is_refused_and_stays(empty, name):
    os.mkfifo(empty / name)
    with pytest.raises((RunError, DataError)) as caught:
        READERS[name](empty)
    assert str(empty) in str(caught.value)
    assert (empty / name).is_fifo()


@pytest.mark.parametrize("name", [*READERS][1:7])
def test_a_file_of_ten_gigabytes_is_refused_without_being_read(empty, name):
    sparse(empty / name)
    with pytest.raises((RunError, DataError), match=name):
        READERS[name](empty)


def test_a_lock_of_ten_gigabytes_is_not_read(empty):
    sparse(empty / ".run.lock")
    lock(empty)


@pytest.mark.parametrize("name", [".run.lock", ".x.csv.lock"])
def test_nothing_is_written_through_a_lock_that_is_a_link(empty, name):
    (empty / "mine.txt").write_text("mine")
    (empty / name).symlink_to("mine.txt")
    with pytest.raises(RunError, match="is a link"):
        READERS[name](empty)
    assert (empty / "mine.txt").read_text() == "mine"
    assert (empty / name).is_symlink()


def test_settings_beside_weights_that_are_a_fifo_are_refused(empty):
    assert description.read_json(empty / "config.json") == {}
    os.mkfifo(empty / "config.json")
    with pytest.raises(zoo.CheckpointError, match=r"config\.json is a FIFO"):
        description.read_json(empty / "config.json")


def test_weights_that_are_a_fifo_are_refused(empty):
    os.mkfifo(empty / "model.npz")
    for source in (empty, empty / "model.npz"):
        with pytest.raises(zoo.CheckpointError, match=r"model\.npz is a FIFO"):
            zoo.read(source)


def test_a_card_that_is_a_fifo_is_refused(empty):
    os.mkfifo(empty / "model.json")
    with pytest.raises(zoo.CatalogError, match=r"model\.json is a FIFO"):
        zoo.get(str(empty))


@pytest.mark.parametrize("ending", ["", ".json"])
def test_an_entry_of_the_cache_that_is_a_fifo_is_refused(empty, ending):
    url = "https://example.com/x.npz"
    path = zoo.store._cached_path(url)
    path.parent.mkdir()
    if ending:
        path.touch()
    os.mkfifo(f"{path}{ending}")
    with pytest.raises(zoo.StoreError, match=path.name):
        zoo.fetch(url)


def test_the_chosen_engine_of_a_fifo_or_an_endless_file_is_none(empty):
    path = empty / "choice.json"
    os.mkfifo(path)
    assert choices.read(path, ["keras"]) is None
    path.unlink()
    choices.write(path, "keras", {})
    assert choices.read(path, ["keras"]) == "keras"
    with open(path, "ab") as file:
        file.truncate(LARGE)
    assert choices.read(path, ["keras"]) is None


@pytest.mark.parametrize("skip_corrupt", [False, True])
def test_a_fifo_among_the_images_of_a_csv_is_refused(empty, skip_corrupt):
    os.mkfifo(empty / "1.jpg")
    (empty / "x.csv").write_text("path,label\n1.jpg,a\n2.jpg,b\n")
    with pytest.raises(DataError, match=r"1\.jpg"):
        load_csv(empty / "x.csv", None, None, skip_corrupt)


def test_hidden_files_of_others_among_checkpoints_stay(empty):
    run = RunDirectory(empty / "run")
    run.checkpoints.mkdir(parents=True)
    others = [".backup-of-mine.npz", ".a-b.npz", ".step-mine.npz", ".x-abc.tmp.npz"]
    ours = [".step-00000005-0a1b2c3d.tmp.npz", ".best-0a1b2c3d.tmp.npz"]
    for name in (*others, *ours):
        np.savez(run.checkpoints / name)
    lock(run.path)
    assert sorted(os.listdir(run.checkpoints)) == sorted(others)


def test_checkpoints_that_are_a_link_are_left_alone(empty):
    elsewhere = empty / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".step-00000005-0a1b2c3d.tmp.npz").touch()
    (empty / "run").mkdir()
    (empty / "run" / "checkpoints").symlink_to(elsewhere)
    lock(empty / "run")
    assert os.listdir(elsewhere)


def test_hidden_files_of_others_in_a_run_stay(empty):
    names = [".notes-mytextes.tmp", ".plan-12345678.tmp.old.txt"]
    for name in names:
        (empty / name).write_text("mine")
    (empty / ".report-0a1b2c3d.tmp.md").touch()
    lock(empty)
    assert sorted(os.listdir(empty)) == names


def test_json_of_ten_gigabytes_is_refused(empty):
    sparse(empty / "config.json")
    with pytest.raises(RunError, match="more than 10,000,000 bytes"):
        files.read_json(empty / "config.json", "copy it")


def test_a_scratch_folder_of_a_killed_process_goes_at_the_next_start(
    empty, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(empty))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with files.scratch_folder("export") as folder:
            (pathlib.Path(folder) / "model.keras").write_text("large")
            os.write(writer, b"x")
            signal.pause()
    os.read(reader, 1)
    (empty / "keras-vit-export-mine5678").mkdir()
    with files.scratch_folder("export") as folder:
        assert len(list(empty.glob("keras-vit-export-*"))) == 3, "one is in use"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with files.scratch_folder("export") as folder:
        assert set(empty.glob("keras-vit-export-*")) == {
            pathlib.Path(folder),
            empty / "keras-vit-export-mine5678",
        }


def test_a_folder_with_files_of_others_is_not_replaced(empty):
    (empty / "model.json").touch()
    files.refuse_others(empty, ["model.json"], "a published model")
    files.refuse_others(empty / "none", [], "a published model")
    (empty / "notes.md").touch()
    with pytest.raises(RunError, match=r"notes\.md besides, which would be lost"):
        files.refuse_others(empty, ["model.json"], "a published model")

"""FIFOs, links and endless files with the names of ours are refused, not waited for."""

import os
import pathlib
import signal
import tempfile

import pytest

import zoo
from keras_vit.runtimes import fastest
from train.common import files
from train.common.errors import RunError
from train.data.checking import DataError
from train.data.options import DEFAULTS, DataOptions
from train.data.sources.csv_source import load_csv
from train.models.keras_files import load_model
from train.models.run_directory import RunDirectory
from train.run import config_file
from zoo.containers import opening

LARGE = 10 * 10**9
URL = "https://example.com/x.npz"


def end(*_):
    raise AssertionError("waited for a FIFO, which nobody writes to")


@pytest.fixture(autouse=True)
def not_waiting():
    signal.signal(signal.SIGALRM, end)
    signal.alarm(30)
    yield
    signal.alarm(0)


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    return tmp_path


def sparse(path):
    with open(path, "ab") as file:
        file.truncate(LARGE)


def lock(folder):
    with RunDirectory(folder).locked():
        pass


def lock_table(folder):
    with files.locked(folder / "x.csv", "--out"):
        pass


def note(folder):
    (folder / CACHED).touch()
    zoo.fetch(URL)


# Each function reads the file of this name in a folder.
READERS = {
    ".run.lock": lock,
    "config.json": lambda folder: RunDirectory(folder).read_config(),
    "data.json": lambda folder: RunDirectory(folder).changed_data({}),
    "class_names.txt": lambda folder: RunDirectory(folder).read_class_names(),
    "model.keras": lambda folder: load_model(folder / "model.keras"),
    "images.csv": lambda folder: load_csv(folder / "images.csv", 0.1, DEFAULTS),
    "run.yaml": lambda folder: config_file.read(folder / "run.yaml"),
    ".x.csv.lock": lock_table,
    "export.json": lambda folder: files.check_replaceable(
        folder, "export.json", dict, "export"
    ),
}
CACHED = zoo.store._cached_path(URL).name
OF_ZOO = {
    "settings": lambda folder: opening.read_json(folder / "settings"),
    "model.npz": zoo.read,
    "x.npz": lambda folder: zoo.read(folder / "x.npz"),
    "model.json": lambda folder: zoo.get(str(folder)),
    CACHED: lambda folder: zoo.fetch(URL),
    f"{CACHED}.json": note,
}


@pytest.mark.parametrize("name", [*READERS, *OF_ZOO])
def test_a_fifo_is_refused_and_stays(empty, name):
    reader = (READERS | OF_ZOO)[name]
    refusals = (RunError, DataError, zoo.CheckpointError, zoo.CatalogError)
    os.mkfifo(empty / name)
    with pytest.raises((*refusals, zoo.StoreError), match=str(empty)):
        reader(empty)
    assert (empty / name).is_fifo()


@pytest.mark.parametrize("name", [*READERS][1:7])
def test_a_file_of_ten_gigabytes_is_refused_without_being_read(empty, name):
    sparse(empty / name)
    with pytest.raises((RunError, DataError), match=name):
        READERS[name](empty)


@pytest.mark.parametrize("name", [".run.lock", ".x.csv.lock"])
def test_a_lock_is_not_read_and_nothing_is_written_through_a_link(empty, name):
    sparse(empty / name)
    READERS[name](empty)
    (empty / name).unlink(missing_ok=True)
    (empty / "mine.txt").write_text("mine")
    (empty / name).symlink_to("mine.txt")
    with pytest.raises(RunError, match="is a link"):
        READERS[name](empty)
    assert (empty / "mine.txt").read_text() == "mine"
    assert (empty / name).is_symlink()


def test_the_chosen_engine_of_a_fifo_or_an_endless_file_is_none(empty):
    path = empty / "choice.json"
    os.mkfifo(path)
    assert fastest.read(path, ["keras"]) == (None, {})
    path.unlink()
    fastest.write(path, "keras", {})
    assert fastest.read(path, ["keras"]) == ("keras", {})
    sparse(path)
    assert fastest.read(path, ["keras"]) == (None, {})


def test_a_fifo_among_the_images_of_a_csv_is_refused(empty):
    os.mkfifo(empty / "1.jpg")
    (empty / "x.csv").write_text("path,label\n1.jpg,a\n2.jpg,b\n")
    for skip_corrupt in (False, True):
        with pytest.raises(DataError, match=r"1\.jpg"):
            load_csv(empty / "x.csv", None, DataOptions(skip_corrupt=skip_corrupt))


def test_hidden_files_of_others_in_a_run_stay(empty):
    run = RunDirectory(empty)
    run.checkpoints.mkdir()
    others = [".a-b.npz", ".backup-of-mine.npz", ".step-mine.npz", ".x-abc.tmp.npz"]
    ours = [".step-00000005-0a1b2c3d.tmp.npz", ".best-0a1b2c3d.tmp.npz"]
    for name in (*others, *ours):
        (run.checkpoints / name).touch()
    texts = [".notes-mytextes.tmp", ".plan-12345678.tmp.old.txt"]
    for name in (*texts, ".report-0a1b2c3d.tmp.md"):
        (empty / name).touch()
    lock(empty)
    assert sorted(os.listdir(run.checkpoints)) == others
    assert sorted(os.listdir(empty)) == [*texts, "checkpoints"]
    # Files behind a link stay too.
    run.checkpoints.rename(empty / "elsewhere")
    (empty / "elsewhere" / ours[0]).touch()
    run.checkpoints.symlink_to("elsewhere")
    lock(empty)
    assert ours[0] in os.listdir(run.checkpoints)


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
        names = {pathlib.Path(folder).name, "keras-vit-export-mine5678"}
        assert {*os.listdir(empty)} == names


def test_a_folder_with_files_of_others_is_not_replaced(empty):
    (empty / "model.json").touch()
    for folder in (empty, empty / "none"):
        files.refuse_others(folder, ["model.json"], "a published model")
    with pytest.raises(RunError, match="is not a published model, so it is not repl"):
        files.refuse_others(empty, ["model.npz"], "a published model")
    (empty / "mine.txt").touch()
    with pytest.raises(RunError, match=r"mine\.txt besides, which would be lost"):
        files.refuse_others(empty, ["model.json"], "a published model")

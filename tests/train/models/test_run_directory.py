"""A run's directory: its lock, settings and data, and what kills leave in it."""

import contextlib
import itertools
import json
import os
import pathlib
import shutil

import pytest

from train.common.command_line import exit_on_errors
from train.common.errors import RunError
from train.common.files import (
    make_folder,
    whole_file,
    whole_folder,
    without_empty_folders,
)
from train.data import run_data, sources
from train.models.run_directory import RunDirectory

SETTINGS = {"dataset": "digits", "steps": 10, "image_size": (32, 48), "weights": None}


def begun(path, settings=SETTINGS):
    """A run with a checkpoint."""
    directory = RunDirectory(path).claim(settings)
    directory.checkpoints.mkdir()
    (directory.checkpoints / "step-00000005.npz").touch()
    return directory


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def test_the_same_settings_go_on_and_nothing_is_written(tmp_path):
    # A mistyped run that never began does not occupy the directory.
    RunDirectory(tmp_path / "runs" / "one").claim(SETTINGS | {"image_size": 225})
    directory = begun(tmp_path / "runs" / "one")
    text = directory.config.read_text()
    assert json.loads(text) == {**SETTINGS, "image_size": [32, 48]}
    assert names_in(directory.path) == {"config.json", "checkpoints"}
    assert directory.report.parent == directory.path
    before = directory.config.stat().st_mtime_ns
    RunDirectory(str(directory.path)).claim(dict(reversed(SETTINGS.items())))
    assert directory.config.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"steps": 20}, "steps 10 (now 20)"),
        ({"image_size": (32, 32)}, "image_size [32, 48] (now [32, 32])"),
        ({"weights": "sam"}, "weights None (now 'sam')"),
        ({"new": 1}, "new None (now 1)"),
    ],
)
def test_other_settings_are_refused_and_named(tmp_path, changes, told):
    before = begun(tmp_path).config.read_text()
    with pytest.raises(RunError) as caught:
        RunDirectory(tmp_path).claim(SETTINGS | changes)
    message = str(caught.value)
    assert str(tmp_path) in message and told in message and "--run_dir" in message
    assert not any(f" {name} " in message for name in SETTINGS.keys() - changes.keys())
    assert (tmp_path / "config.json").read_text() == before
    # Checkpoints without settings are not taken for a new run.
    (tmp_path / "config.json").unlink()
    told = rf"{tmp_path} holds a run without its config\.json.*backup.*--run_dir"
    with pytest.raises(RunError, match=told):
        RunDirectory(tmp_path).claim(SETTINGS)
    assert not (tmp_path / "config.json").exists()


def test_data_are_the_same_however_their_path_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "other"):
        (tmp_path / name).mkdir()
    begun(tmp_path / "run", {"dataset": "photos"})
    for way in ("photos/", "./photos", f"{tmp_path}/photos", "other/../photos"):
        RunDirectory("run").claim({"dataset": way})
    with pytest.raises(RunError, match="holds a run with other settings: dataset"):
        RunDirectory("run").claim({"dataset": "other"})
    with pytest.raises(RunError, match="run/config.json/more: .*--run_dir"):
        RunDirectory("run/config.json/more").claim(SETTINGS)


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    data = {"training images": 36, "classes": ("ä", "b")}
    directory = begun(tmp_path)
    with pytest.raises(RunError, match=r"without its data\.json, so its data are not"):
        directory.claim_data(data)
    assert not directory.data.exists()
    directory.data.write_text(json.dumps(data))
    directory.claim_data(data)
    with pytest.raises(RunError, match=r"other data: training images 36 \(now 180\)"):
        directory.claim_data(data | {"training images": 180})
    with pytest.raises(RunError, match="classes .*'c'.*another --run_dir"):
        directory.claim_data(data | {"classes": ("ä", "b", "c")})
    assert json.loads(directory.data.read_text())["training images"] == 36


def test_a_run_with_other_corrections_is_told_without_hashes(tmp_path):
    data = {"training images": 36, "files of train": "12ab"}
    corrected = {"training images": 35, "files of train": "34cd", "corrections": "56ef"}
    for name, first, second, remedy in (
        ("plain", data, corrected, "leave them out to continue"),
        ("corrected", corrected, data, "corrections.json, which has its corrections"),
    ):
        directory = RunDirectory(tmp_path / name).claim(SETTINGS)
        directory.claim_data(first)
        directory.model.touch()
        directory.claim_data(first)
        with pytest.raises(RunError, match=remedy) as raised:
            directory.claim_data(second)
        assert "ab" not in str(raised.value).replace("relabel", "")


def test_photos_that_change_parts_are_other_data(tmp_path):
    def facts(folder):
        return run_data.facts_of(sources.load(str(folder), log=str))

    for name in ("daisy", "tulip"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(9):
            (tmp_path / "photos" / name / f"{number}.jpg").touch()
    directory = RunDirectory(tmp_path / "run").claim(SETTINGS)
    directory.claim_data(facts(tmp_path / "photos"))
    directory.model.touch()
    # A folder may be moved.
    moved = (tmp_path / "photos").rename(tmp_path / "moved")
    directory.claim_data(facts(moved))
    # As many of each class, but not the same ones.
    (moved / "daisy" / "0.jpg").rename(moved / "daisy" / "95.jpg")
    with pytest.raises(RunError, match="other data: files of t"):
        directory.claim_data(facts(moved))


@pytest.mark.parametrize("text", ["{", "[1]", "", "[" * 100_000, "\x00"], ids=repr)
def test_damaged_settings_and_notes_of_the_data_are_named(tmp_path, text):
    directory = begun(tmp_path)
    directory.config.write_text(text)
    directory.data.write_text(text)
    with pytest.raises(RunError, match=r"config\.json is damaged .*--dataset"):
        directory.read_config()
    with pytest.raises(RunError, match=r"config\.json is damaged .*--run_dir"):
        directory.claim(SETTINGS)
    with pytest.raises(RunError, match=r"data\.json is damaged .*--run_dir"):
        directory.claim_data({"training images": 36})
    settings = {"dataset": "digits", "validation_fraction": 0.1}
    directory.config.write_text(json.dumps(settings))
    directory.data.unlink()
    assert directory.read_config() == settings
    directory.config.write_text('{"dataset": "digits"}')
    with pytest.raises(RunError, match="it has no validation_fraction"):
        directory.read_config()
    directory.config.unlink()
    assert directory.read_config() == {}


def test_a_second_run_is_told(tmp_path):
    path = tmp_path / "run"
    with RunDirectory(path).locked():
        told = f"process {os.getpid()} on .*{path}.*--run_dir"
        with pytest.raises(RunError, match=told), RunDirectory(path).locked():
            pass
        # The text of a foreign lock is not shown.
        (path / ".run.lock").write_text("\x1b[2J" * 10_000)
        told = f"^Another run is using {path}: "
        with pytest.raises(RunError, match=told), RunDirectory(path).locked():
            pass
        with RunDirectory(tmp_path / "other").locked():
            pass
    assert not path.exists(), "a run that was refused has written nothing"


def test_what_a_kill_left_half_written_goes_once_the_run_goes_on(tmp_path):
    directory = begun(tmp_path)
    for path in (directory.config, directory.checkpoints / "step-00000010.npz"):
        with contextlib.suppress(KeyboardInterrupt), whole_file(path) as temporary:
            raise KeyboardInterrupt
        temporary.write_bytes(b"PK half")
    (tmp_path / ".notes-of-mine.md").touch()
    kept = {".run.lock", ".notes-of-mine.md", "config.json", "checkpoints"}
    with directory.locked():
        assert names_in(tmp_path) == kept
        assert names_in(directory.checkpoints) == {"step-00000005.npz"}


def test_what_a_killed_export_left_goes_with_the_next(tmp_path):
    out, mine = tmp_path / "exported [1]", tmp_path / ".exported [1]-notesof7"
    mine.mkdir()
    (mine / "mine.md").touch()
    killed = [tmp_path / f".exported [1]-{name}" for name in ("abcd_123", "efgh4567")]
    with whole_folder(out) as folder:
        (folder / "model.onnx").write_text("old")
        # Files that another process is writing stay, even where they are the same.
        with pytest.raises(RuntimeError), whole_folder(out):
            raise RuntimeError
        assert folder.is_dir() and not out.exists()
        for left in killed:
            shutil.copytree(folder.parent, left)
    # One was killed between the two renames.
    out.rename(killed[0] / "old")
    with pytest.raises(RuntimeError), whole_folder(out):
        raise RuntimeError
    assert (out / "model.onnx").read_text() == "old"
    assert names_in(tmp_path) == {mine.name, out.name}


def test_a_folder_that_is_refused_leaves_none_above_it(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="Cannot make"), without_empty_folders():
        make_folder(tmp_path / "empty")
        make_folder(tmp_path / "new" / ("x" * 300))
    assert names_in(tmp_path) == {"empty"}


def test_folders_that_another_process_makes_or_removes_are_made(tmp_path, monkeypatch):
    mkdir, calls = pathlib.Path.mkdir, itertools.count()
    folder = tmp_path / "new" / "sub"

    def raced(path, **options):
        call = next(calls)
        if call in others:
            others[call]()
        mkdir(path, **options)

    monkeypatch.setattr(pathlib.Path, "mkdir", raced)
    # It makes the one above, where this process wants to make it, and removes it again.
    others = {0: lambda: mkdir(folder.parent), 1: folder.parent.rmdir}
    with without_empty_folders():
        make_folder(folder)
        assert folder.is_dir()
    assert names_in(tmp_path) == set()
    calls = itertools.count()
    del others[1]
    with without_empty_folders():
        make_folder(folder)
    # It may have plans for its own.
    assert names_in(tmp_path) == {"new"} and names_in(tmp_path / "new") == set()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="Cannot make the folder .*file: File exists"):
        make_folder(tmp_path / "file")


def test_a_whole_folder_has_its_final_place(tmp_path, monkeypatch):
    out = tmp_path / "out"
    with (
        pytest.raises(RunError, match=f"^Cannot write {out}/missing/report.md: "),
        whole_folder(out) as folder,
        whole_file(folder / "missing" / "report.md", "--out"),
    ):
        pass
    assert not out.exists()
    # Stopped between the two renames, the older one is put back.
    out.mkdir()

    def stopped(path, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(pathlib.Path, "replace", stopped)
    with pytest.raises(KeyboardInterrupt), whole_folder(out):
        pass
    monkeypatch.undo()
    assert names_in(tmp_path) == {"out"}
    # A link to a folder stays one.
    (tmp_path / "link").symlink_to(out)
    with whole_folder(tmp_path / "link") as temporary:
        (temporary / "file").touch()
    assert (tmp_path / "link").is_symlink() and names_in(out) == {"file"}


def test_folders_that_stay_empty_are_removed(tmp_path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(SystemExit, match="refused"), exit_on_errors("nothing"):
        make_folder(tmp_path / "runs" / "new" / "run")
        (make_folder(tmp_path / "used" / "out") / "a.csv").touch()
        with whole_folder(tmp_path / "pages" / "page"):
            raise RunError("refused")
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert names == {"runs", "used", "used/out", "used/out/a.csv"}


@pytest.mark.parametrize("written", [whole_file, whole_folder])
def test_a_rename_is_on_the_disk_before_what_follows(written, tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def noted(descriptor):
        synced.append((os.fstat(descriptor).st_ino, names_in(tmp_path)))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with written(tmp_path / "part.csv"):
        pass
    folder, names = synced[-1]
    assert folder == tmp_path.stat().st_ino
    assert "part.csv" in names


def test_a_temporary_file_goes_a_day_after_a_kill(tmp_path):
    page = tmp_path / "compare.md"
    left = [tmp_path / f".compare-{name}.tmp.md" for name in ("abcd_123", "efgh4567")]
    others = [tmp_path / ".compare-notes.tmp.md", tmp_path / ".other-abcd1234.tmp.md"]
    for path in (*left, *others):
        path.touch()
        if path != left[1]:
            os.utime(path, (1, 1))
    with whole_file(page) as temporary:
        temporary.write_text("whole")
    assert set(tmp_path.iterdir()) == {page, left[1], *others}

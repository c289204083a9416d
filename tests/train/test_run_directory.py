import json

import pytest

from train.errors import RunError
from train.run_directory import RunDirectory

SETTINGS = {"dataset": "digits", "steps": 10, "image_size": (32, 48), "weights": None}


def begun(path, settings=SETTINGS):
    """A run with a checkpoint."""
    directory = RunDirectory(path).claim(settings)
    directory.checkpoints.mkdir()
    (directory.checkpoints / "step-00000005.npz").touch()
    return directory


def test_writes_the_settings_and_makes_parents(tmp_path):
    directory = RunDirectory(tmp_path / "runs" / "one").claim(SETTINGS)
    assert json.loads(directory.config.read_text()) == {
        **SETTINGS,
        "image_size": [32, 48],
    }
    assert [path.name for path in directory.path.iterdir()] == ["config.json"]
    assert directory.report.parent == directory.path


def test_the_same_settings_go_on(tmp_path):
    first = begun(tmp_path)
    written = first.config.stat().st_mtime_ns
    again = RunDirectory(str(tmp_path)).claim(dict(reversed(SETTINGS.items())))
    assert again.config.stat().st_mtime_ns == written


def test_data_are_the_same_however_their_path_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "records", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "records" / "train-0.tfrecord").touch()
    (tmp_path / "photos.csv").touch()
    for number, ways in enumerate(
        (
            (
                "photos",
                "photos/",
                "./photos",
                str(tmp_path / "photos"),
                "other/../photos",
            ),
            ("records/", "records", "./records/"),
            ("photos.csv", "./photos.csv", f"{tmp_path}/other/../photos.csv"),
            ("records/*.tfrecord", "./records/*.tfrecord"),
        )
    ):
        path = tmp_path / f"run{number}"
        begun(path, {"dataset": ways[0]})
        for way in ways:
            RunDirectory(path).claim({"dataset": way})
        with pytest.raises(RunError, match="holds a run with other settings: dataset"):
            RunDirectory(path).claim({"dataset": "other"})


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


def test_a_finished_run_is_not_overwritten_either(tmp_path):
    directory = RunDirectory(tmp_path).claim(SETTINGS)
    directory.model.touch()
    with pytest.raises(RunError, match="other settings"):
        RunDirectory(tmp_path).claim(SETTINGS | {"steps": 20})


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    data = {"training images": 36, "classes": ("ä", "b")}
    directory = begun(tmp_path)
    directory.claim_data(data)
    RunDirectory(tmp_path).claim_data(data)
    with pytest.raises(RunError, match=r"other data: training images 36 \(now 180\)"):
        RunDirectory(tmp_path).claim_data(data | {"training images": 180})
    with pytest.raises(RunError, match="classes .*'c'.*another --run_dir"):
        RunDirectory(tmp_path).claim_data(data | {"classes": ("ä", "b", "c")})
    assert json.loads(directory.data.read_text())["training images"] == 36


def test_a_mistyped_run_does_not_occupy_the_directory(tmp_path):
    RunDirectory(tmp_path).claim(SETTINGS | {"image_size": 225})
    directory = RunDirectory(tmp_path).claim(SETTINGS)
    assert json.loads(directory.config.read_text())["image_size"] == [32, 48]


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_damaged_settings_are_named(tmp_path, text):
    begun(tmp_path).config.write_text(text)
    with pytest.raises(RunError, match=r"config\.json is damaged .*--run_dir"):
        RunDirectory(tmp_path).claim(SETTINGS)


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError) as caught:
            RunDirectory(path).claim(SETTINGS)
        assert f"{path}: " in str(caught.value) and "--run_dir" in str(caught.value)

"""Features in an `.npz` file, gone on with after kills."""

import os

import numpy as np
import pytest
from full_disk import full_disk

from train.common.errors import RunError
from train.predict.answers import spelled
from train.predict.features import FeatureFile

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(7, 3)).astype("float32")
FILES = ["a.jpg", "b\n,.jpg", spelled(os.fsdecode(b"\xff.jpg")), *"cdef"]


def written(path, count=0, until=7):
    file = FeatureFile(path, 3, count)
    for start in range(count, until, 2):
        end = min(start + 2, until)
        file.append(FILES[start:end], FEATURES[start:end])
    return file


def finish(file):
    file.finish()
    file.close(keep=False)


def check(path, count=7):
    with np.load(path) as found:
        assert sorted(found) == ["features", "files"]
        assert found["files"].tolist() == FILES[:count]
        np.testing.assert_array_equal(found["features"], FEATURES[:count])
        assert found["features"].dtype == np.float32
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("until", [0, 4])
def test_a_finished_file_is_gone_on_with(until, tmp_path):
    path = tmp_path / "x.npz"
    file = written(path, until=until)
    assert not path.exists()
    finish(file)
    check(path, until)
    if until:
        finish(written(path, until))
        check(path)


@pytest.mark.parametrize("count", [1, 4, 7])
def test_more_rows_than_answers_are_cut(count, tmp_path):
    """A kill comes after the rows are written, and before the answers are."""
    path = tmp_path / "x.npz"
    written(path).close(keep=True)
    finish(written(path, count))
    check(path)


@pytest.mark.parametrize("part", [".x.npz.features", ".x.npz.files"])
def test_a_kill_while_a_finished_file_is_unpacked(part, tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    finish(written(path, until=4))
    replace = os.replace

    def killed(source, target):
        if os.path.basename(target) == part:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        FeatureFile(path, 3, 4)
    assert not (tmp_path / ".x.npz.files").exists()
    monkeypatch.setattr(os, "replace", replace)
    # A kill between the two removals, of which that of the names is first.
    file, removed = written(path, 4), []
    file.finish()
    with monkeypatch.context() as patch:
        patch.setattr(type(path), "unlink", lambda one, **_: removed.append(one))
        file.close(keep=False)
    assert [one.suffix for one in removed] == [".files", ".features"]
    removed[0].unlink()
    written(path, 7).close(keep=False)
    check(path)


def test_rows_that_are_missing(tmp_path):
    path = tmp_path / "x.npz"
    with pytest.raises(RunError, match="features of the first 2 photos are not beside"):
        FeatureFile(path, 3, 2)
    written(path, until=4).close(keep=True)
    with pytest.raises(RunError, match="fewer rows"):
        FeatureFile(path, 3, 5)
    (tmp_path / ".x.npz.files").write_text('"a.jpg"\n')
    with pytest.raises(RunError, match="the first 4 photos"):
        FeatureFile(path, 3, 4)


def test_a_full_disk_is_named(tmp_path):
    file = written(tmp_path / "x.npz", until=2)
    told = r"x\.npz: File too large.*--features"
    with full_disk(30), pytest.raises(RunError, match=told):
        file.append(FILES[2:4], FEATURES[2:4])
    file.close(keep=True)

"""Features in an `.npz` file, gone on with after kills."""

import errno
import os

import numpy as np
import pytest

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


def check(path):
    with np.load(path) as found:
        assert sorted(found) == ["features", "files"]
        assert found["files"].tolist() == FILES
        np.testing.assert_array_equal(found["features"], FEATURES)
        assert found["features"].dtype == np.float32
    assert os.listdir(path.parent) == [path.name]


def test_rows_and_names(tmp_path):
    path = tmp_path / "x.npz"
    file = written(path)
    assert not path.exists()
    file.finish()
    file.close(keep=False)
    check(path)


@pytest.mark.parametrize("count", [1, 4, 7])
def test_more_rows_than_answers_are_cut(count, tmp_path):
    """A kill comes after the rows are written, and before the answers are."""
    path = tmp_path / "x.npz"
    written(path).close(keep=True)
    file = written(path, count)
    file.finish()
    file.close(keep=False)
    check(path)


def test_a_finished_file_is_gone_on_with(tmp_path):
    path = tmp_path / "x.npz"
    file = written(path, until=4)
    file.finish()
    file.close(keep=False)
    file = written(path, 4)
    file.finish()
    file.close(keep=False)
    check(path)


@pytest.mark.parametrize("part", [".x.npz.features", ".x.npz.files"])
def test_a_kill_while_a_finished_file_is_unpacked(part, tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    file = written(path, until=4)
    file.finish()
    file.close(keep=False)
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
    file = written(path, 4)
    file.finish()
    # A kill between the two removals.
    removed = []

    def unlink(hidden, missing_ok):
        if removed:
            raise KeyboardInterrupt
        removed.append(hidden)
        os.unlink(hidden)

    monkeypatch.setattr(type(path), "unlink", unlink)
    with pytest.raises(KeyboardInterrupt):
        file.close(keep=False)
    monkeypatch.undo()
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


def test_no_photos(tmp_path):
    file = FeatureFile(tmp_path / "x.npz", 3)
    file.finish()
    with np.load(tmp_path / "x.npz") as found:
        assert found["features"].shape == (0, 3) and found["files"].shape == (0,)


def test_a_full_disk_is_named(tmp_path):
    file = written(tmp_path / "x.npz", until=2)

    class Full:
        def write(self, content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self):
            pass

    file._files[0].close()
    file._files[0] = Full()
    with pytest.raises(RunError, match=r"x\.npz: No space left.*--features"):
        file.append(FILES[2:4], FEATURES[2:4])
    file.close(keep=True)

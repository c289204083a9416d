"""How a SavedModel comes into its folder: whole, quietly, over nothing of others."""

import logging
import os

import absl.logging
import keras
import pytest
import tensorflow as tf
from full_disk import full_disk
from small_models import shared

from train.common.errors import RunError
from train.models.exports import saved_model
from train.models.exports.saved_model import add_version, write_saved_model


@pytest.fixture(autouse=True)
def written_quickly(monkeypatch):
    """A writer that traces no model: the file alone matters."""

    def package(model, class_names):
        package = tf.train.Checkpoint(kernel=tf.Variable(tf.ones(1000)))
        package.__call__ = tf.function(lambda images: images + package.kernel[0])
        package.__call__.get_concrete_function(tf.TensorSpec((None,)))
        return package, {}

    monkeypatch.setattr(saved_model, "_package", package)


def test_versions(tmp_path, monkeypatch):
    served = tmp_path / "models" / "flowers"
    for number, others in (1, []), (2, ["1"]), (10, ["1", "009", "notes"]):
        for other in others:
            (served / other).mkdir(exist_ok=True)
        write_saved_model(shared(), tmp_path / "new")
        assert add_version(tmp_path / "new", served) == served / str(number)
        assert (served / str(number) / "saved_model.pb").is_file()
        assert not (tmp_path / "new").exists()
    with pytest.raises(RunError, match="Cannot move .*new to .*11: No such file"):
        add_version(tmp_path / "new", served)
    # Another process takes the next number meanwhile.
    (tmp_path / "new").mkdir()
    rename = os.rename

    def late(path, target):
        monkeypatch.undo()
        (target / "variables").mkdir(parents=True)
        rename(path, target)

    monkeypatch.setattr(os, "rename", late)
    assert add_version(tmp_path / "new", served) == served / "12"
    assert os.listdir(served / "11") == ["variables"]


def test_logs_nothing(tmp_path, capfd, caplog):
    caplog.set_level(logging.INFO, "tensorflow")
    verbosity = absl.logging.get_verbosity()
    absl.logging.set_verbosity(absl.logging.INFO)
    try:
        write_saved_model(shared(), tmp_path / "exported")
        assert capfd.readouterr() == ("", "")
        assert caplog.records == []
        absl.logging.info("as before")
        assert caplog.messages == ["as before"]
    finally:
        absl.logging.set_verbosity(verbosity)


def test_an_older_one_is_replaced_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "deep" / "exported"
    write_saved_model(shared(), folder, class_names="abcde")
    (folder / "assets" / "left over").write_text("")
    (folder / "variables" / "more").write_text("")
    write_saved_model(shared(), folder)
    assert tf.saved_model.load(folder)([1.0]) == 2.0
    assert not [*folder.rglob("left over"), *folder.rglob("more")]
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777
    before = {path: path.stat().st_ino for path in folder.rglob("*")}
    with full_disk(1000), pytest.raises(RunError):
        write_saved_model(shared(), folder)
    assert {path: path.stat().st_ino for path in folder.rglob("*")} == before
    assert os.listdir(folder.parent) == ["exported"]


def test_a_folder_of_something_else_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    for name in ("folder/thesis.tex", "file"):
        (tmp_path / name).write_text("all")
    for name in ("folder", "file"):
        with pytest.raises(RunError, match=f"{name} exists and is not a SavedModel"):
            write_saved_model(shared(), tmp_path / name)
    with pytest.raises(RunError, match="Cannot write the folder .*choose another"):
        write_saved_model(shared(), tmp_path / "file" / "exported")
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RunError, match="on TensorFlow, but KERAS_BACKEND is 'jax'"):
        write_saved_model(shared(), tmp_path / "exported")
    for name in ("folder/thesis.tex", "file"):
        assert (tmp_path / name).read_text() == "all"
    assert {*os.listdir(tmp_path)} == {"folder", "file"}

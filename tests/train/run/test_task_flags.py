"""Flags of tasks: what a command line says and a table shows, and what is refused."""

import json

import labelled_photos
import pytest
from in_process import run_command


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    return {
        name: labelled_photos.table(folder / name, name)
        for name in ("labels", "number")
    }


def settings(capsys, *words):
    """Returns the lines of --print_config by their names."""
    with pytest.raises(SystemExit):
        run_command("finetune", *words, "--print_config")
    lines = capsys.readouterr().out.splitlines()
    pairs = (line.partition("  #")[0].partition(": ") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def test_a_table_shows_its_task_and_flags_override_it(tables, capsys):
    found = settings(capsys, tables["labels"])
    shown = {name: json.loads(found[name]) for name in ("task", "loss", "epochs")}
    assert shown == {"task": "labels", "loss": "sigmoid", "epochs": 10.0}
    found = settings(capsys, tables["labels"], "--loss=asymmetric", "--epochs=3")
    assert (found["loss"], found["epochs"]) == ('"asymmetric"', "3.0")
    # Numbers may be names of classes.
    assert settings(capsys, tables["number"])["loss"] == '"softmax"'
    found = settings(capsys, tables["number"], "--task=number")
    assert (found["task"], found["loss"]) == ('"number"', '"huber"')


@pytest.mark.parametrize("name", ["labels", "number"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--minutes=5"], "--minutes is of one class per photo"),
        (["--seeds=3"], "--seeds is of one class per photo"),
        (["--models=vit-ti16/augreg-imagenet21k"], "--models is of one class per"),
        (["--loss=softmax"], "loss=softmax is for .*classes.*, not for task="),
        (["--relabel=labels.csv"], "--relabel gives photos a class each"),
    ],
)
def test_flags_of_classes_are_refused_by_name(name, words, told, tables, tmp_path):
    folder = f"--run_dir={tmp_path / 'run'}"
    with pytest.raises(SystemExit, match=told):
        run_command("finetune", tables[name], f"--task={name}", *words, folder)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["labels", "number"])
def test_folders_and_pretraining_are_refused_by_name(name, tables, tmp_path):
    folder, photos = f"--run_dir={tmp_path / 'run'}", tmp_path / "photos"
    labelled_photos.photos(photos / "one")
    labelled_photos.photos(photos / "two")
    with pytest.raises(SystemExit, match=f"--task={name} reads labels from a table"):
        run_command("finetune", photos, f"--task={name}", folder)
    with pytest.raises(SystemExit, match=f"--task={name} is of .*finetune"):
        run_command("pretrain", tables[name], f"--task={name}", folder)
    assert not (tmp_path / "run").exists()


def test_an_unknown_task_in_a_file_is_refused_by_name(tables, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("task: x\n")
    with pytest.raises(SystemExit, match="task.*x"):
        run_command("finetune", tables["labels"], f"--config={file}")


def test_a_smoke_test_of_several_labels_ends_with_its_verdict(
    tables, tmp_path, capsys, empty_figures
):
    folder = f"--run_dir={tmp_path / 'run'}"
    run_command("finetune", tables["labels"], "--smoke", "--steps=1", folder)
    told = capsys.readouterr().out
    assert "Mean average precision" in told
    assert (tmp_path / "run" / "model.keras").exists()

"""The command in a process of its own: what it imports, prints and leaves."""

import os
import subprocess
import sys

import pytest
from in_process import function_of, run_command
from photo_folder import NAMES, interrupted, paths

import keras_vit_start
from train.predict.prediction import Predictions

# Says at its end which libraries a command has imported.
WATCHED = """
import runpy, sys
sys.argv[0] = "keras-vit"
try:
    runpy.run_module("train.predict", run_name="__main__", alter_sys=True)
finally:
    heavy = {"tensorflow", "keras", "keras_vit", "jax", "torch", "scipy"}
    print(*sorted(heavy & {*sys.modules}), file=sys.stderr)
"""


def test_an_export_is_answered_without_tensorflow_and_keras(folder, files):
    command = [sys.executable, "-c", WATCHED, files / "model.onnx", "photos", "--top"]
    environment = os.environ | {"PYTHONPATH": keras_vit_start.HERE}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 3
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == paths()
    assert all(len(row) == 11 and set(row[1::2]) == set(NAMES) for row in rows)
    assert done.stderr.splitlines() == [
        "1 photo could not be read:",
        "  photos/5bad.jpg cannot be read as an image (UnidentifiedImageError): save "
        "it as JPEG or PNG.",
        "",
    ]


def test_parts_of_an_export_are_written_without_tensorflow_and_keras(folder, files):
    pytest.importorskip("pyarrow")
    command = [sys.executable, "-c", WATCHED, files / "model.onnx", "photos"]
    environment = os.environ | {"PYTHONPATH": keras_vit_start.HERE}
    done = subprocess.run(
        [*command, "--out=out"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 3
    *bar, summary, written, unread, reason, imported = done.stderr.splitlines()
    assert summary.startswith("10 photos answered: ")
    assert (written, unread) == ("written: out", "1 photo could not be read:")
    assert (imported, os.path.exists("out/part-00000.parquet")) == ("", True)


def test_a_folder_for_parts_takes_no_flags_of_one_file(folder, stub):
    stub()
    with pytest.raises(SystemExit, match="--top, --resume: not for answers in parts"):
        run_command("predict", "stub", "photos", "--out=out", "--top", "--resume")
    with pytest.raises(SystemExit, match="--runner: for answers in parts, which"):
        run_command("predict", "stub", "photos", "--out=a.csv", "--runner=ray")
    with pytest.raises(SystemExit, match="--parts: for answers in parts, which"):
        run_command("predict", "stub", "photos", "--parts=csv")


def test_a_command_that_is_interrupted_says_how_to_go_on(folder, stub):
    stub(interrupted)
    told = "^Interrupted; --resume goes on with what out.csv has.$"
    with pytest.raises(KeyboardInterrupt, match=told):
        run_command("predict", "stub", "photos", "--out=out.csv")


@pytest.mark.parametrize(
    "words",
    [
        ["empty", "--out=new/out", "--features=new/vectors"],
        ["missing.png", "--out=new/out"],
        ["photos", "--out=new/out", "--parts=csv", "--unsure=0.9"],
        ["empty", "--out=new/a/out.csv", "--features=new/b/x.npz"],
        ["photos", "--out=new/ask/out.csv", "--ask=1", "--resume"],
        ["photos", "--out=new/out.csv", "--sort_into=new/sorted", "--unsure=0.9"],
    ],
)
def test_a_refused_command_leaves_no_folder(words, folder, stub):
    stub()
    os.mkdir("empty")
    with pytest.raises(SystemExit, match="error: "):
        run_command("predict", "stub", *words)
    assert not os.path.exists("new")


def test_a_file_without_an_answer_says_so(capsys):
    report = function_of("predict", "_report")
    given = dict.fromkeys(("features", "sort_into", "gallery")) | {"out": "e.csv"}
    assert report(Predictions("a", unreadable=1, reasons=["b"]), given) == 3
    assert "written: e.csv, without an answer\n" in capsys.readouterr().err
    for answered in (0, 1):
        assert report(Predictions("a", answered, earlier=1), given) == 0
        assert capsys.readouterr().err.endswith("written: e.csv\n")


def test_a_foreign_saved_model_is_run_with_trust_alone(folder, capsys):
    tf = pytest.importorskip("tensorflow")

    @tf.function(input_signature=[tf.TensorSpec((None, 20, 30, 3))])
    def answer(images):
        return {"logits": tf.atan([[0.0, 0.0, 1.0]]) + tf.zeros((len(images), 1))}

    tf.saved_model.save(tf.Module(), "foreign", answer)
    told = "which may do anything: Atan. If you trust .*made it, pass .*trust=.rue"
    with pytest.raises(SystemExit, match=told):
        run_command("predict", "foreign", *paths(3))
    with pytest.raises(SystemExit) as done:
        run_command("predict", "foreign", *paths(3), "--trust")
    assert done.value.code == 0
    assert capsys.readouterr().out.startswith(f"{paths(3)[0]}\tclass 2\t")

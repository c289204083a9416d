"""The command in a process of its own: what it imports, prints and leaves."""

import csv
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from in_process import function_of, run_command
from photo_folder import NAMES, paths

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


def command(*words, program=None, **options):
    start = (
        [sys.executable, "-c", program]
        if program
        else keras_vit_start.python("train.predict")
    )
    return subprocess.Popen(
        [*start, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": keras_vit_start.HERE},
        # A job in the background of a shell ignores it, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def test_an_export_is_answered_without_tensorflow_and_keras(folder, files):
    process = command(files / "model.onnx", "photos", "--top", program=WATCHED)
    output, errors = process.communicate()
    assert process.returncode == 3
    rows = [line.split("\t") for line in output.splitlines()]
    assert [row[0] for row in rows] == paths()
    assert all(len(row) == 11 and set(row[1::2]) == set(NAMES) for row in rows)
    assert errors.splitlines() == [
        "1 photo could not be read:",
        "  photos/5bad.jpg cannot be read as an image (UnidentifiedImageError): save "
        "it as JPEG or PNG.",
        "",
    ]


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_goes_on(by, folder, files):
    os.remove("photos/5bad.jpg")
    for number in range(10, 400):
        os.link("photos/0.png", f"photos/{number}.png")
    # It waits for more names, so that it has not ended before the signal.
    words = [files / "model.onnx", "photos", "-", "--out=out.csv"]
    process = command(*words, stdin=subprocess.PIPE)
    while not (os.path.exists("out.csv") and os.path.getsize("out.csv") > 500):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.002)
    process.send_signal(by)
    _, errors = process.communicate()
    if by == signal.SIGINT:
        assert errors.endswith(
            "error: Interrupted; --resume goes on with what out.csv has.\n"
        )
        assert process.returncode == 130
    assert pathlib.Path("out.csv").read_text("utf-8").endswith("\n")
    process = command(*words, "--resume", stdin=subprocess.DEVNULL)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    with open("out.csv", newline="") as file:
        names = [row["file"] for row in csv.DictReader(file)]
    assert names == sorted(names) and len(names) == len(set(names)) == 400


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

"""The fine-tuning command, run as a user would."""

import functools
import os
import re
import zipfile

import keras
import numpy as np
import pytest
import same_runs
from PIL import Image

import keras_vit

DIGITS = ["--dataset=digits", "--smoke", "--steps=60"]
DIGITS += ["--checkpoint_every=5", "--eval_every=30"]


@pytest.fixture
def finished(forks, tmp_path):
    """Runs the command with flags in a fork; returns what it printed."""
    return functools.partial(forks.output, tmp_path, "train.finetune")


# The command, which gets SIGTERM when its first checkpoint is written.
STOPPED = """
import os, runpy, signal
from train.engine.checkpoints import Checkpoints

write = Checkpoints._write

def write_and_stop(self, *args):
    Checkpoints._write = write
    write(self, *args)
    os.kill(os.getpid(), signal.SIGTERM)

Checkpoints._write = write_and_stop
runpy.run_module("train.finetune", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def whole_run(forks, tmp_path_factory):
    """An uninterrupted run: its directory and what it said."""
    run_dir = tmp_path_factory.mktemp("runs") / "whole"
    words = ["train.finetune", *DIGITS, f"--run_dir={run_dir}"]
    return run_dir, forks.output(run_dir.parent, *words)


@pytest.mark.slow
def test_a_run_leaves_all_that_it_promises(whole_run, finished):
    run_dir, output = whole_run
    assert {path.name for path in run_dir.iterdir()} == {
        *("checkpoints", "tensorboard", "model.keras", "class_names.txt"),
        "held_out.npz",
        *("config.json", "data.json", "metrics.jsonl", "mistakes.csv"),
        *("report.html", "report.json", "report.md", "label_errors.csv"),
        *("confusion_matrix.png", "learning_curve.png", "mistakes.png"),
        *("predictions.png", "reliability.png", "training_batch.png"),
    }
    assert sorted(os.listdir(run_dir / "checkpoints")) == [
        *("step-00000055.npz", "step-00000060.npz")
    ]
    assert (run_dir / "class_names.txt").read_text() == "\n".join("0123456789") + "\n"

    report = same_runs.report(run_dir)
    assert report["test_examples"] == 128
    assert (report["train_examples"], report["validation_examples"]) == (256, 128)
    # The model has width 32, 2 blocks, 64 in the perceptron, 2x2 patches of 4x4.
    block = 4 * (32 * 32 + 32) + 2 * 2 * 32 + (32 * 64 + 64) + (64 * 32 + 32)
    ends = (4 * 4 * 3 * 32 + 32) + 32 + 5 * 32 + 2 * 32 + (32 * 10 + 10)
    assert (report["steps"], report["parameters"]) == (60, 2 * block + ends)
    assert report["loss_function"] == "softmax cross-entropy"
    assert report["training_only"] == "shift crop"
    images = report["images_per_second"] * report["seconds"]
    assert images == pytest.approx(60 * 16)
    assert f"--run_dir={run_dir}" in report["command"]
    assert report["config"]["warmup_steps"] == 15

    accuracies = [report[f"test_accuracy{end}"] for end in ("", "_low", "_high")]
    accuracy = "{:.2%} ({:.2%} to {:.2%})".format(*accuracies)
    assert f"test accuracy {accuracy} on 128 test images" in output
    assert all(line in output for line in report["verdict"][1:])
    assert all(row["command"] in output for row in report["try_next"])
    assert str(run_dir / "report.html") in output
    assert "256 training, 128 validation and 128 test images" in output
    # The log has every step, and both validations.
    records = same_runs.records(run_dir)
    assert [r["step"] for r in records if "loss" in r] == list(range(1, 61))
    assert [r["step"] for r in records if "val_loss" in r] == [30, 60]
    # The same command reports it again, and writes no checkpoint.
    last = run_dir / "checkpoints" / "step-00000060.npz"
    written = last.stat().st_mtime_ns
    again = finished(*DIGITS, f"--run_dir={run_dir}")
    assert "all steps were taken before" in again
    assert again.splitlines()[-3:] == output.splitlines()[-3:]
    assert last.stat().st_mtime_ns == written


@pytest.mark.slow
def test_the_model_needs_keras_vit_alone_and_has_the_last_weights(whole_run):
    run_dir, _ = whole_run
    # Loading imports and looks up these.
    with zipfile.ZipFile(run_dir / "model.keras") as file:
        config = file.read("config.json").decode()
    modules = set(re.findall(r'"module": "(\w+)', config))
    names = set(re.findall(r'"registered_name": "([^"]+>[^"]+)"', config))
    assert "keras" in modules and modules <= {"keras", "keras_vit"}
    registered = [keras.saving.get_registered_object(name) for name in names]
    assert "TransformerBlock" in {one.__name__ for one in registered}
    package = f"{keras_vit.__name__}."
    assert all(one.__module__.startswith(package) for one in registered)

    model = keras.saving.load_model(run_dir / "model.keras")
    assert model.get_layer("head").class_names == tuple("0123456789")
    trained = same_runs.trained(run_dir)
    for variable in model.weights:
        np.testing.assert_array_equal(variable.numpy(), trained[variable.path])


@pytest.mark.slow
def test_sigterm_saves_and_the_same_command_goes_on(
    whole_run, forks, finished, tmp_path
):
    flags = [*DIGITS, f"--run_dir={tmp_path}/run"]
    output = forks.output(tmp_path, "-c", STOPPED, *flags)
    assert not (tmp_path / "run" / "report.json").exists(), "it was over before"
    told = re.search(r"^Stopped by SIGTERM after step (\d+)", output, re.M)
    assert told and "same command goes on" in output
    assert same_runs.arrays(tmp_path / "run", int(told[1]))
    assert f"going on after step {told[1]}\n" in finished(*flags)
    same_runs.assert_same_bits(tmp_path / "run", whole_run[0])


def test_a_folder_of_photos_and_one_of_a_single_class(finished, tmp_path):
    rng = np.random.default_rng(0)
    for place in ("all/a", "all/b", "all/c", "one/a"):
        folder = tmp_path / "my photos" / place
        folder.mkdir(parents=True)
        for index in range(10):
            image = Image.fromarray(rng.integers(0, 256, (30 + index, 41, 3), "uint8"))
            image.save(folder / f"{index}.jpg")
    # Steps for more than an epoch, so that every image is read.
    flags = ["--smoke", "--steps=3", "--validation_fraction=0.25"]
    output = finished(f"--dataset={tmp_path}/my photos/all", "--run_dir=run", *flags)
    assert "18 training, 6 validation and 6 test images of 3 classes" in output
    report = same_runs.report(tmp_path / "run")
    assert [row["name"] for row in report["per_class"]] == ["a", "b", "c"]
    # A command that can be copied, spaces and all.
    assert f"'--dataset={tmp_path}/my photos/all'" in report["command"]
    message = finished(f"--dataset={tmp_path}/my photos/one", *flags, status=1)
    assert "only one class, a" in message and "at least one other class" in message

"""The fine-tuning command, run as a user would."""

import os
import pathlib
import re
import shutil
import zipfile

import keras
import numpy as np
import pytest
import same_runs
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit
from train.recipes import digits

ROOT = pathlib.Path(__file__).parents[3]
SMOKE = ["--dataset=digits", "--smoke"]
DIGITS = [*SMOKE, "--steps=60", "--checkpoint_every=5", "--eval_every=30"]


@pytest.fixture
def command(forks, tmp_path):
    """The command in a fork: takes flags, returns its status and what it printed."""
    return lambda *flags: forks.run(["train.finetune", *flags], tmp_path, {})


def finished(command, *flags):
    code, output = command(*flags)
    assert code == 0, output
    return output


def failed(command, *flags):
    """Returns the one line that a run which cannot start prints."""
    code, output = command(*flags)
    assert code != 0, output
    return line_of_error(output)


def line_of_error(output):
    assert "Traceback" not in output, output
    lines = re.findall(r"^error: .+$", output, flags=re.MULTILINE)
    assert len(lines) == 1 and output.endswith(f"{lines[0]}\n"), output
    return lines[0]


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
    folder = tmp_path_factory.mktemp("runs")
    run_dir = folder / "whole"
    words = ["train.finetune", *DIGITS, f"--run_dir={run_dir}"]
    code, output = forks.run(words, folder, {})
    assert code == 0, output
    return run_dir, output


@pytest.mark.slow
def test_a_run_leaves_all_that_it_promises(whole_run):
    run_dir, output = whole_run
    assert {path.name for path in run_dir.iterdir()} == {
        *("checkpoints", "tensorboard", "model.keras", "class_names.txt"),
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
    assert (report["steps"], report["parameters"]) == (60, parameters_by_hand())
    assert 0 <= report["test_calibration_error"] <= 1
    assert sum(row["examples"] for row in report["calibration"]) == 128
    assert report["loss_function"] == "softmax cross-entropy"
    assert report["training_only"] == "shift crop"
    images = report["images_per_second"] * report["seconds"]
    assert images == pytest.approx(60 * 16)
    assert f"--run_dir={run_dir}" in report["command"]
    assert report["config"]["warmup_steps"] == 15

    assert f"test accuracy {report['test_accuracy']:.2%} on 128 test images" in output
    assert str(run_dir / "report.html") in output
    assert "256 training, 128 validation and 128 test images" in output
    # The log has every step, and both validations.
    records = same_runs.records(run_dir)
    assert [r["step"] for r in records if "loss" in r] == list(range(1, 61))
    assert [r["step"] for r in records if "val_loss" in r] == [30, 60]


def parameters_by_hand():
    """Of the smoke test: width 32, 2 blocks, 64 in the perceptron, 2x2 patches."""
    block = 4 * (32 * 32 + 32) + 2 * 2 * 32 + (32 * 64 + 64) + (64 * 32 + 32)
    ends = (4 * 4 * 3 * 32 + 32) + 32 + 5 * 32 + 2 * 32 + (32 * 10 + 10)
    return 2 * block + ends


@pytest.mark.slow
def test_the_model_needs_keras_vit_alone_and_has_the_last_weights(whole_run):
    run_dir, _ = whole_run
    # What loading imports and looks up.
    with zipfile.ZipFile(run_dir / "model.keras") as file:
        config = file.read("config.json").decode()
    modules = set(re.findall(r'"module": "(\w+)', config))
    names = set(re.findall(r'"registered_name": "([^"]+>[^"]+)"', config))
    assert "keras" in modules and modules <= {"keras", "keras_vit"}
    registered = [keras.saving.get_registered_object(name) for name in names]
    assert "TransformerBlock" in {one.__name__ for one in registered}
    assert all(one.__module__.startswith("keras_vit.") for one in registered)

    model = keras.saving.load_model(run_dir / "model.keras")
    assert model.get_layer("head").class_names == tuple("0123456789")
    images = np.repeat(load_digits().images[:8, ..., None] / 8 - 1, 3, axis=3)
    logits = model.predict(images.astype("float32"), verbose=0)
    assert logits.shape == (8, 10) and np.isfinite(logits).all()
    trained = same_runs.trained(run_dir)
    for variable in model.weights:
        np.testing.assert_array_equal(variable.numpy(), trained[variable.path])


@pytest.mark.slow
def test_a_finished_run_is_reported_again_and_guards_its_directory(whole_run, command):
    run_dir, first = whole_run
    last = run_dir / "checkpoints" / "step-00000060.npz"
    written = last.stat().st_mtime_ns
    again = finished(command, *DIGITS, f"--run_dir={run_dir}")
    assert "all steps were taken before" in again
    assert again.splitlines()[-3:] == first.splitlines()[-3:]
    assert last.stat().st_mtime_ns == written

    message = failed(command, *DIGITS, f"--run_dir={run_dir}", "--seed=1")
    assert str(run_dir) in message and "seed 0 (now 1)" in message
    assert "another --run_dir" in message


@pytest.mark.slow
def test_sigterm_saves_and_the_same_command_goes_on(
    whole_run, forks, command, tmp_path
):
    run_dir = tmp_path / "run"
    flags = [*DIGITS, f"--run_dir={run_dir}"]
    code, output = forks.run(["-c", STOPPED, *flags], tmp_path, {})
    assert code == 0 and "Traceback" not in output
    assert not (run_dir / "report.json").exists(), "the run was over before the signal"
    told = re.search(r"^Stopped by SIGTERM after step (\d+)", output, re.M)
    assert told and "same command goes on" in output
    assert same_runs.arrays(run_dir, int(told[1]))

    assert f"going on after step {told[1]}\n" in finished(command, *flags)
    same_runs.assert_same_bits(run_dir, whole_run[0])
    assert same_runs.records(run_dir) == same_runs.records(whole_run[0])


@pytest.mark.slow
def test_starts_from_a_released_file_and_says_what_does_not_fit(command, tmp_path):
    # At another resolution and with another head, as released files are.
    released = tmp_path / "released.npz"
    config = digits.RECIPE.smoke().model
    model = keras_vit.VisionTransformer(config, image_size=16, classes=7)
    keras_vit.save_released_weights(model, released)
    one_step = ["--steps=1", "--warmup_steps=0", f"--weights={released}"]
    finished(command, *SMOKE, "--run_dir=run", *one_step)

    # The new head is zero, so that the first step moves nothing else.
    after = same_runs.trained(tmp_path / "run")
    compared = 0
    for variable in model.trainable_variables:
        if not variable.path.startswith(("head/", "position_embedding/")):
            np.testing.assert_array_equal(after[variable.path], variable.numpy())
            compared += 1
    assert compared == len(model.trainable_variables) - 3
    assert after["head/kernel"].shape == (32, 10) and np.any(after["head/kernel"])

    others = [f"--weights={released}", "--run_dir=b", "--model=ViT-Ti_16"]
    message = failed(command, *SMOKE, *others, "--image_size=32")
    assert f"{released} is another architecture" in message
    assert "hidden_size 32 (the model has 192)" in message


COLOURS = {"blue": (20, 20, 220), "green": (20, 220, 20), "red": (220, 20, 20)}


@pytest.fixture
def photos(tmp_path):
    """A user's folder: three colours, of odd sizes."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 8), ("test", 5)):
        for name, colour in COLOURS.items():
            folder = tmp_path / "my photos" / part / name
            folder.mkdir(parents=True)
            for index in range(count):
                noise = rng.integers(-20, 20, (30 + index, 41, 3))
                image = Image.fromarray((noise + colour).astype("uint8"))
                image.save(folder / f"{index}.jpg")
    return tmp_path / "my photos"


@pytest.mark.slow
def test_a_folder_of_photos(photos, command, tmp_path):
    # Steps for more than an epoch, so that every image is read.
    flags = ["--smoke", "--steps=3", "--validation_fraction=0.25"]
    flags += [f"--dataset={photos}", "--run_dir=run"]
    broken = photos / "train" / "green" / "3.jpg"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:200])
    message = failed(command, *flags)
    assert str(broken) in message and "cannot be decoded" in message
    assert "remove" in message

    # Mended, the same command runs.
    broken.write_bytes(whole)
    output = finished(command, *flags)
    assert "18 training, 6 validation and 15 test images of 3 classes" in output
    report = same_runs.report(tmp_path / "run")
    assert [row["name"] for row in report["per_class"]] == list(COLOURS)
    names = (tmp_path / "run" / "class_names.txt").read_text()
    assert names == "blue\ngreen\nred\n"
    # A command that can be copied, spaces and all.
    assert f"'--dataset={photos}'" in report["command"]


def test_a_single_class_is_refused(photos, command):
    for path in photos.glob("*/*"):
        if path.name != "red":
            shutil.rmtree(path)
    message = failed(command, f"--dataset={photos}", "--run_dir=run")
    assert "only one class, red" in message and "at least one other class" in message

"""The commands, run as a user runs them, at their smallest."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SMALL = ["--model", "ViT-Ti_16", "--image_size", "32", "--batch=2"]
QUICK = ["--peers=", "--rounds=2", "--repeats=1"]


def run(command, *flags, **environment):
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{command}", *map(str, flags)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def measured(command, folder, *flags):
    """Returns what a command printed and its JSON."""
    done = run(command, *flags, f"--out_dir={folder}")
    assert done.returncode == 0, done.stderr + done.stdout
    [path] = folder.glob("*.json")
    assert f"results {path}" in done.stdout
    return done.stdout, json.loads(path.read_text())


def error_of(done):
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.slow
def test_inference(tmp_path):
    stdout, result = measured("inference", tmp_path, *SMALL, *QUICK, "--ours=graph")
    assert "ratio to keras_vit" in stdout and "Matrix product: " in stdout
    [ours] = result["contenders"]
    assert ours["name"] == "keras_vit" and ours["ratio"] == 1
    assert [len(turn) for turn in ours["seconds"]] == [1, 1]
    assert 0 < ours["share_of_limit"] < 1
    assert ours["peak_bytes"] > ours["import_bytes"] > 1e8
    assert len(result["calibration"]["seconds"]) == 2
    assert isinstance(result["void"], bool)
    assert result["command"].startswith("python -m benchmarks.inference --model ViT-Ti")
    assert {"tensorflow", "keras-vit", "keras", "numpy"} <= set(result["versions"])
    assert result["machine"]["cpu"] and result["machine"]["cores"] >= 1
    assert result["date"]

    [path] = tmp_path.glob("*.json")
    assert path.name == "inference-ViT-Ti_16-32-b2.json"
    assert (tmp_path / path.stem / "keras_vit.log").exists()
    tables = run("tables", path)
    assert tables.returncode == 0, tables.stderr
    assert "| contender | ms p50 | p95 | best |" in tables.stdout
    assert "| keras_vit | " in tables.stdout and "Matrix product" in tables.stdout


@pytest.mark.soak
def test_training(tmp_path):
    flags = [*SMALL, *QUICK, "--micro_batches=2", "--remat"]
    stdout, result = measured("training", tmp_path, *flags)
    assert "import MB" in stdout
    [ours] = result["contenders"]
    assert ours["error"] is None and len(ours["seconds"]) == 2


@pytest.mark.soak
def test_scale(tmp_path):
    flags = ["--batches=1,2", "--image_sizes=32", "--models=ViT-Ti_16", "--repeats=1"]
    stdout, result = measured("scale", tmp_path, *SMALL, *flags)
    points = [record["name"] for record in result["points"]]
    assert points == ["ViT-Ti_16 32 b1", "ViT-Ti_16 32 b2"]
    assert "With batch, images/s grow as the power" in stdout
    assert "kilopixels: fewer than two points" in stdout
    [picture] = tmp_path.glob("*.png")
    assert f"picture {picture}" in stdout


@pytest.mark.soak
def test_profile(tmp_path):
    folder = tmp_path / "trace"
    flags = [*SMALL, "--peers=", "--ours=graph", f"--profile={folder}"]
    done = run("inference", *flags)
    assert done.returncode == 0, done.stderr
    assert f"tensorboard --logdir {folder}" in done.stdout
    assert list(folder.glob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.soak
def test_one_of_ours_that_fails_fails_the_command(tmp_path):
    # Without such a device, or without torch, the worker alone fails.
    flags = [*SMALL, *QUICK, "--ours=torch", f"--out_dir={tmp_path}"]
    done = run("inference", *flags, KERAS_TORCH_DEVICE="nowhere")
    assert "keras_vit torch failed" in error_of(done)
    [path] = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["contenders"][0]["error"]


@pytest.mark.soak
@pytest.mark.parametrize(
    "flags, message",
    [
        (["--model=ViT-B"], "Unknown model 'ViT-B': choose from ViT-Ti_16, "),
        (["--image_size=100"], "pass image_size=(96, 96)"),
        (["--peers=keras_hub"], "--peers has no 'keras_hub': name some of keras-hub,"),
        (["--model=R+ViT-Ti_16"], "no peer has the ResNet of a hybrid, pass --peers="),
        (["--ours=", "--peers="], "--ours and --peers are both empty"),
        (["--ours=torch", "--profile=trace"], "keras_vit torch runs on torch"),
    ],
)
def test_flags_that_do_not_fit_are_told_at_once(flags, message):
    assert message in error_of(run("inference", *flags))


def test_batch_that_cannot_be_cut():
    done = run("training", "--batch=3", "--micro_batches=2")
    assert "--batch=3 is no multiple of --micro_batches=2" in error_of(done)


def test_tables_of_something_else(tmp_path):
    path = tmp_path / "other.json"
    path.write_text("{}")
    assert f"{path} is not the JSON of a benchmark" in error_of(run("tables", path))
    assert "is not the JSON" in error_of(run("tables", tmp_path / "absent.json"))


@pytest.mark.parametrize("command", ["inference", "training", "scale"])
def test_help_has_the_command_and_its_flags(command):
    done = run(command, "--help")
    assert f"python -m benchmarks.{command}" in done.stdout
    for flag in ("--model:", "--image_size:", "--batch:", "--out_dir:", "--repeats:"):
        assert flag in done.stdout

"""The commands, run as a user runs them, at their smallest."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import small_variants

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


# As `python -m benchmarks.inference`, with one matrix to calibrate by.
WITH_ONE_MATRIX = """
import dataclasses
import runpy

from benchmarks import contest

contest.CALIBRATION = dataclasses.replace(
    contest.CALIBRATION,
    settings={"matrices": 1},
    operations=contest.CALIBRATION.operations / contest.MATRICES,
)
runpy.run_module("benchmarks.inference", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_inference(forks, tmp_path):
    flags = [*SMALL, *QUICK, "--ours=graph", f"--out_dir={tmp_path}"]
    code, stdout = forks.run(
        ["-c", WITH_ONE_MATRIX, *flags], ROOT, small_variants.ENVIRONMENT
    )
    assert code == 0, stdout
    [path] = tmp_path.glob("*.json")
    assert f"results {path}" in stdout
    result = json.loads(path.read_text())
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

    assert path.name == "inference-ViT-Ti_16-32-b2.json"
    assert (tmp_path / path.stem / "keras_vit.log").exists()


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.parametrize(
    "command, model, flags",
    [
        ("inference", "dinov2-reg4-s14/lvd142m", []),
        ("inference", "dinov2-s14/lvd142m", ["--output=features"]),
        ("training", "vit_base_patch16_siglip_224.webli", []),
    ],
)
def test_other_families(command, model, flags, tmp_path):
    for name in ("keras_hub", "timm"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed, which is measured")
    ours = ["--ours=graph"] if command == "inference" else []
    size = 28 if "14" in model else 32
    stdout, result = measured(
        command,
        tmp_path,
        f"--model={model}",
        f"--image_size={size}",
        "--batch=2",
        "--peers=keras-hub,torch",
        "--rounds=2",
        "--repeats=1",
        *ours,
        *flags,
    )
    assert [one["error"] for one in result["contenders"]] == [None] * 3
    assert result["reference"] == "keras-hub"


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


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("inference --model=ViT-B", "Unknown model 'ViT-B': choose from ViT-Ti_16, "),
        ("inference --image_size=100", "pass image_size=(96, 96)"),
        ("inference --peers=keras_hub", "--peers has no 'keras_hub': name some of ke"),
        (
            "inference --model=dinov2-s14/lvd142m --peers=vit-keras,torch",
            "vit-keras has no such model here, leave it out of --peers=vit-keras,torch",
        ),
        (
            "training --model=eva02_tiny_patch14_224",
            "keras-hub has no such model here, leave it out of --peers=keras-hub,torch",
        ),
        ("inference --output=tokens", "--output=tokens is of other families, and ViT-"),
        ("inference --model=R+ViT-Ti_16", "no peer has the ResNet of a hybrid, pass"),
        ("inference --ours= --peers=", "--ours and --peers are both empty"),
        ("inference --ours=torch --profile=trace", "keras_vit torch runs on torch"),
        ("training --batch=3 --micro_batches=2", "--batch=3 is no multiple of --mic"),
        ("startup --model=ViT-X", "Unknown model 'ViT-X': choose from ViT-Ti_16"),
        ("startup --model=R50+ViT-B_16", "R50+ViT-B_16: this benchmark takes no hyb"),
        ("startup --image_size=30", "expects images whose sides are multiples"),
        ("startup --peers=tfvit", "--peers has no 'tfvit': name some of keras-hub,"),
        ("input --batch=3 --count=4", "--count=4 is no multiple of --batch=3"),
        ("input --peers=opencv", "--peers has no 'opencv': name some of crop,"),
        ("input --overlap --model=ViT-X", "--model=ViT-X: choose one of"),
        ("input --images=/nowhere", "--images=/nowhere: there is no .jpg"),
    ],
)
def test_flags_that_do_not_fit_are_refused(command, message, forks, tmp_path):
    name, *given = command.split()
    argv = [f"benchmarks.{name}", *given, f"--out_dir={tmp_path}"]
    code, output = forks.run(argv, tmp_path, {})
    assert code == 1 and "Traceback" not in output
    assert re.search(f"(?m)^error: .*{re.escape(message)}", output), output
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("command", ["inference", "training", "scale"])
def test_help_has_the_command_and_its_flags(command):
    done = run(command, "--help")
    assert f"python -m benchmarks.{command}" in done.stdout
    for flag in ("--model:", "--image_size:", "--batch:", "--out_dir:", "--repeats:"):
        assert flag in done.stdout

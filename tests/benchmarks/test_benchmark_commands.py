"""The commands, run as a user runs them, at their smallest."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks import photos

ROOT = pathlib.Path(__file__).parents[2]
SMALL = ["--model=ViT-Ti_16", "--image_size=32", "--batch=2"]
QUICK = ["--peers=", "--rounds=2", "--repeats=1"]
READING = ["--count=4", "--batch=2", "--image_size=32", "--rounds=1", "--repeats=1"]


def run(command, *flags):
    """Returns what a command printed."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{command}", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def measured(command, folder, *flags):
    """Returns what a command printed and its JSON."""
    stdout = run(command, *flags, f"--out_dir={folder}")
    [path] = folder.glob("*.json")
    assert f"results {path}" in stdout
    return stdout, json.loads(path.read_text())


def skip_without(*names):
    """Skips; nothing is imported: TensorFlow and PyTorch crash in one process."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed, which is measured")


@pytest.mark.slow
def test_inference(tmp_path):
    flags = [*SMALL, *QUICK, "--ours=graph"]
    stdout, result = measured("inference", tmp_path, *flags)
    assert "ratio to keras_vit" in stdout and "Matrix product: " in stdout
    [ours] = result["contenders"]
    assert ours["name"] == "keras_vit" and ours["ratio"] == 1
    assert [len(turn) for turn in ours["seconds"]] == [1, 1]
    assert 0 < ours["share_of_limit"] < 1
    assert ours["peak_bytes"] > ours["import_bytes"] > 1e8
    assert len(result["calibration"]["seconds"]) == 2
    assert result["command"].startswith("python -m benchmarks.inference --model=ViT-Ti")
    assert {"tensorflow", "keras-vit", "keras", "numpy"} <= set(result["versions"])
    assert result["machine"]["cpu"] and result["machine"]["cores"] >= 1
    assert (tmp_path / "inference-ViT-Ti_16-32-b2" / "keras_vit.log").exists()


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
    skip_without("keras_hub", "timm")
    ours = ["--ours=graph"] if command == "inference" else []
    size = 28 if "14" in model else 32
    flags = [*flags, *ours, *QUICK[1:], f"--model={model}", f"--image_size={size}"]
    peers = "--peers=keras-hub,torch"
    _, result = measured(command, tmp_path, "--batch=2", peers, *flags)
    assert [one["error"] for one in result["contenders"]] == [None] * 3
    assert result["reference"] == "keras-hub"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("command", "flags", "told", "names"),
    [
        (
            "training",
            [*SMALL, *QUICK, "--micro_batches=2", "--remat"],
            "import MB",
            ["keras_vit"],
        ),
        (
            "scale",
            [*SMALL, "--batches=1,2", "--image_sizes=32", "--models=ViT-Ti_16"],
            "With batch, images/s grow as the power",
            ["ViT-Ti_16 32 b1", "ViT-Ti_16 32 b2"],
        ),
        (
            "startup",
            [*SMALL[:2], *QUICK[:2]],
            "build + load",
            ["keras_vit", "keras_vit weights="],
        ),
        (
            "input",
            [*READING, "--images=PHOTOS", "--ours=all", "--peers=crop,pillow"],
            "ratio to bare decode_and_crop_jpeg",
            None,
        ),
        (
            "input",
            [*READING, "--overlap", "--fit_steps=2"],
            "Training waited for batches",
            ["training", "training from memory"],
        ),
    ],
)
def test_what_is_measured(command, flags, told, names, tmp_path):
    (tmp_path / "photos").mkdir()
    photos.fill(tmp_path / "photos", 4)
    flags = [flag.replace("PHOTOS", str(tmp_path / "photos")) for flag in flags]
    stdout, result = measured(command, tmp_path, *flags)
    assert told in stdout
    records = result.get("contenders") or result["points"]
    assert all(record["error"] is None for record in records)
    assert names in (None, [record["name"] for record in records])
    if command == "scale":
        assert [*tmp_path.glob("*.png")]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("command", "flags", "events"),
    [
        ("inference", [*SMALL, "--peers=", "--ours=graph"], []),
        # The steps, and the reading beside them.
        ("input", READING, [b"step_num", b"Iterator::Prefetch", b"DecodeAndCropJpeg"]),
    ],
)
def test_a_trace(command, flags, events, tmp_path):
    stdout = run(command, *flags, f"--profile={tmp_path}")
    assert f"tensorboard --logdir {tmp_path}" in stdout
    [trace] = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    content = trace.read_bytes()
    assert all(event in content for event in events)


@pytest.mark.slow
def test_libraries_resize_grids_to_the_same_numbers(tmp_path):
    skip_without("scipy")
    peers = [*filter(importlib.util.find_spec, ("scipy", "tensorflow", "jax", "timm"))]
    flags = ["--grids=5x4-8x9,6x6-3x3", "--hidden_size=8", "--rounds=1"]
    stdout, result = measured("resize", tmp_path, *flags, f"--peers={','.join(peers)}")
    assert "5x4 to 8x9 bicubic" in stdout and "times as long as keras_vit." in stdout
    # Each grid by each of four methods.
    assert len(result["table"][1]) == 2 * 4
    ours, scipy, *others = result["contenders"]
    assert len(ours["tasks"]) == len(ours["median"]) == 8
    assert ours["difference"] == [0.0] * 8
    assert [task[2] for task in scipy["tasks"]] == ["released", "released"]
    # To the rounding of float32.
    assert max(scipy["difference"]) < 1e-6
    for record in others:
        assert record["error"] is None
        assert max(record["difference"]) < 1e-4, record["name"]


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
        ("resize --grids=14-24", "--grids has '14-24': write 14x14-20x36"),
        ("resize --grids=0x1-2x2", "--grids has '0x1-2x2'"),
        ("resize --peers=opencv", "--peers has no 'opencv': name some of scipy,"),
    ],
)
def test_flags_that_do_not_fit_are_refused(command, message, forks, tmp_path):
    name, *given = command.split()
    argv = [f"benchmarks.{name}", *given, f"--out_dir={tmp_path}"]
    code, output = forks.run(argv, tmp_path, {})
    assert code == 1 and "Traceback" not in output
    assert re.search(f"(?m)^error: .*{re.escape(message)}", output), output
    assert not list(tmp_path.glob("*.json"))

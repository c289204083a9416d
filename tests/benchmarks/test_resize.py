"""`python -m benchmarks.resize`, run as a user runs it."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def run(folder, *flags):
    command = [sys.executable, "-m", "benchmarks.resize", f"--out_dir={folder}"]
    return subprocess.run(
        [*command, *flags], cwd=ROOT, env=os.environ, capture_output=True, text=True
    )


def test_every_grid_and_method_has_a_row(tmp_path):
    pytest.importorskip("scipy")
    flags = ["--grids=4x3-7x5,3x3-2x4", "--hidden_size=8", "--rounds=3"]
    done = run(tmp_path, *flags, "--peers=scipy")
    assert done.returncode == 0, done.stderr
    assert "4x3 to 7x5 bicubic" in done.stdout
    assert "times as long as keras_vit." in done.stdout
    result = json.loads((tmp_path / "resize-8.json").read_text())
    assert len(result["table"][1]) == 2 * 4
    ours, scipy = result["contenders"]
    assert len(ours["tasks"]) == len(ours["median"]) == 8
    assert ours["difference"] == [0.0] * 8
    assert [task[2] for task in scipy["tasks"]] == ["released", "released"]
    assert all(seconds > 0 for seconds in scipy["median"])
    # The same numbers, to the rounding of float32.
    assert max(scipy["difference"]) < 1e-6


def test_ours_alone(tmp_path):
    done = run(tmp_path, "--grids=2x2-3x3", "--hidden_size=4", "--rounds=1", "--peers=")
    assert done.returncode == 0, done.stderr
    assert "resize-4" in done.stdout


@pytest.mark.slow
def test_the_other_libraries_give_the_same_numbers(tmp_path):
    for name in ("tensorflow", "jax", "timm"):
        # Not imported: TensorFlow and PyTorch crash in one process.
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    flags = ["--grids=5x4-8x9,6x6-3x3", "--hidden_size=8", "--rounds=1"]
    done = run(tmp_path, *flags, "--peers=tensorflow,jax,timm")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "resize-8.json").read_text())
    for record in result["contenders"]:
        assert record["error"] is None
        assert max(record["difference"]) < 1e-4, record["name"]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--grids=14-24", "--grids has '14-24': write 14x14-20x36"),
        ("--grids=0x1-2x2", "--grids has '0x1-2x2'"),
        ("--peers=opencv", "--peers has no 'opencv': name some of scipy,"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(tmp_path, flag, message):
    done = run(tmp_path, flag)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert f"error: {message}" in done.stderr

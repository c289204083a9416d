"""`python -m benchmarks.startup`, run as a user runs it, on the smallest model."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PHASES = ["framework", "library", "build", "load", "predict"]


def run(folder, *flags):
    command = [sys.executable, "-m", "benchmarks.startup", f"--out_dir={folder}"]
    small = ["--model=ViT-Ti_16", "--image_size=32"]
    return subprocess.run(
        [*command, *small, *flags],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
    )


@pytest.mark.soak
def test_ours_alone(tmp_path):
    done = run(tmp_path, "--peers=", "--rounds=2")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "startup-ViT-Ti_16-32.json").read_text())
    assert result["reference"] == "keras_vit"
    first, second = result["contenders"]
    assert [first["name"], second["name"]] == ["keras_vit", "keras_vit weights="]
    assert set(first["ratio"].values()) == {1.0}
    for record in (first, second):
        assert list(record["seconds"]) == PHASES
        assert all(len(rounds) == 2 for rounds in record["seconds"].values())
        both = record["median"]["build"] + record["median"]["load"]
        assert record["median"]["build + load"] == pytest.approx(both, rel=0.5)
        assert record["median"]["total"] > record["median"]["predict"]
    assert first["median"]["build"] > 0.01 > second["median"]["build"]
    # Its import alone, without what it is built on.
    assert first["median"]["library"] < 1.0 < first["median"]["framework"]
    if os.path.isdir("/proc/self"):
        assert 0 <= first["load_peak_bytes"] < 1e8
    assert 2e8 < first["all_peak_bytes"] < 2e9
    header, rows = result["table"]
    assert [len(row) for row in rows] == [len(header)] * 2
    assert "build + load" in done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("peer", ["keras-hub-model", "timm"])
def test_a_peer(tmp_path, peer):
    # Not imported: TensorFlow and PyTorch crash in one process.
    if importlib.util.find_spec(peer.removesuffix("-model").replace("-", "_")) is None:
        pytest.skip(f"{peer} is not installed")
    done = run(tmp_path, f"--peers={peer}", "--rounds=1")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "startup-ViT-Ti_16-32.json").read_text())
    *_, other = result["contenders"]
    assert result["reference"] == other["name"]
    assert other["error"] is None
    assert set(other["ratio"].values()) == {1.0}

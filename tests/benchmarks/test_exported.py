"""Exports beside peers': their images, their figures, and the command on a tiny net."""

import csv
import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from benchmarks import exported, exported_images, exported_jobs
from benchmarks.worker import load

ROOT = pathlib.Path(__file__).parents[2]


def run(folder, *flags):
    command = [sys.executable, "-m", "benchmarks.exported", f"--out_dir={folder}"]
    return subprocess.run(
        [*command, *map(str, flags)], cwd=ROOT, capture_output=True, text=True
    )


def photo(path, size):
    """Writes a photo whose red says the column and whose green says the row."""
    width, height = size
    pixels = np.zeros((height, width, 3), "uint8")
    pixels[..., 0] = np.linspace(0, 255, width)
    pixels[..., 1] = np.linspace(0, 255, height)[:, None]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    with_labels = [(f"{index}.png", index % 5) for index in range(6)]
    for name, _ in with_labels:
        photo(folder / name, (60, 50))
    with (folder / "labels.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("file", "label", "name")])
        csv.writer(stream).writerows((*row, "a, b") for row in with_labels)
    return folder


def test_photos_of_the_short_side_are_cut_not_resized(tmp_path):
    photo(tmp_path / "wide.png", (400, 256))
    [image] = exported_images.read([tmp_path / "wide.png"], (224, 224))
    whole = np.asarray(Image.open(tmp_path / "wide.png"))
    np.testing.assert_array_equal(image, whole[16:240, 88:312])


def test_photos_of_any_other_side_are_resized_alike(tmp_path):
    photo(tmp_path / "high.png", (512, 800))
    [image] = exported_images.read([tmp_path / "high.png"], (224, 224))
    # 224 of the 256 columns, and of the 400 rows, in the middle.
    assert image[:, 0, 0] == pytest.approx(255 * 16 / 256, abs=2)
    assert image[:, -1, 0] == pytest.approx(255 * 240 / 256, abs=2)
    assert image[0, :, 1] == pytest.approx(255 * 88 / 400, abs=2)
    assert exported_images.read([tmp_path / "high.png"], (16, 32)).shape[1:3] == (
        16,
        32,
    )


def test_photos_come_with_their_labels(photos):
    paths, labels = exported_images.labelled(photos)
    assert [path.name for path in paths] == [f"{index}.png" for index in range(6)]
    assert labels == [0, 1, 2, 3, 4, 0]
    paths, labels = exported_images.labelled(photos, 2)
    assert [path.name for path in paths] == ["0.png", "5.png"] and labels == [0, 0]


def test_photos_to_calibrate_with_are_others(photos, tmp_path):
    for index in range(5):
        photo(tmp_path / "others" / "a" / f"{index}.jpg", (32, 32))
    found = exported_images.found(tmp_path / "others", 3)
    assert [path.name for path in found] == ["0.jpg", "2.jpg", "4.jpg"]
    compared, _ = exported_images.labelled(photos, 2)
    with pytest.raises(ValueError, match="2 of its photos are compared too"):
        exported_images.found(tmp_path, 3, without=compared)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="there are no photos in it or below"):
        exported_images.found(tmp_path / "none", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no labels.csv in it"),
        ("name,label\nx,1\n", "is no table with the columns file and label"),
        ("file,label\nx.png,cat\n", "is no table with the columns file and label"),
        ("file,label\n", "has no photos"),
    ],
)
def test_tables_of_labels_that_are_none(tmp_path, text, message):
    if text is not None:
        (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        exported_images.labelled(tmp_path)


def test_answers_that_are_not_finite_are_wrong():
    found = np.array([[1.0, np.nan], [3.0, 1.0], [0.0, 2.0]])
    expected = np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 1.0]])
    result = exported.answered(found, expected, labels=[1, 0, 0])
    assert result["agreement"] == pytest.approx(2 / 3)
    assert result["accuracy"] == pytest.approx(1 / 3)
    assert result["largest_error"] == np.inf
    result = exported.answered(found[1:], expected[1:])
    assert result == {"agreement": 1.0, "largest_error": 1.0, "accuracy": None}
    assert exported.answered(found, None)["agreement"] is None


def test_ratios_are_to_ours_of_the_same_format():
    def record(exporter, form, *seconds):
        turns = [[turn] for turn in seconds]
        ours = exporter == "keras_vit"
        return {"ours": ours, "format": form, "seconds": turns, "ratio": "another"}

    ours, peer = record("keras_vit", "onnx", 1, 2), record("timm", "onnx", 2, 4)
    failed = {**record("keras_vit", "tflite"), "ratio": None}
    alone = record("keras-hub", "tflite", 1, 1)
    exported.add_ratios([ours, peer, failed, alone])
    assert (ours["ratio"], peer["ratio"], alone["ratio"]) == (1.0, 0.5, None)


def test_libraries_have_jobs_and_known_formats():
    for library in (exported_jobs.OURS, *exported_jobs.PEERS.values()):
        assert callable(load(library.job)) and callable(load(f"{library.job}_answers"))
        assert set(library.formats) <= set(exported.FORMATS)
    assert exported_jobs.OURS.formats == tuple(exported.FORMATS)


@pytest.mark.slow
def test_all_in_one_run(goldens, photos, tmp_path):
    # Not imported: TensorFlow and PyTorch crash in one process.
    for name in ("ai_edge_litert", "keras_hub", "onnxruntime", "onnxscript", "timm"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    quick = ["--formats=onnx,tflite", "--rounds=2", "--repeats=1", "--count=4"]
    weights = goldens / "token.npz"
    done = run(tmp_path, f"--weights={weights}", f"--photos={photos}", *quick)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "exported-token.json").read_text())
    records = {record["name"]: record for record in result["contenders"]}
    assert list(records) == [
        *(f"{name} float model" for name in ("keras_vit", "keras-hub", "timm")),
        *("keras_vit tflite", "keras-hub tflite"),
        *("keras_vit onnx", "keras-hub onnx", "timm onnx"),
    ]
    # keras-hub has the exact GELU: a GELU that ONNX has no operator for.
    failed = records.pop("keras-hub onnx")
    assert (
        failed["error"] and f"keras-hub onnx failed: {failed['error']}" in done.stdout
    )
    for name, record in records.items():
        assert record["error"] is None, name
        assert record["agreement"] == 1.0
        assert record["accuracy"] in (0, 0.25, 0.5)
        is_hub = name == "keras-hub float model"
        assert record["largest_error"] < (2e-3 if is_hub else 1e-4), name
        if "float model" not in name:
            assert 200_000 < record["bytes"] < 600_000
            assert record["ratio"] > 0
    assert records["keras_vit onnx"]["ratio"] == 1.0
    assert "Compared on 4 photos." in done.stdout
    header, rows = result["table"]
    assert [len(row) for row in rows] == [len(header)] * 8


@pytest.mark.soak
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--weights is missing"),
        (["--weights=absent.npz"], "absent.npz"),
        (["--formats=coreml"], "'coreml' is no format: choose from saved_model, "),
        (["--peers=tf"], "--peers has no 'tf': name some of keras-hub,timm, or all."),
        (
            ["--weights=w.npz", "--photos=PHOTOS"],
            "tflite-int8 needs other photos than those compared: pass --calibration",
        ),
        (
            ["--weights=GOLDEN", "--photos=PHOTOS", "--formats=onnx", "--image_size=9"],
            "expects images whose sides are multiples",
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_line(goldens, photos, tmp_path, flags, message):
    given = {"PHOTOS": str(photos), "GOLDEN": str(goldens / "token.npz")}
    for name, path in given.items():
        flags = [flag.replace(name, path) for flag in flags]
    done = run(tmp_path, *flags)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert message in line

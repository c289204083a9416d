"""Runs side by side, as a user compares them."""

import json

import keras
import numpy as np
import pytest
from in_process import run_command

import keras_vit
from benchmarks import model_flags
from train.common.errors import RunError
from train.compare import comparison
from train.reports import figures
from train.reports.report import write_report
from train.scoring.metrics import classification_summary, interval
from train.scoring.ranked import ranked

CONFIG = keras_vit.ViTConfig(
    hidden_size=16, num_layers=1, num_heads=2, mlp_dim=16, patch_size=8
)
NAMES = ("cat", "d|g", "emu", "fox")
# No image of a fox is in the test set.
LABELS = np.repeat([0, 1, 2], [10, 20, 30])


def vit():
    return keras_vit.VisionTransformer(CONFIG, image_size=(16, 24), classes=4)


def conv_net():
    images = keras.Input((24, 24, 3))
    features = keras.layers.Conv2D(4, 3, name="conv")(images)
    features = keras.layers.GlobalAveragePooling2D()(features)
    return keras.Model(images, keras.layers.Dense(4, name="head")(features))


@pytest.fixture(scope="module", autouse=True)
def unrendered():
    """Figures are not rendered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "save", lambda figure, path: path.touch())
        yield


def make_run(folder, mistakes, network=None, *, labels=LABELS, names=NAMES, **config):
    """Leaves what a run leaves that takes the first `mistakes` images for emus."""
    network = network or conv_net()
    guesses = np.where(np.arange(len(labels)) < mistakes, 2, labels)
    chances = np.eye(len(names))[guesses]
    write_report(
        folder,
        config={"model": "net", "dataset": "photos", "weights": None, **config},
        summary=classification_summary(ranked(labels, chances), names),
        results={
            "parameters": network.count_params(),
            **{"seconds": 12.5, "images_per_second": 640.0},
        },
    )
    network.save(folder / "model.keras")
    return folder


@pytest.fixture(scope="module")
def runs(unrendered, tmp_path_factory):
    """Two runs: four cats wrong, and all of them with five dogs."""
    folder = tmp_path_factory.mktemp("runs")
    first = make_run(folder / "vi_t", 4, vit(), model={"hidden_size": 32})
    return first, make_run(folder / "resnet", 15, weights="imagenet")


def test_a_page_and_its_numbers(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "_ROUND_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    run_command("compare", *runs, "--output=out/both.md", "--measure")
    output = capsys.readouterr().out
    assert "vi_t: vision_transformer, 93.33% accuracy" in output
    assert output.endswith("page out/both.md\n")
    found = json.loads((tmp_path / "out/both.json").read_text())
    assert (found["dataset"], found["test_examples"]) == ("photos", 60)
    first, second = found["runs"]
    assert (first["run"], second["run"]) == ("vi_t", "resnet")
    assert first["test_accuracy"] == 56 / 60 and second["test_accuracy"] == 45 / 60
    low, high = interval(45, 60)
    assert (second["test_accuracy_low"], second["test_accuracy_high"]) == (low, high)
    # Of 10 cats 6 found, none too many; of 34 called emu 30 are.
    assert first["per_class_f1"] == [
        pytest.approx(value) if value else value
        for value in (2 * 6 / 16, 1.0, 2 * 30 / 64, None)
    ]
    assert found["classes"][1] == {"name": "d|g", "examples": 20}
    assert first["test_macro_f1"] == pytest.approx((0.75 + 1 + 60 / 64) / 3)
    assert first["multiply_adds"] == model_flags.multiply_adds(CONFIG, (16, 24), 4)
    assert second["multiply_adds"] == 22 * 22 * (3 * 3 * 3 * 4) + 4 * 4
    assert first["image_size"] == [16, 24] and second["weights"] == "imagenet"
    assert first["training_seconds"] == 12.5
    assert first["training_images_per_second"] == 640
    assert first["measured_images_per_second"] > 0

    page = (tmp_path / "out/both.md").read_text()
    lines = page.splitlines()
    assert "|  | vi_t | resnet |" in lines
    assert (
        "| Accuracy | 93.33% (84.07% to 97.38%) | 75.00% (62.77% to 84.22%) |" in lines
    )
    assert "| Weights | random | imagenet |" in lines
    assert f"| Parameters | {vit().count_params():,} | 132 |" in lines
    assert any(line.startswith("| Images/s now | ") for line in lines)
    # The greatest difference first, and nothing of foxes, of which there are none.
    cat, dog = (line for line in lines if line.startswith(("| cat", "| d")))
    assert cat == "| cat | 75.00% | 0.00% | 10 |"
    assert dog.startswith("| d\\|g | 100.00%")
    assert "fox" not in page
    assert f"compare {runs[0]} {runs[1]} --output=out/both.md --measure" in page


def test_a_run_of_the_same_name_whose_arithmetic_is_unknown(runs, tmp_path):
    images = keras.Input((8, 8, 3))
    features = keras.layers.SeparableConv2D(4, 3)(images)
    features = keras.layers.GlobalAveragePooling2D()(features)
    model = keras.Model(images, keras.layers.Dense(4)(features))
    other = make_run(tmp_path / "vi_t", 0, model)
    found = comparison.compare([runs[0], other], output=tmp_path / "compare.md")
    assert [row["run"] for row in found["runs"]] == [str(runs[0]), str(other)]
    assert found["runs"][1]["multiply_adds"] is None
    page = (tmp_path / "compare.md").read_text()
    count = model_flags.multiply_adds(CONFIG, (16, 24), 4)
    assert f"| Multiply-adds | {count:,} | - |" in page
    # Nothing was measured.
    assert found["runs"][0]["measured_images_per_second"] is None
    assert "Images/s now" not in page and "```sh" not in page


def test_many_classes(tmp_path):
    names = [f"class {index:03d}" for index in range(150)]
    many = {"names": names, "labels": np.arange(150)}
    folders = [make_run(tmp_path / str(n), n, **many) for n in (0, 40)]
    comparison.compare(folders, output=tmp_path / "compare.md")
    page = (tmp_path / "compare.md").read_text()
    assert page.count("\n| class ") == 100 and "\n| class 039 |" in page
    assert "100 of 150 classes; the .json has all. Greatest differences" in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "digits"}, "their data sets are photos and digits. Give runs of"),
        ({"labels": LABELS[1:]}, "class 1 of their tests is 'cat' with 10 images and "),
        ({"names": ("cat", "dog", "emu", "fox")}, "'d|g' with 20 images and 'dog' wi"),
        ({"names": NAMES[:3]}, "class 4 of their tests is 'fox' with 0 images and non"),
        (None, "There is no run directory "),
        ("{}", "report.json has no test_accuracy, test_accuracy_high"),
    ],
)
def test_runs_that_cannot_be_compared(runs, tmp_path, changes, message):
    other = tmp_path / "other"
    if changes is not None:
        make_run(other, 0, **(changes if isinstance(changes, dict) else {}))
    if isinstance(changes, str):
        (other / "report.json").write_text(changes)
    with pytest.raises(RunError) as raised:
        comparison.compare([runs[0], other], output=tmp_path / "compare.md")
    assert message in str(raised.value)
    assert not (tmp_path / "compare.md").exists()


def test_arguments_that_are_no_runs_or_no_page(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, output, message in (
        ([runs[0], runs[0]], "compare.md", "vi_t is given twice"),
        (runs, "compare.json", "an --output that ends in .md"),
        (["~/none", "~/other"], "~/compare.md", f"{tmp_path}/none"),
    ):
        with pytest.raises(RunError, match=message):
            comparison.compare(given, output=output)

"""Runs side by side, as a user compares them."""

import json
import re
import shutil

import chromium
import keras
import numpy as np
import PIL.Image
import pytest
from in_process import run_command

import keras_vit
from benchmarks import model_flags
from train.common.errors import RunError
from train.compare import answers, comparison
from train.data import sources
from train.reports import figures
from train.reports.answers import answers_of
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


def make_run(
    folder, mistakes, network=None, *, labels=LABELS, names=NAMES, split=None, **config
):
    """Leaves what a run leaves that takes the first `mistakes` images for emus.

    With a split it also leaves the answer to each image.
    """
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
        answers=split and answers_of(split, ranked(labels, chances), names),
    )
    network.save(folder / "model.keras")
    if split:
        (folder / "config.json").write_text(json.dumps(config))
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
    run_command("compare", *runs, "--output=out/both.html", "--measure")
    output = capsys.readouterr().out
    assert "vi_t: vision_transformer, 93.33% accuracy" in output
    assert output.endswith("page out/both.html\n")
    found = json.loads((tmp_path / "out/both.json").read_text())
    assert (found["dataset"], found["test_examples"]) == ("photos", 60)
    first, second = found["runs"]
    assert (first["run"], second["run"]) == ("vi_t", "resnet")
    assert first["test_accuracy"] == 56 / 60 and second["test_accuracy"] == 45 / 60
    low, high = interval(45, 60)
    assert (second["test_accuracy_low"], second["test_accuracy_high"]) == (low, high)
    # 6 of 10 cats are found, none too many; 30 of 34 called emu are.
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
    assert lines[0] == "# vi_t and resnet on photos"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("both.html", "both.md", "both.json")
    }
    assert "|  | vi_t | resnet |" in lines
    assert "| Accuracy | 93.33% | 75.00% |" in lines
    assert "| 95% interval | 84.07% to 97.38% | 62.77% to 84.22% |" in lines
    assert "| Weights | random | imagenet |" in lines
    count = vit().count_params()
    assert f"| Parameters | {count:,} | 132 ({132 / count:.2g}x) |" in lines
    assert any(line.startswith("| Images/s now | ") for line in lines)
    # The greatest difference first, and nothing of foxes, of which there are none.
    cat, dog = (line for line in lines if line.startswith(("| cat", "| d")))
    assert cat == "| cat | 75.00% | 0.00% | 10 |"
    assert dog.startswith("| d\\|g | 100.00%")
    assert "fox" not in page
    assert f"compare {runs[0]} {runs[1]} --output=out/both.html --measure" in page


def test_a_run_of_the_same_name_whose_arithmetic_is_unknown(runs, tmp_path):
    images = keras.Input((8, 8, 3))
    features = keras.layers.SeparableConv2D(4, 3)(images)
    features = keras.layers.GlobalAveragePooling2D()(features)
    model = keras.Model(images, keras.layers.Dense(4)(features))
    other = make_run(tmp_path / "vi_t", 0, model)
    found = comparison.compare([runs[0], other], output=tmp_path / "compare.md")
    names = [row["run"] for row in found["runs"]]
    assert names == [f"{folder.parent.name}/vi_t" for folder in (runs[0], other)]
    assert found["runs"][1]["multiply_adds"] is None
    page = (tmp_path / "compare.md").read_text()
    count = model_flags.multiply_adds(CONFIG, (16, 24), 4)
    assert f"| Multiply-adds | {count:,} | - |" in page
    # Nothing was measured.
    assert found["runs"][0]["measured_images_per_second"] is None
    assert "Images/s now" not in page and "```sh" not in page


@pytest.fixture
def photos(tmp_path):
    """A folder of photos, 12 of each class for the test, and their split."""
    folder = tmp_path / "photos"
    for part, count in (("train", 1), ("test", 12)):
        for label, name in enumerate(("cat", "d&g", "emu")):
            place = folder / part / name
            place.mkdir(parents=True)
            for number in range(count):
                color = (80 * label, 20 * number, 0)
                PIL.Image.new("RGB", (40, 30), color).save(place / f"{number:02}.png")
    return folder, sources.load(str(folder)).test


@pytest.fixture
def photo_runs(photos, tmp_path):
    """Runs that take five and fourteen of the photos, cats and dogs, for emus."""
    folder, split = photos
    settings = {
        **{"labels": split.labels(), "names": ("cat", "d&g", "emu"), "split": split},
        **{"dataset": str(folder), "validation_fraction": 0},
    }
    return [
        make_run(tmp_path / "runs" / name, mistakes, **settings)
        for name, mistakes in (("vit", 5), ("resnet", 14))
    ]


def compared(runs, folder, **options):
    """What a comparison returns, its page and its Markdown."""
    found = comparison.compare(runs, output=folder / "compare.html", **options)
    return found, *(
        (folder / f"compare.{suffix}").read_text("utf-8") for suffix in ("html", "md")
    )


def test_the_photos_on_which_runs_differ(photo_runs, tmp_path):
    found, page, text = compared(photo_runs, tmp_path)
    (pair,) = found["pairs"]
    assert (pair["first"], pair["second"]) == ("vit", "resnet")
    assert (pair["first_only"], pair["second_only"]) == (9, 0)
    assert pair["gain"] == pytest.approx(-9 / 36)
    assert pair["p"] == pytest.approx(2 * 0.5**9)
    assert len(pair["images"]) == 9 and pair["both_wrong_differently"] == 0
    first = {"file": "cat/05.png", "truth": "cat"}
    assert pair["images"][0] == first | {"answers": {"vit": "cat", "resnet": "emu"}}
    assert page.count("<img ") == page.count('src="data:image/jpeg') == 9
    assert re.findall("<h3>(.*?)</h3>", page) == ["Only vit is right"]
    assert "| cat/05.png | cat | cat (100.00%) | emu (100.00%) |" in text
    for both in (page.replace("&#39;", "'"), text):
        assert (
            "resnet beside vit: -25.0 points of accuracy (95% interval -38.2 points to "
            "-9.2 points). Only resnet is right on 0 images, only vit on 9. McNemar's "
            "test: p = 0.0039, so vit is better."
        ) in both
        assert str(tmp_path) not in both


def test_runs_that_give_the_same_answers(photos, photo_runs, tmp_path):
    shutil.copytree(photo_runs[0], tmp_path / "runs/again")
    runs = [photo_runs[0], tmp_path / "runs/again", photo_runs[1]]
    found, page, _ = compared(runs, tmp_path)
    assert [pair["p"] for pair in found["pairs"]] == [1, pytest.approx(2 * 0.5**9)]
    assert "vit and again give every image the same answer." in page
    assert "again beside vit: both are right on the same images. The 95% int" in page
    assert "each test stands for itself" in page
    (tmp_path / "two").mkdir()
    assert "No difference" in compared(runs[:2], tmp_path / "two")[1]


def test_photos_that_were_moved_are_named_without_pictures(photo_runs, tmp_path):
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    found, page, text = compared(photo_runs, tmp_path)
    assert found["pairs"][0]["first_only"] == 9
    for both in (page, text):
        assert "The photos are not shown: " in both
    assert "cat/05.png" in text and "<img " not in page


def test_answers_that_are_missing_damaged_or_of_other_files(photo_runs, tmp_path):
    file = photo_runs[1] / "mistakes.csv"
    for change, told in (
        (lambda: file.write_text("file,truth\na,b\n"), "mistakes.csv is damaged"),
        (lambda: file.unlink(), "mistakes.csv is missing: give the command again"),
        (
            lambda: file.write_text(
                (photo_runs[0] / "mistakes.csv").read_text().replace("00.png", "0.png")
            ),
            "6 test images of vit and resnet have other names, such as cat/0.png.",
        ),
    ):
        change()
        found, page, _ = compared(photo_runs, tmp_path)
        assert told in found["why_no_pairs"] and told in page and not found["pairs"]
        assert "only the intervals of the single runs are known" in page


def test_images_are_named_below_their_folder():
    names = ["/a/b/cat/1.png", "/a/b/dog/1.png", "/a/b/dog/1.png"]
    expected = [("cat/1.png", "x", 0), ("dog/1.png", "x", 0), ("dog/1.png", "x", 1)]
    assert answers.images(names, "xxx") == expected
    moved = [name.removeprefix("/a/") for name in names]
    assert answers.images(moved, "xxx") == expected
    assert answers.images(["example 3 of digits test"], "x") == [
        ("example 3 of digits test", "x", 0)
    ]
    assert answers.images([], []) == []


def test_run_names_are_the_shortest_ends_of_their_paths(tmp_path):
    paths = [tmp_path / place for place in ("a/b/run", "a/c/run", "d/b/run", "other")]
    assert [*comparison._names(paths)] == ["a/b/run", "c/run", "d/b/run", "other"]


@pytest.mark.slow
def test_the_page_in_a_browser(photo_runs, tmp_path):
    compared(photo_runs, tmp_path)
    assert chromium.cut_off(tmp_path / "compare.html", tmp_path) == []


def test_many_classes(tmp_path):
    names = [f"class {index:03d}" for index in range(150)]
    many = {"names": names, "labels": np.arange(150)}
    folders = [make_run(tmp_path / str(n), n, **many) for n in (0, 40)]
    comparison.compare(folders, output=tmp_path / "compare.md")
    page = (tmp_path / "compare.md").read_text()
    assert page.count("\n| class ") == 100 and "\n| class 039 |" in page
    assert "100 of 150 classes; the .json has all." in page
    assert "Greatest differences first." in page


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


def test_runs_of_other_corrections_are_compared_by_an_evaluation(runs, tmp_path):
    other = make_run(tmp_path / "other", 0, labels=LABELS[9:])
    (other / "corrections.json").write_text("{}")
    for pair in ([runs[0], other], [other, runs[0]]):
        with pytest.raises(RunError) as raised:
            comparison.compare(pair, output=tmp_path / "compare.md")
        file, told = other / "corrections.json", str(raised.value)
        assert "'cat' with 1 image" in told
        assert f"evaluate {runs[0]} --without={file} --relabel={file}" in told


def test_arguments_that_are_no_runs_or_no_page(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, output, message in (
        ([runs[0], runs[0]], "compare.md", "vi_t is given twice"),
        (runs, "compare.json", "an --output that ends in .html"),
        (["~/none", "~/other"], "~/compare.md", f"{tmp_path}/none"),
    ):
        with pytest.raises(RunError, match=message):
            comparison.compare(given, output=output)

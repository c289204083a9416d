import json
import os
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from train.engine.metrics import MetricLog
from train.recipes import for_dataset
from train.reports import figures as drawing
from train.reports import markdown
from train.reports.classification import (
    calibration,
    classification_summary,
    interval,
)
from train.reports.figures import draw_batch, write_predictions_picture
from train.reports.ranked import ranked
from train.reports.report import write_report
from train.run.task import about_loss


def random_split(classes, examples, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, examples)
    probabilities = rng.random((examples, classes)).astype(np.float32)
    probabilities[np.arange(examples), labels] += 0.7
    return labels, probabilities / probabilities.sum(axis=1, keepdims=True)


def names_of(classes):
    return [f"class_{index}" for index in range(classes)]


def training_log(path, steps=60):
    log = MetricLog(path)
    for step in range(1, steps + 1):
        log.append(step, loss=2 / step, accuracy=1 - 1 / step, learning_rate=0.03)
        if step % 20 == 0:
            log.append(step, val_loss=2.5 / step, val_accuracy=1 - 1.1 / step)
    return log


def written(run_dir, classes=10, examples=200, **changes):
    arguments = {
        "config": {"model": "ViT-B_16", "dataset": "digits", "learning_rate": 0.03},
        "summary": classification_summary(
            ranked(*random_split(classes, examples)), names_of(classes)
        ),
        "results": {"train_examples": 1437, "steps": 60, "seconds": 12.5},
        "history": training_log(run_dir / "metrics.jsonl"),
    }
    write_report(run_dir, **(arguments | changes))
    return json.loads((run_dir / "report.json").read_text()), (
        run_dir / "report.md"
    ).read_text()


def test_templates_escape_what_they_print(tmp_path):
    template = tmp_path / "page.md.jinja"
    template.write_text("{{ text }} {{ block }} {{ table(('a|b',), [(text,)]) }}\n")
    page = markdown.render(template, text="<b>\x1b *", block=markdown.Block("<b>"))
    assert page.startswith(r"\<b\>\\x1b \* <b> | a\|b |")
    assert page.endswith("| \\<b\\>\\\\x1b \\* |\n")
    template.write_text("{{ missing }}")
    with pytest.raises(Exception, match="'missing' is undefined"):
        markdown.render(template)


@pytest.fixture
def rendered():
    """Asks `figures` to write PNG files with something in them."""


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    """Leaves the figures of a report empty, unless a test asks for them."""
    if not {"figures", "rendered"} & {*request.fixturenames}:
        for name in ("confusion_matrix", "learning_curve", "reliability"):
            monkeypatch.setattr(
                f"train.reports.figures.draw_{name}",
                lambda path, *settings: path.touch(),
            )


@pytest.fixture
def figures(request, monkeypatch):
    """Keeps the figures that the module saves, in files that stay empty."""
    kept, save = [], drawing.save
    is_rendered = "rendered" in request.fixturenames

    def keep(figure, path):
        save(figure, path) if is_rendered else pathlib.Path(path).touch()
        FigureCanvasAgg(figure)
        kept.append(figure)

    monkeypatch.setattr(drawing, "save", keep)
    return kept


def test_summary_by_hand():
    # Rows are true, columns predicted: [[2, 1, 0], [0, 1, 0], [1, 1, 2]].
    labels = np.array([0, 0, 0, 1, 2, 2, 2, 2])
    predicted = [0, 0, 1, 1, 0, 1, 2, 2]
    summary = classification_summary(
        ranked(labels, np.eye(3)[predicted]), ["a", "b", "c"]
    )
    np.testing.assert_array_equal(
        summary["confusion_matrix"].toarray(), [[2, 1, 0], [0, 1, 0], [1, 1, 2]]
    )
    assert summary["accuracy"] == 5 / 8 and summary["examples"] == 8
    a, b, c = summary["per_class"]
    assert (a["name"], a["examples"], a["predictions"]) == ("a", 3, 3)
    assert (b["examples"], b["predictions"]) == (1, 3)
    assert [a["precision"], a["recall"], a["f1"]] == pytest.approx([2 / 3] * 3)
    assert [b["precision"], b["recall"], b["f1"]] == pytest.approx([1 / 3, 1, 1 / 2])
    assert [c["precision"], c["recall"], c["f1"]] == pytest.approx([1, 1 / 2, 2 / 3])
    assert summary["macro"] == pytest.approx(
        {"precision": 2 / 3, "recall": 13 / 18, "f1": 11 / 18}
    )
    assert summary["confusions"] == [
        {"true": "a", "predicted": "b", "count": 1, "share": pytest.approx(1 / 3)},
        {"true": "c", "predicted": "a", "count": 1, "share": 0.25},
        {"true": "c", "predicted": "b", "count": 1, "share": 0.25},
    ]
    assert summary["absent_classes"] == [] and "top5_accuracy" not in summary


@pytest.mark.parametrize("classes", [2, 5, 6, 100])
def test_summary_against_numpy(classes):
    labels, probabilities = random_split(classes, 500, seed=classes)
    summary = classification_summary(ranked(labels, probabilities), names_of(classes))
    predicted = probabilities.argmax(axis=1)
    matrix = np.zeros((classes, classes), int)
    np.add.at(matrix, (labels, predicted), 1)
    np.testing.assert_array_equal(summary["confusion_matrix"].toarray(), matrix)
    assert summary["accuracy"] == pytest.approx(np.trace(matrix) / 500)
    for index, row in enumerate(summary["per_class"]):
        hits, true, guessed = (
            matrix[index, index],
            *(matrix.sum(axis=axis)[index] for axis in (1, 0)),
        )
        assert row["precision"] == pytest.approx(hits / max(guessed, 1))
        assert row["recall"] == pytest.approx(hits / max(true, 1))
        assert row["f1"] == pytest.approx(2 * hits / max(true + guessed, 1))
        assert (row["examples"], row["predictions"]) == (true, guessed)
    assert ("top5_accuracy" in summary) == (classes > 5)
    if classes > 5:
        first = np.argsort(-probabilities, axis=1, kind="stable")[:, :5]
        among = (first == labels[:, None]).any(axis=1)
        assert summary["top5_accuracy"] == pytest.approx(among.mean())
    np.fill_diagonal(matrix, 0)
    counts = [row["count"] for row in summary["confusions"]]
    assert counts == sorted(matrix[matrix > 0], reverse=True)[:10]


def test_top5_of_tied_probabilities_agrees_with_the_guess():
    labels = np.arange(8)
    summary = classification_summary(
        ranked(labels, np.full((8, 8), 1 / 8)), names_of(8)
    )
    assert summary["accuracy"] == 1 / 8 and summary["top5_accuracy"] == 5 / 8


def test_absent_classes_are_named_and_left_out_of_the_averages():
    # "b" has no examples but a prediction, "d" has neither.
    predicted = np.eye(4)[[0, 1, 2, 2]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = classification_summary(
            ranked(np.array([0, 0, 2, 2]), predicted), list("abcd")
        )
    assert summary["absent_classes"] == ["b", "d"]
    assert summary["macro"] == pytest.approx(
        {"precision": 1, "recall": 3 / 4, "f1": (2 / 3 + 1) / 2}
    )
    for index in (1, 3):
        row = summary["per_class"][index]
        assert row["examples"] == row["precision"] == row["recall"] == row["f1"] == 0
    assert summary["per_class"][1]["predictions"] == 1


def test_interval_by_the_formula():
    for correct, examples in ((0, 5), (5, 5), (1, 3), (7672, 10_000)):
        share, z = correct / examples, 1.959963984540054
        centre = share + z**2 / (2 * examples)
        spread = z * np.sqrt(share * (1 - share) / examples + (z / (2 * examples)) ** 2)
        expected = (centre + np.array([-spread, spread])) / (1 + z**2 / examples)
        np.testing.assert_allclose(interval(correct, examples), expected, atol=1e-12)


def test_calibration_by_hand():
    # Confidence 0.2 is in (2/15, 3/15], the two others in bins of their own.
    confidence = np.array([0.9, 0.9, 0.9, 0.6, 0.2])
    probabilities = np.full((5, 10), 0.01)
    probabilities[np.arange(5), 3] = confidence
    labels = np.array([3, 3, 0, 3, 0])
    found = calibration(ranked(labels, probabilities))
    assert found["error"] == pytest.approx(
        (3 * abs(2 / 3 - 0.9) + abs(1 - 0.6) + abs(0 - 0.2)) / 5
    )
    filled = [row for row in found["bins"] if row["examples"]]
    assert len(found["bins"]) == 15 and [row["examples"] for row in filled] == [1, 1, 3]
    assert filled[0]["high"] == pytest.approx(0.2)
    assert filled[2]["confidence"] == pytest.approx(0.9)
    assert filled[2]["accuracy"] == pytest.approx(2 / 3)
    assert found["bins"][0]["accuracy"] is None


def test_the_confident_and_right_are_calibrated():
    found = calibration(ranked(np.arange(4), np.eye(4)))
    assert found["error"] == 0 and found["bins"][-1]["examples"] == 4


@pytest.mark.parametrize("classes", [2, 100, 1000])
def test_report_of_many_sizes(tmp_path, rendered, classes):
    data, page = written(tmp_path, classes)
    assert len(data["per_class"]) == classes
    assert ("test_top5_accuracy" in data) == (classes > 5)
    assert f"on {data['test_examples']:,} test examples" in page
    for name in ("learning_curve", "confusion_matrix"):
        with Image.open(tmp_path / f"{name}.png") as picture:
            picture.load()
            assert picture.format == "PNG" and min(picture.size) >= 400
            assert max(picture.size) <= 2000
        assert f"({name}.png)" in page
    tested = sum(row["examples"] > 0 for row in data["per_class"])
    table = page.split("## Classes")[1].split("##")[0]
    assert table.count("\n| class_") == min(tested, 100)
    assert ("worst of" in table) == (tested > 100)
    assert ("Without examples" in table) == (tested < classes)
    assert sorted(os.listdir(tmp_path)) == [
        "confusion_matrix.png",
        "learning_curve.png",
        "metrics.jsonl",
        "report.html",
        "report.json",
        "report.md",
    ]


def test_report_json_is_flat_and_complete(tmp_path):
    command = "python -m train.finetune --dataset=digits"
    config = {"run_dir": tmp_path, "size": (16, 16), "model": {"num_layers": 4}}
    results = {"steps": 60, "seconds": 0.5, "command": command}
    data, page = written(tmp_path, config=config, results=results)
    summary = classification_summary(ranked(*random_split(10, 200)), names_of(10))
    assert data["config"] == {
        "run_dir": str(tmp_path),
        "size": [16, 16],
        "model": {"num_layers": 4},
    }
    assert data["test_accuracy"] == summary["accuracy"]
    assert data["test_top5_accuracy"] == summary["top5_accuracy"]
    assert data["test_examples"] == 200 and data["absent_classes"] == []
    assert data["test_macro_f1"] == summary["macro"]["f1"]
    assert data["steps"] == 60 and data["seconds"] == 0.5
    assert data["per_class"] == summary["per_class"]
    assert data["confusions"] == summary["confusions"]
    assert data["command"] == command
    assert f"```sh\n{command}\n```" in page
    assert "| model.num_layers | 4 |" in page
    assert page.startswith(f"# {markdown.escape(tmp_path.name)}\n")


def test_report_md_reads_well(tmp_path):
    (tmp_path / "attention maps.png").write_bytes(b"")
    (tmp_path / ".half-written.png").write_bytes(b"")
    (tmp_path / "predictions.png").write_bytes(b"")
    data, page = written(tmp_path)
    assert page.startswith("# ViT-B_16 on digits\n\n**")
    assert "after 60 steps in 12.5 seconds." in page
    assert "| train_examples | 1,437 |" in page
    assert f"| test_accuracy | {data['test_accuracy']:.2%} |" in page
    assert "half" not in page
    assert "![predictions](predictions.png)" in page
    assert "![attention maps](attention%20maps.png)" in page
    table = page.split("## Classes")[1].split("##")[0].splitlines()
    f1 = [float(line.split("|")[4].strip(" %")) for line in table if "| class_" in line]
    assert len(f1) == 10 and f1 == sorted(f1)
    first = data["confusions"][0]
    assert f"| {first['true']} | {first['predicted']} | {first['count']} |" in page


def test_a_perfect_model_without_history(tmp_path, figures):
    summary = classification_summary(ranked(np.arange(40), np.eye(40)), names_of(40))
    history = MetricLog(tmp_path / "metrics.jsonl")
    data, page = written(tmp_path, summary=summary, history=MetricLog(tmp_path / "x"))
    assert data["confusions"] == [] and history.path.exists()
    assert "No example was taken for another class." in page
    assert "learning_curve" not in page
    assert (tmp_path / "confusion_matrix.png").exists()


def test_a_report_of_another_split_with_calibration(tmp_path, figures):
    labels, probabilities = random_split(10, 200)
    summary = classification_summary(ranked(labels, probabilities), names_of(10))
    summary["calibration"] = found = calibration(ranked(labels, probabilities))
    data, page = written(tmp_path, summary=summary, history=None, split="validation")
    assert "200 validation examples" in page and "learning_curve" not in page
    assert "test_accuracy" not in data
    assert data["validation_accuracy"] == summary["accuracy"]
    low, high = data["validation_accuracy_low"], data["validation_accuracy_high"]
    assert (low, high) == interval(round(200 * summary["accuracy"]), 200)
    assert data["validation_calibration_error"] == found["error"]
    assert data["calibration"] == found["bins"]
    assert f"calibration error is {found['error']:.2%}" in page
    assert page.count("![reliability](reliability.png)") == 1
    upper, lower = figures[1].axes
    heights = [bar.get_height() for bar in upper.patches]
    assert heights == [row["accuracy"] or 0 for row in found["bins"]]
    assert sum(bar.get_height() for bar in lower.patches) == 200


NAMES = [
    "a|b",
    "_init_",
    "__x__",
    "$x$",
    "naïve épée",
    "*bold*",
    "<b>",
    "a\nb",
    "",
    "`",
]


def test_names_that_mean_something_elsewhere(tmp_path, figures):
    labels, probabilities = random_split(10, 200)
    summary = classification_summary(ranked(labels, probabilities), NAMES)
    data, page = written(tmp_path, summary=summary)
    assert [row["name"] for row in data["per_class"]] == NAMES
    assert "épée" in (tmp_path / "report.json").read_text()
    for cell in (r"a\|b", r"\_init\_", r"\_\_x\_\_", r"\$x\$", "naïve épée", "a b"):
        assert f"\n| {cell} | " in page
    assert r"\*bold\*" in page and r"\<b\>" in page and r"\`" in page
    for line in page.splitlines():
        if line.startswith("|"):
            assert line.replace(r"\|", "").count("|") in (3, 5, 6)
    images = np.zeros((10, 16, 16, 3), np.float32)
    write_predictions_picture(
        tmp_path / "p.png", images, labels[:10], probabilities[:10], NAMES, "$ $x_$"
    )
    assert figures[0].axes[0].get_xticklabels()[3].get_text() == "$x$"


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path):
    written(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = {
        "config": {},
        "summary": classification_summary(
            ranked(np.array([0, 1]), np.eye(2)), ["a", "b"]
        ),
        "results": {},
        "history": MetricLog(tmp_path / "metrics.jsonl"),
    }
    for change, error, message in (
        ({"results": {"seconds": np.inf}}, ValueError, "not JSON compliant"),
        ({"config": {"a": {"b": [1, np.nan]}}}, ValueError, "not JSON compliant"),
        ({"config": {"loss": print}}, TypeError, "not builtin_function"),
    ):
        with pytest.raises(error, match=message):
            write_report(tmp_path, **(arguments | change))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def texts_of(figure):
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    found = []
    for axes in figure.axes:
        artists = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        if axes.axison:
            for axis, at in ((axes.xaxis, 0), (axes.yaxis, 1)):
                low, high = sorted(axis.get_view_interval())
                artists += [
                    text
                    for text in axis.get_ticklabels()
                    if low <= text.get_position()[at] <= high
                ]
            artists += axes.get_legend().get_texts() if axes.get_legend() else []
        found += [
            (text.get_text(), text.get_window_extent(renderer))
            for text in artists
            if text.get_visible() and text.get_text()
        ]
    return found


@pytest.mark.parametrize("classes", [2, 30, 100])
def test_no_text_overlaps_or_is_cut(tmp_path, figures, classes):
    names = [f"{index} a rather long name of a class" for index in range(classes)]
    labels, probabilities = random_split(classes, 2000)
    summary = classification_summary(ranked(labels, probabilities), names)
    history = None
    if classes == 2:
        # The same whatever the number of classes.
        summary["calibration"] = calibration(ranked(labels, probabilities))
        history = training_log(tmp_path / "metrics.jsonl")
    written(tmp_path, summary=summary, history=history)
    images = np.zeros((12, 16, 16, 3), np.float32)
    path = tmp_path / "predictions.png"
    write_predictions_picture(
        path, images, labels[:12], probabilities[:12], names, "Test"
    )
    assert len(figures) == (4 if classes == 2 else 2)
    for figure in figures:
        found = texts_of(figure)
        assert found
        texts, boxes = zip(*found, strict=True)
        for text, box in found:
            assert box.x0 >= 0 and box.y0 >= 0, text
            assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
        # A pixel of padding belongs to no letter.
        extents = np.array([box.padded(-1).extents for box in boxes])
        low, high = np.sort([extents[:, :2], extents[:, 2:]], axis=0)
        overlaps = ((low[:, None] <= high) & (low <= high[:, None])).all(axis=-1)
        pairs = np.argwhere(np.triu(overlaps, k=1))
        assert not len(pairs), [texts[index] for index in pairs[0]]


def test_the_confused_classes_are_the_ones_shown(tmp_path, figures):
    labels = np.repeat(np.arange(100), 3)
    predicted = labels.copy()
    predicted[3 * 71 : 3 * 71 + 2] = 42
    summary = classification_summary(
        ranked(labels, np.eye(100)[predicted]), names_of(100)
    )
    written(tmp_path, summary=summary)
    axes = figures[0].axes[0]
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert len(shown) == 20 and {"class_42", "class_71"} <= set(shown)
    shares = axes.images[0].get_array()
    cell = shown.index("class_71"), shown.index("class_42")
    assert shares[cell] == pytest.approx(2 / 3)
    assert shares[cell[::-1]] == 0 and shares[cell[1], cell[1]] == 1


def test_the_learning_curve_shows_what_was_logged(tmp_path, figures):
    log = MetricLog(tmp_path / "log.jsonl")
    for step in range(1, 101):
        log.append(step, loss=float(step))
    log.append(50, val_loss=7.0)
    written(tmp_path, history=log)
    (axes,) = figures[1].axes
    raw, smooth, validation = axes.lines
    np.testing.assert_array_equal(raw.get_ydata(), np.arange(1, 101))
    # Away from the ends, the mean of a straight line is that line, half a step aside.
    np.testing.assert_allclose(smooth.get_ydata()[4:-4], np.arange(5, 97) - 0.5)
    assert validation.get_xydata().tolist() == [[50, 7]]


def test_the_report_names_the_loss(tmp_path, figures):
    recipe = for_dataset("digits").override(
        loss="sigmoid", label_smoothing=0.1, class_weights="balanced", mixup=0.2
    )
    named = "sigmoid cross-entropy, label smoothing 0.1, balanced class weights"
    about = about_loss(recipe)
    assert about == {"loss_function": named, "training_only": "shift crop, mixup 0.2"}
    data, page = written(tmp_path, results=about)
    assert data["loss_function"] == named
    assert f"the one that was optimized, {named}, in training and validation" in page
    assert "Only training has: shift crop, mixup 0.2." in page
    loss, accuracy, _ = figures[1].axes
    assert (loss.get_title(), accuracy.get_title()) == (named, "")


def test_an_evaluation_beside_the_curve_of_a_training(tmp_path, figures):
    (tmp_path / "learning_curve.png").touch()
    results = {"test_loss": 1.0, "loss_function": "softmax cross-entropy"}
    data, page = written(tmp_path, history=None, results=results)
    assert data["loss_function"] == "softmax cross-entropy"
    assert "![learning curve](learning_curve.png)" in page
    assert "the one that was optimized" not in page


def test_what_only_training_has():
    recipe = for_dataset("cifar100").override(
        model="ViT-L_16",
        rand_augment=(2, 15),
        random_erasing=0.5,
        cutmix=1,
        stochastic_depth_rate=0.1,
        average_decay=0.99,
        class_weights=(1.0,) * 100,
    )
    assert about_loss(recipe) == {
        "loss_function": "softmax cross-entropy, class weights",
        "training_only": "inception crop, flip, RandAugment 2 x 15, random erasing "
        "0.5, CutMix 1, dropout 0.1, stochastic depth 0.1, weights that are not "
        "averaged",
    }
    # A probe has no dropout.
    probe = for_dataset("cifar100").override(
        frozen=True, dropout_rate=0.1, crop="resize", flip=False
    )
    assert about_loss(probe)["training_only"] == "nothing"


@pytest.mark.parametrize(
    ("size", "count"), [((16, 16), 1), ((384, 384), 3), ((24, 40), 20)]
)
def test_predictions_picture(tmp_path, figures, rendered, size, count):
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (count, *size, 3)).astype(np.float32)
    labels = np.zeros(count, int)
    probabilities = np.tile([0.75, 0.25], (count, 1))
    probabilities[1:2] = 0.25, 0.75
    path = tmp_path / "predictions.png"
    write_predictions_picture(
        path, images, labels, probabilities, ["cat", "dog"], "Test images"
    )
    drawn = [axes for axes in figures[0].axes if axes.images]
    assert len(drawn) == min(count, 12)
    for axes, image in zip(drawn, images, strict=False):
        np.testing.assert_allclose(axes.images[0].get_array(), (image + 1) / 2)
        smooth = axes.images[0].get_interpolation() == "bilinear"
        assert smooth == (size == (384, 384))
    titles = [axes.get_title() for axes in drawn]
    assert titles[0] == "✓ cat (75%)\ntrue: cat"
    if count > 1:
        assert titles[1] == "✗ dog (75%)\ntrue: cat"
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    for colour, expected in ((drawing.BLUE, True), (drawing.ORANGE, count > 1)):
        rgb = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
        assert ((pixels == rgb).all(axis=1).sum() > 1000) == expected


def test_importing_is_light():
    script = (
        "import sys, train.reports.report, train.reports.figures, train.engine.metrics;"
        "assert not {'matplotlib', 'sklearn', 'keras', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_page_tells_the_balance_of_the_classes(tmp_path):
    summary = classification_summary(ranked(*random_split(3, 60)), names_of(3))
    for row, count in zip(summary["per_class"], (70, 1_400, 205), strict=True):
        row["train_examples"] = count
    found, page = written(tmp_path, summary=summary)
    assert "a class has 70 (class_0) to 1,400 (class_1) examples" in page
    assert "in the median 205." in page
    assert "| In training |" in page and "| 1,400 |" in page
    assert "\n\n\n" not in page
    assert [row["train_examples"] for row in found["per_class"]] == [70, 1_400, 205]


@pytest.mark.parametrize("count", [1, 40])
def test_the_picture_of_a_batch(tmp_path, figures, count):
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (count, 8, 12, 3)).astype("float32")
    labels = rng.integers(0, 3, count)
    draw_batch(tmp_path / "a.png", images, labels, ["cat", "dog", "bird"])
    shares = np.tile([0.7, 0.0, 0.3], (count, 1))
    draw_batch(tmp_path / "b.png", images, shares, ["cat", "dog", "bird"])
    for figure, text in zip(figures, (None, "cat 70%\nbird 30%"), strict=True):
        cells = [axes for axes in figure.axes if axes.images]
        assert len(cells) == min(count, 12)
        for cell, image, label in zip(cells, images, labels, strict=False):
            expected = ["cat", "dog", "bird"][label] if text is None else text
            assert cell.get_title() == expected
            np.testing.assert_allclose(
                cell.images[0].get_array(), (image + 1) / 2, atol=1e-6
            )

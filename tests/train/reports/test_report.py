"""The report of a run: report.json, report.md, and its figures."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from train.common import markdown
from train.engine.metric_log import MetricLog
from train.recipes import for_dataset
from train.reports import figures as drawing
from train.reports import verdict
from train.reports.figures import draw_batch, write_predictions_picture
from train.reports.report import write_report
from train.run.task import about_loss
from train.scoring.metrics import calibration, classification_summary, interval
from train.scoring.ranked import ranked


def answers(classes, examples=200):
    """Random labels and probabilities, of which most are right."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, examples)
    probabilities = rng.random((examples, classes)).astype(np.float32)
    probabilities[np.arange(examples), labels] += 0.7
    return labels, probabilities / probabilities.sum(axis=1, keepdims=True)


def names_of(classes):
    return [f"class_{index}" for index in range(classes)]


def summary_of(classes, examples=200, names=None):
    found = ranked(*answers(classes, examples))
    return classification_summary(found, names or names_of(classes))


def training_log(path, steps=60):
    log = MetricLog(path)
    for step in range(1, steps + 1):
        log.append(step, loss=2 / step, accuracy=1 - 1 / step, learning_rate=0.03)
        if step % 20 == 0:
            log.append(step, val_loss=2.5 / step, val_accuracy=1 - 1.1 / step)
    return log


def written(run_dir, classes=10, **changes):
    arguments = {
        "config": {"learning_rate": 0.03},
        "summary": summary_of(classes),
        "results": {"steps": 60},
        "history": training_log(run_dir / "metrics.jsonl"),
    }
    write_report(run_dir, **(arguments | changes))
    data = json.loads((run_dir / "report.json").read_text())
    return data, (run_dir / "report.md").read_text()


def test_suggestions_know_what_the_model_and_its_weights_are_called(
    tmp_path, monkeypatch
):
    asked = []
    judge = verdict.judge
    monkeypatch.setattr(
        verdict, "judge", lambda facts: asked.append(facts) or judge(facts)
    )
    file = tmp_path / "W.npz"
    file.touch()
    written(tmp_path, config={"weights": str(file)})
    written(tmp_path, config={"weights": "augreg"})
    written(tmp_path, config={}, model="runs/a", weights=str(file))
    found = [(facts.model, facts.weights) for facts in asked]
    run = str(tmp_path)
    assert found == [(run, str(file)), (run, None), ("runs/a", str(file))]


def class_rows(page):
    table = page.split("## Classes")[1].split("##")[0]
    return table, [line for line in table.splitlines() if "| class_" in line]


def test_templates_escape_what_they_print(tmp_path):
    template = tmp_path / "page.md.jinja"
    template.write_text("{{ text }} {{ block }} {{ table(('a|b',), [(text,)]) }}\n")
    page = markdown.render(template, text="<b>\x1b *", block=markdown.Block("<b>"))
    assert page.startswith(r"\<b\>\\x1b \* <b> | a\|b |")
    assert page.endswith("| \\<b\\>\\\\x1b \\* |\n")
    template.write_text("{{ missing }}")
    with pytest.raises(Exception, match="'missing' is undefined"):
        markdown.render(template)


@pytest.mark.parametrize("classes", [2, 1000])
def test_report_of_many_sizes(tmp_path, drawn, classes):
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
    table, rows = class_rows(page)
    assert len(rows) == min(tested, 100)
    assert ("worst of" in table) == (tested > 100)
    assert ("Without examples" in table) == (tested < classes)
    assert sorted(os.listdir(tmp_path)) == [
        *("confusion_matrix.png", "learning_curve.png", "metrics.jsonl"),
        *("reliability.png", "report.html", "report.json", "report.md"),
    ]


def test_the_report_is_whole_in_json_and_reads_well(tmp_path):
    for name in ("attention maps.png", ".half-written.png", "predictions.png"):
        (tmp_path / name).touch()
    config = {"model": "ViT-B_16", "dataset": "digits", "run_dir": tmp_path}
    config |= {"size": (16, 16), "own": {"num_layers": 4}}
    results = {"train_examples": 1437, "steps": 60, "seconds": 12.5}
    results["command"] = "python -m train.finetune --dataset=digits"
    data, page = written(tmp_path, config=config, results=results)
    summary = summary_of(10)
    expected = {
        **results,
        "config": {**config, "run_dir": str(tmp_path), "size": [16, 16]},
        "test_accuracy": summary["accuracy"],
        "test_top5_accuracy": summary["top5_accuracy"],
        "test_examples": 200,
        "test_macro_f1": summary["macro"]["f1"],
    }
    for key in ("absent_classes", "per_class", "confusions"):
        expected[key] = summary[key]
    assert data.items() >= expected.items()
    assert page.startswith("# ViT-B_16 on digits\n\n**")
    first = data["confusions"][0]
    for text in (
        f"```sh\n{results['command']}\n```",
        "after 60 steps in 12.5 seconds.",
        "| train_examples | 1,437 |",
        f"| test_accuracy | {data['test_accuracy']:.2%} |",
        "| own.num_layers | 4 |",
        "![predictions](predictions.png)",
        "![attention maps](attention%20maps.png)",
        f"| {first['true']} | {first['predicted']} | {first['count']} |",
    ):
        assert text in page
    _, page = written(tmp_path, config=config, results={"steps": 1, "epochs": 2.909})
    assert ", after 1 step (2.91 epochs)." in page
    assert "half-written" not in page
    f1 = [float(line.split("|")[4].strip(" %")) for line in class_rows(page)[1]]
    assert len(f1) == 10 and f1 == sorted(f1)


def test_a_perfect_model_without_history_or_name(tmp_path):
    summary = classification_summary(ranked(np.arange(40), np.eye(40)), names_of(40))
    log = MetricLog(tmp_path / "x")
    data, page = written(tmp_path, config={}, summary=summary, history=log)
    assert page.startswith(f"# {markdown.escape(tmp_path.name)}\n")
    assert data["confusions"] == []
    assert "No example was taken for another class." in page
    assert "learning_curve" not in page
    assert (tmp_path / "confusion_matrix.png").exists()


def test_a_report_of_another_split_with_calibration(tmp_path, figures):
    found = calibration(ranked(*answers(10)))
    summary = summary_of(10)
    data, page = written(tmp_path, summary=summary, history=None, split="validation")
    assert "200 validation examples" in page and "learning_curve" not in page
    assert "test_accuracy" not in data
    assert data["validation_accuracy"] == summary["accuracy"]
    low, high = data["validation_accuracy_low"], data["validation_accuracy_high"]
    assert (low, high) == interval(round(200 * summary["accuracy"]), 200)
    assert data["validation_calibration_error"] == found["error"]
    assert data["calibration"] == found["bins"]
    assert data["validation_calibration_error_of_exact"] == found["error_of_exact"]
    assert f"calibration error is {found['error']:.2%}" in page
    assert f"right would get {found['error_of_exact']:.2%} on as many" in page
    assert page.count("![reliability](reliability.png)") == 1
    upper, lower = figures[1].axes
    heights = [bar.get_height() for bar in upper.patches]
    assert heights == [row["accuracy"] or 0 for row in found["bins"]]
    middles = [bar.get_x() + bar.get_width() / 2 for bar in upper.patches]
    np.testing.assert_allclose(middles, (np.arange(15) + 0.5) / 15)
    assert sum(bar.get_height() for bar in lower.patches) == 200


NAMES = ["a|b", "_init_", "__x__", "$x$", "naïve épée"]
NAMES += ["*bold*", "<b>", "a\nb", "", "`"]


def test_names_that_mean_something_elsewhere(tmp_path, figures):
    labels, probabilities = answers(10)
    data, page = written(tmp_path, summary=summary_of(10, names=NAMES))
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


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"results": {"seconds": np.inf}}, ValueError, "not JSON compliant"),
        ({"config": {"a": {"b": [1, np.nan]}}}, ValueError, "not JSON compliant"),
        ({"config": {"loss": print}}, TypeError, "not builtin_function"),
    ],
)
def test_a_failed_report_leaves_the_old_one(tmp_path, change, error, message):
    written(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = {"config": {}, "results": {}, "summary": summary_of(2)}
    with pytest.raises(error, match=message):
        write_report(tmp_path, **(arguments | change))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def texts_of(figure):
    """The texts that a figure shows, with their boxes."""
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    artists = []
    for axes in figure.axes:
        artists += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        artists += axes.get_legend().get_texts() if axes.get_legend() else []
        for at, axis in enumerate((axes.xaxis, axes.yaxis) if axes.axison else ()):
            low, high = sorted(axis.get_view_interval())
            artists += [
                text
                for text in axis.get_ticklabels()
                if low <= text.get_position()[at] <= high
            ]
    return [
        (text.get_text(), text.get_window_extent(renderer))
        for text in artists
        if text.get_visible() and text.get_text()
    ]


@pytest.mark.parametrize("classes", [2, 30, 100])
def test_no_text_overlaps_or_is_cut(tmp_path, figures, classes):
    names = [f"{index} a rather long name of a class" for index in range(classes)]
    labels, probabilities = answers(classes, 2000)
    summary = summary_of(classes, 2000, names)
    history = None
    if classes == 2:
        history = training_log(tmp_path / "metrics.jsonl")
    written(tmp_path, summary=summary, history=history)
    images = np.zeros((12, 16, 16, 3), np.float32)
    path = tmp_path / "predictions.png"
    write_predictions_picture(
        path, images, labels[:12], probabilities[:12], names, "Test"
    )
    assert len(figures) == (4 if classes == 2 else 3)
    for figure in figures:
        texts, boxes = zip(*texts_of(figure), strict=True)
        for text, box in zip(texts, boxes, strict=True):
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
    found = ranked(labels, np.eye(100)[predicted])
    written(tmp_path, summary=classification_summary(found, names_of(100)))
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
    # An evaluation beside the curve of this training.
    (tmp_path / "learning_curve.png").touch()
    data, page = written(tmp_path, history=None, results={"loss_function": "softmax"})
    assert data["loss_function"] == "softmax"
    assert "![learning curve](learning_curve.png)" in page
    assert "the one that was optimized" not in page


def test_what_only_training_has():
    recipe = for_dataset("cifar100").override(
        **{"model": "ViT-L_16", "rand_augment": (2, 15), "random_erasing": 0.5},
        **{"cutmix": 1, "stochastic_depth_rate": 0.1, "average_decay": 0.99},
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
def test_predictions_picture(tmp_path, figures, drawn, size, count):
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (count, *size, 3)).astype(np.float32)
    labels = np.zeros(count, int)
    probabilities = np.tile([0.75, 0.25], (count, 1))
    probabilities[1:2] = 0.25, 0.75
    path = tmp_path / "predictions.png"
    write_predictions_picture(
        path, images, labels, probabilities, ["cat", "dog"], "Test images"
    )
    shown = [axes for axes in figures[0].axes if axes.images]
    assert len(shown) == min(count, 12)
    for axes, image in zip(shown, images, strict=False):
        np.testing.assert_allclose(axes.images[0].get_array(), (image + 1) / 2)
        smooth = axes.images[0].get_interpolation() == "bilinear"
        assert smooth == (size == (384, 384))
    titles = ["✓ cat (75%)\ntrue: cat", "✗ dog (75%)\ntrue: cat"][:count]
    assert [axes.get_title() for axes in shown[:2]] == titles
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    for colour, expected in ((drawing.BLUE, True), (drawing.ORANGE, count > 1)):
        rgb = tuple(bytes.fromhex(colour[1:]))
        assert ((pixels == rgb).all(axis=1).sum() > 1000) == expected


def test_the_page_tells_the_balance_of_the_classes(tmp_path):
    summary = summary_of(3, 60)
    for row, count in zip(summary["per_class"], (70, 1_400, 205), strict=True):
        row["train_examples"] = count
    found, page = written(tmp_path, summary=summary)
    assert "a class has 70 (class_0) to 1,400 (class_1) examples" in page
    assert "in the median 205." in page
    assert "| In training |" in page and "| 1,400 |" in page
    assert "\n\n\n" not in page
    assert [row["train_examples"] for row in found["per_class"]] == [70, 1_400, 205]


def test_the_picture_of_a_batch(tmp_path, figures):
    images = np.random.default_rng(0).uniform(-1, 1, (40, 8, 12, 3))
    labels, names = np.arange(40) % 3, ["cat", "dog", "bird"]
    draw_batch(tmp_path / "a.png", images, labels, names)
    draw_batch(tmp_path / "b.png", images, np.tile([0.7, 0, 0.3], (40, 1)), names)
    for figure, texts in zip(figures, (names, ["cat 70%\nbird 30%"]), strict=True):
        cells = [axes for axes in figure.axes if axes.images]
        assert [cell.get_title() for cell in cells] == texts * (12 // len(texts))
        for cell, image in zip(cells, images, strict=False):
            shown = cell.images[0].get_array()
            np.testing.assert_allclose(shown, (image + 1) / 2, atol=1e-6)

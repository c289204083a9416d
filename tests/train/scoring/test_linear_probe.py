"""The few-shot probe: its draws, its features, its report."""

import json

import keras
import numpy as np
import pytest
from evaluated import tiny

import keras_vit
from train.common.errors import RunError
from train.data import sources
from train.data.sources.splits import pick
from train.data.transforms.preprocessing import squash
from train.models import loaded_model
from train.scoring import linear_probe, predicting


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A small model with pre_logits, in the released naming."""
    path = tmp_path_factory.mktemp("weights") / "tiny.npz"
    keras_vit.save_released_weights(tiny(7, representation_size=24), path)
    return path


def test_draws():
    labels = np.random.default_rng(0).integers(0, 6, 100)
    labels[labels == 4] = 5
    labels[:2] = 4  # a class of two
    for seed in range(3):
        few, many = (linear_probe.draw(labels, count, seed) for count in (3, 9))
        assert np.bincount(labels[few]).tolist() == [3, 3, 3, 3, 2, 3]
        assert set(few) < set(many) and len(set(many)) == len(many)
    first, second = (linear_probe.draw(labels, 3, seed) for seed in (0, 1))
    assert set(first) != set(second)


def test_a_probe_of_the_digits(weights, tmp_path):
    judged = []

    def judge(summary, curve):
        judged.append((summary["accuracy"], curve))
        return ("A sentence.",)

    results = linear_probe.run(
        weights,
        **{"dataset": "digits", "shots": (1, 10), "seeds": 2, "judge": judge},
        out_dir=tmp_path / "out",
        command="python -m train.few_shot ...",
    )
    written = json.loads((tmp_path / "out" / "few_shot.json").read_text())
    assert results == {**written, "report": str(tmp_path / "out" / "few_shot.md")}
    assert (results["features"], results["test_examples"]) == (24, 360)
    assert results["image_size"] == [32, 32]
    assert [row["train_examples"] for row in results["rows"]] == [10, 100]
    for row in results["rows"]:
        assert row["fewest"] == row["most"] == row["shots"]
        assert row["mean"] == pytest.approx(np.mean(row["accuracies"]))
        assert row["deviation"] == pytest.approx(np.std(row["accuracies"], ddof=1))
    assert 0.15 < results["rows"][0]["mean"] < results["rows"][1]["mean"]
    ((accuracy, curve),) = judged
    assert accuracy == results["rows"][1]["accuracies"][0]
    assert [point.examples for point in curve] == [10, 100]
    means = [row["mean"] for row in results["rows"]]
    assert [point.accuracy for point in curve] == pytest.approx(means)
    page = (tmp_path / "out" / "few_shot.md").read_text()
    assert results["verdict"] == ["A sentence."]
    assert page.endswith("Of the first draw with the most images:\n\nA sentence.\n")
    assert f"| 10 | 100 | {results['rows'][1]['mean']:.2%} |" in page
    assert "python -m train.few_shot ..." in page


def test_another_probe_of_features_that_are_kept(weights, tmp_path, monkeypatch):
    settings = {"dataset": "digits", "shots": (5,), "seeds": 1}
    settings["cache"] = tmp_path / "features"
    linear_probe.run(weights, **settings, out_dir=tmp_path / "ridge")
    # Nothing is computed a second time.
    monkeypatch.setattr(predicting, "predictions", None)
    results = linear_probe.run(
        weights, **settings, probe="lda", out_dir=tmp_path / "lda"
    )
    assert results["probe"] == "lda" and "l2" not in results
    assert 0.2 < results["rows"][0]["mean"] < 1
    page = (tmp_path / "lda" / "few_shot.md").read_text()
    assert "Linear discriminant analysis" in page


def test_one_draw_and_what_cannot_be_drawn(weights, tmp_path, monkeypatch):
    settings = {"dataset": "digits", "out_dir": tmp_path}
    for wrong, message in (
        ({"dataset": "cifr100"}, "did you mean cifar100"),
        ({"image_size": 33}, "patch size 8"),
    ):
        with pytest.raises(RunError, match=message):
            linear_probe.run(str(weights), **settings | wrong)
    assert not list(tmp_path.iterdir())

    def features_of(predictor, split, cache):
        return np.eye(10)[split.labels()]

    monkeypatch.setattr(linear_probe, "features_of", features_of)
    results = linear_probe.run(weights, **settings, shots=(2,), seeds=1)
    assert results["verdict"] == []
    assert results["rows"][0]["accuracies"] == [1.0]
    assert results["rows"][0]["deviation"] is None
    assert "%" not in linear_probe.table(results).splitlines()[2].split("|")[4]
    # With more images than there are a row would be that of all again.
    settings["judge"] = lambda summary, curve: [point.examples for point in curve]
    results = linear_probe.run(weights, **settings, shots=(2, 500, 900), seeds=1)
    assert [row["train_examples"] for row in results["rows"]] == [20, 1437]
    assert results["verdict"] == [20, 1437]


def test_the_features_are_those_that_go_into_the_head(weights):
    split = pick(sources.load("digits").test, [3, 5, 8])
    # The centre of the image resized to 8/7, the same from either kind of file.
    images = [squash(split.decode(image), (37, 37)) for image, _ in split.records()]
    images = np.stack(images)[:, 2:34, 2:34] / 127.5 - 1
    model = keras_vit.load_model(weights)
    expected = keras.Model(model.input, model.get_layer("pre_logits").output)(images)
    keras_file = weights.with_suffix(".keras")
    model.save(keras_file)
    for source in (weights, keras_file):
        loaded = loaded_model.load(str(source), features=True)
        predictor = keras_vit.Predictor(loaded.model, batch_size=2)
        found = linear_probe.features_of(predictor, split)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("fewest", "most", "text"),
    [
        (25, 25, "25"),
        (9, 25, "25 (9 to 25)"),
        (16, 16, "all: 16"),
        (9, 16, "all: 9 to 16"),
    ],
)
def test_rows_say_how_many_images_a_class_had(fewest, most, text):
    row = {"shots": 25, "fewest": fewest, "most": most}
    assert linear_probe.images_per_class(row) == text

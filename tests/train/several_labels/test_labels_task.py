"""Several labels: the head that a training begins with, weights, mixing, refusals."""

import keras
import labelled_photos
import numpy as np
import pytest
import same_runs
from labelled_photos import TINY, recipe, task_of
from scipy.special import expit
from sklearn.metrics import f1_score
from small_models import made

import keras_vit
from train.common.errors import RunError
from train.engine.losses import balanced_pos_weight
from train.run import training
from train.several_labels.probe import logistic
from train.several_labels.task import all_right

pytestmark = pytest.mark.usefixtures("empty_figures")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return labelled_photos.table(tmp_path_factory.mktemp("photos"), "labels")


def test_all_labels_of_an_example_are_to_be_right():
    logits = np.float32([[1, -1], [1, 1], [-1, -1]])
    labels = np.float32([[1, 0], [1, 0], [0, 0]])
    found = keras.ops.convert_to_numpy(all_right(logits, labels))
    assert found.tolist() == [1, 0, 1]


def test_the_probe_is_a_logistic_regression_with_a_penalty():
    rng = np.random.default_rng(0)
    features = rng.normal(3, 2, (60, 4))
    labels = features @ rng.normal(size=(4, 3)) > 5
    labels[:, 2] = False
    kernel, bias = logistic(features, labels)
    scale = features.std(axis=0)
    chances = expit(features @ kernel + bias)
    for place in (0, 1):
        # At the least loss its gradient is that of the penalty: scikit-learn's
        # C sum(losses) + kernel^2 / 2, of standardised features.
        errors = chances[:, place] - labels[:, place]
        assert abs(errors.sum()) < 1e-2
        gradient = ((features - features.mean(axis=0)) / scale).T @ errors
        np.testing.assert_allclose(0.1 * gradient, -kernel[:, place] * scale, atol=2e-3)
    # No photo has the last label: it is as rare as half a photo of 61.
    np.testing.assert_allclose(chances[:, 2], 0.5 / 61, rtol=1e-4)


def test_a_training_begins_with_the_probe_as_its_head(dataset, tmp_path):
    model = made(TINY, (16, 16), classes=3)
    keras_vit.save_released_weights(model, tmp_path / "tiny.npz")
    task = task_of(
        dataset, "labels", weights=str(tmp_path / "tiny.npz"), learning_rate=1e-12
    )
    training.run(task, run_dir=tmp_path / "run")
    report = same_runs.report(tmp_path / "run")
    precisions = {row["name"]: row["average_precision"] for row in report["per_label"]}
    # Colours show in features of random weights.
    assert min(precisions["red"], precisions["blue"]) > 0.8


def test_mixed_and_weighted_labels_train(dataset, tmp_path):
    task = task_of(dataset, "labels", mixup=0.5, class_weights="balanced", steps=2)
    results = training.run(task, run_dir=tmp_path / "run")
    assert np.isfinite(results["test_loss"])
    assert "balanced class weights" in results["loss_function"]


@pytest.mark.parametrize("weights", ["balanced", (1.0, 2.0, 4.0)])
def test_weights_are_those_of_photos_that_have_a_label(weights, dataset):
    task = task_of(dataset, "labels", class_weights=weights)
    source = training.load_source(task.recipe)
    truth = source.train.labels()
    pos_weight = np.array(weights)
    if weights == "balanced":
        counts = truth.sum(axis=0)
        pos_weight = np.array(balanced_pos_weight(counts, len(truth)))
        # As many photos without the label for one with it, at least 1/100.
        expected = (len(truth) - counts) / np.maximum(counts, 1)
        is_there = counts > 0
        np.testing.assert_allclose(pos_weight[is_there], expected[is_there])
    logits = np.random.default_rng(0).normal(size=truth.shape)
    task.source = source
    losses = task.make_loss(source)(logits.astype("float32"), truth.astype("float32"))
    chances = expit(logits)
    terms = truth * pos_weight * -np.log(chances) - (1 - truth) * np.log(1 - chances)
    expected = terms.sum(axis=1)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(losses), expected, rtol=1e-5)


def test_a_label_that_all_photos_have_is_refused(tmp_path):
    names, labels, _ = labelled_photos.photos(tmp_path)
    rows = [
        (name, "|".join(["all", *own])) for name, own in zip(names, labels, strict=True)
    ]
    table = labelled_photos.write(tmp_path / "all.csv", ("path", "label"), rows)
    with pytest.raises(RunError, match="has the label 'all', so there is nothing"):
        training.run(task_of(table, "labels"), run_dir=tmp_path / "run")


def test_losses_of_other_tasks_are_refused(dataset):
    for loss in ("softmax", "huber", "squared"):
        with pytest.raises(ValueError, match="not for task=labels: pass loss=sigmoid"):
            recipe(dataset, "labels", loss=loss).check()
    for loss in ("sigmoid", "focal", "asymmetric"):
        recipe(dataset, "labels", loss=loss).check()


def test_cutmix_of_labels_trains(dataset, tmp_path):
    task = task_of(dataset, "labels", cutmix=0.5, loss="focal", steps=1)
    results = training.run(task, run_dir=tmp_path / "run")
    assert np.isfinite(results["test_loss"])


def test_without_held_out_photos_a_label_is_given_from_a_half_on(dataset, tmp_path):
    run = tmp_path / "run"
    task = task_of(dataset, "labels", validation_fraction=0.0, steps=1)
    training.run(task, run_dir=run)
    model = keras.saving.load_model(run / "model.keras")
    assert model.layers[-1].thresholds == (0.5, 0.5, 0.5)
    [note] = same_runs.report(run)["notes"]
    assert "pass --validation_fraction=0.1 to have thresholds chosen" in note


def test_thresholds_are_those_of_the_held_out_photos_in_their_order(dataset):
    task = task_of(dataset, "labels")
    task.build(training.load_source(task.recipe))
    rng = np.random.default_rng(0)
    truth = rng.random((60, 3)) < [0.5, 0.04, 0.6]
    scores = np.clip(rng.random((60, 3)) * [0.4, 0.6, 0.3] + truth * 0.4, 0, 1)
    task.conclude({"validation": {"scores": scores, "truth": truth}, "test": {}})
    thresholds = task.model.layers[-1].thresholds
    for place in (0, 2):
        # No other threshold has a better F1.
        tried = [
            f1_score(truth[:, place], scores[:, place] >= t) for t in scores[:, place]
        ]
        own = f1_score(truth[:, place], scores[:, place] >= thresholds[place])
        assert own == pytest.approx(max(tried))
    # The rare one has that of all labels together.
    pooled = [f1_score(truth, scores >= t, average="micro") for t in scores.ravel()]
    own = f1_score(truth, scores >= thresholds[1], average="micro")
    assert own == pytest.approx(max(pooled)) and task.pooled == 1
    assert len({*thresholds}) == 3

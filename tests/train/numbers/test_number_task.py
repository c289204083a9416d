"""A number: the head that a training begins with, what the loss sees, refusals."""

import keras
import labelled_photos
import numpy as np
import pytest
from labelled_photos import TINY, task_of
from small_models import made

import keras_vit
from train.common.errors import RunError
from train.models.exports.writing import body_and_head
from train.run import training
from zoo.photos import prepare

pytestmark = pytest.mark.usefixtures("empty_figures")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return labelled_photos.table(tmp_path_factory.mktemp("photos"), "number")


def test_the_loss_sees_numbers_of_mean_0_and_deviation_1(dataset):
    task = task_of(dataset, "number", loss="squared")
    source = training.load_source(task.recipe)
    task.build(source)
    numbers = source.train.labels()
    assert numbers.min() > 1000
    outputs = np.random.default_rng(0).normal(size=numbers.shape).astype("float32")
    errors = outputs - (numbers - numbers.mean()) / numbers.std()
    losses = keras.ops.convert_to_numpy(task.loss(outputs, numbers))
    np.testing.assert_allclose(losses, np.square(errors)[:, 0], rtol=1e-2, atol=1e-3)
    accuracy = keras.ops.convert_to_numpy(task.accuracy(outputs, numbers))
    np.testing.assert_allclose(accuracy, 1 - losses, rtol=1e-6, atol=1e-6)


def test_the_probe_is_the_ridge_regression_that_leaving_one_out_chooses(dataset):
    task = task_of(dataset, "number")
    rng = np.random.default_rng(0)
    features = rng.normal(2, 3, (30, 5))
    labels = 50 + features @ rng.normal(size=(5, 1)) + rng.normal(0, 5, (30, 1))
    task.mean, task.deviation = float(labels.mean()), float(labels.std())
    kernel, bias = task.fit_head(features, labels.astype("float32"))

    inputs = (features - features.mean(axis=0)) / features.std(axis=0)
    targets = (labels[:, 0] - labels.mean()) / labels.std()

    def fitted(inputs, targets, l2):
        middle, own = inputs.mean(axis=0), inputs - inputs.mean(axis=0)
        solved = own.T @ own + l2 * np.eye(5), own.T @ (targets - targets.mean())
        weights = np.linalg.solve(*solved)
        return weights, targets.mean() - middle @ weights

    def left_out(l2):
        errors = []
        for place in range(30):
            others = np.arange(30) != place
            weights, bias = fitted(inputs[others], targets[others], l2)
            errors.append(inputs[place] @ weights + bias - targets[place])
        return np.square(errors).sum()

    weights, offset = fitted(
        inputs, targets, min(np.geomspace(1, 1e5, 11), key=left_out)
    )
    expected = inputs @ weights + offset
    answers = features @ kernel.astype(float) + bias
    np.testing.assert_allclose(answers[:, 0], expected, atol=1e-5)


def test_a_training_begins_with_the_probe_as_its_head(dataset, tmp_path):
    model = made(TINY, (16, 16), classes=1)
    keras_vit.save_released_weights(model, tmp_path / "tiny.npz")
    task = task_of(dataset, "number", weights=str(tmp_path / "tiny.npz"))
    source = training.load_source(task.recipe)
    task.build(source)
    task.begin()
    images = np.stack([prepare(name, (16, 16)) for name in source.train.names()])
    body, head = body_and_head(task.network)
    features = body(images)
    kernel, bias = task.fit_head(
        keras.ops.convert_to_numpy(features), source.train.labels()
    )
    np.testing.assert_allclose(np.ravel(head.kernel), kernel[:, 0], atol=1e-4)
    np.testing.assert_allclose(np.ravel(head.bias), bias, atol=1e-3)
    # Shown in the units of the table by the head that is saved.
    expected = task.mean + task.deviation * np.asarray(task.model(images))
    task.conclude({})
    np.testing.assert_allclose(task.model(images), expected, rtol=1e-5)


def test_mixed_numbers_train(dataset, tmp_path):
    results = training.run(
        task_of(dataset, "number", mixup=0.5, steps=2), run_dir=tmp_path / "run"
    )
    assert np.isfinite(results["test_loss"])
    assert "mixup 0.5" in results["training_only"]


def test_a_choice_of_photos_with_one_number_is_refused(tmp_path):
    names, _, _ = labelled_photos.photos(tmp_path, 8)
    rows = [(name, 3 + (place == 7)) for place, name in enumerate(names)]
    table = labelled_photos.write(tmp_path / "same.csv", ("path", "label"), rows)
    task = task_of(table, "number", train_examples=2)
    with pytest.raises(RunError, match="all have the number 3: pass more"):
        training.run(task, run_dir=tmp_path / "run")


def test_settings_of_classes_are_refused_by_name(dataset, tmp_path):
    with pytest.raises(RunError, match="--cutmix makes a number of two photos"):
        task = task_of(dataset, "number", cutmix=0.5)
        training.run(task, run_dir=tmp_path / "run")
    recipe = labelled_photos.recipe(dataset, "number")
    with pytest.raises(ValueError, match="class_weights=balanced are of classes"):
        recipe.override(class_weights="balanced").check()
    for loss in ("softmax", "sigmoid", "asymmetric"):
        with pytest.raises(ValueError, match="pass loss=huber or squared"):
            recipe.override(loss=loss).check()
    for loss in ("huber", "squared"):
        recipe.override(loss=loss).check()

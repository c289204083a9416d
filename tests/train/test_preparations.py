"""Every command brings a photo to a model's size as the model says."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from harness import randomize
from PIL import Image

import keras_vit
from keras_vit.structure import preparation_of
from train import recipes
from train.data import pipeline, sources
from train.data.checking import DataError
from train.data.sources.splits import in_memory
from train.evaluate import evaluation
from train.explain import inspection
from train.explain.report import explain
from train.export import program, sample_images
from train.models import loaded_model
from train.predict import classifiers
from train.predict.prediction import predict
from train.run import building
from train.scoring import features, linear_probe, predicting
from zoo.photos import prepare

PLAIN = keras_vit.ViTConfig(
    hidden_size=24, num_layers=1, num_heads=3, mlp_dim=40, patch_size=8
)
SIZE = (32, 48)
PREPARATIONS = (
    "squash",
    "central crop",
    "timm crop bicubic 0.9",
    "transformers squash bilinear",
)


class Done(Exception):
    """The images are known."""


@pytest.fixture
def photos(tmp_path):
    """A folder of classes whose photos are of odd shapes."""
    rng = np.random.default_rng(0)
    for name, shape in (("cat", (37, 61)), ("dog", (150, 83)), ("elk", (53, 19))):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        pixels = rng.integers(0, 256, (*shape, 3), dtype="uint8")
        Image.fromarray(pixels).save(folder / f"0.{'jpg' if name == 'dog' else 'png'}")
    return tmp_path / "photos"


@pytest.fixture
def model_file(tmp_path):
    """Returns a function from a preparation to the file of a model that has it."""

    def made(preparation):
        model = keras_vit.VisionTransformer(
            PLAIN,
            image_size=SIZE,
            class_names=["cat", "dog", "elk"],
            preparation=preparation,
        )
        randomize(model)
        model.save(tmp_path / "model.keras")
        return str(tmp_path / "model.keras")

    return made


def images_of(photos, preparation):
    files = sorted(photos.glob("*/*"))
    return np.stack([prepare(file, SIZE, preparation) for file in files])


def in_predict(file, photos, folder, patch, **flags):
    """Returns the images that a model gets from `predict`, in the order of files."""
    seen, load = [], classifiers.load

    def loaded(*args, **settings):
        found = load(*args, **settings)

        def compute(images):
            seen.append(np.array(images))
            return found.compute(images)

        return dataclasses.replace(found, compute=compute)

    patch.setattr(classifiers, "load", loaded)
    predict(file, [str(photos)], answer=lambda text: None, **flags)
    return np.concatenate(seen)


def in_evaluate(file, photos, folder, patch, **flags):
    """Returns the images that a model gets from `evaluate`, in the order of files."""

    def predictions(predictor, batches, split):
        raise Done(np.concatenate([images.numpy() for images, _ in batches]))

    patch.setattr(predicting, "predictions", predictions)
    with pytest.raises(Done) as done:
        evaluation.evaluate(
            file, dataset=str(photos), split="all", out_dir=folder / "out", **flags
        )
    return done.value.args[0]


def in_explain(file, photos, folder, patch, **flags):
    """Returns the images that a model gets from `explain`, in the order of files."""

    def run(model, found, places):
        raise Done(np.concatenate(list(found.batches(1))))

    patch.setattr(inspection, "run", run)
    with pytest.raises(Done) as done:
        explain(file, [str(photos)], folder / "explained", **flags)
    return done.value.args[0]


def in_export(file, photos, folder, patch, central_crop=None):
    """Returns the images that exports of a model are compared on."""
    loaded = loaded_model.load(file)
    found = sample_images.read(
        loaded,
        folder / "images",
        None,
        calibration=None,
        central_crop=central_crop,
        dataset=str(photos),
        split="all",
    )
    if central_crop is None:
        assert found.about["preparation"] == preparation_of(loaded.model)
    return np.concatenate([*program.read_images(folder / "images")])


COMMANDS = (in_predict, in_evaluate, in_explain, in_export)


@pytest.mark.parametrize(
    ("says", "flags", "expected"),
    [
        *((preparation, {}, preparation) for preparation in PREPARATIONS),
        # The flag goes before what the model says.
        ("timm crop bicubic 0.9", {"central_crop": True}, "central crop"),
        ("timm crop bicubic 0.9", {"central_crop": False}, "squash"),
    ],
)
def test_every_command_gives_the_model_the_same_numbers(
    says, flags, expected, model_file, photos, tmp_path, monkeypatch
):
    file = model_file(says)
    for command in COMMANDS:
        found = command(file, photos, tmp_path, monkeypatch, **flags)
        np.testing.assert_array_equal(found, images_of(photos, expected))


def test_the_report_of_an_evaluation_names_the_preparation(
    model_file, photos, tmp_path, monkeypatch
):
    def write_report(directory, *, config, **rest):
        raise Done(config["preparation"])

    file, out = model_file("timm crop bicubic 0.9"), tmp_path / "out"
    monkeypatch.setattr(evaluation, "write_report", write_report)
    monkeypatch.setattr(predicting, "images_per_second", lambda found: {"model": 1.0})
    with pytest.raises(Done, match="^timm crop bicubic 0.9$"):
        evaluation.evaluate(file, dataset=str(photos), split="all", out_dir=out)


def test_features_of_few_shots_are_of_images_as_the_model_says(
    model_file, photos, monkeypatch
):
    """A model that says nothing of its own has big_vision's."""
    split = sources.load(str(photos), validation_fraction=None).all

    def predictions(predictor, batches, split, desc):
        for images, labels in batches:
            yield labels.numpy(), images.numpy()

    monkeypatch.setattr(predicting, "predictions", predictions)
    for preparation in ("timm crop bicubic 0.9", "squash"):
        file = model_file(preparation)
        model = loaded_model.load(file, features=True).model
        predictor = keras_vit.Predictor(model, batch_size=2)
        found = linear_probe.features_of(predictor, split)
        if preparation == "squash":
            assert linear_probe.preparation_for(model) == features.FEW_SHOT
            bigger = [prepare(path, (37, 55)) for path in sorted(photos.glob("*/*"))]
            expected = np.stack(bigger)[:, 2:34, 3:51]
        else:
            assert linear_probe.preparation_for(model) == preparation
            expected = images_of(photos, preparation)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dataset", ["digits", "photos/"])
def test_a_run_says_what_it_is_validated_with(dataset, tmp_path):
    """Weights may say otherwise: recipes squash, in training and in testing."""
    path, crop = tmp_path / "model.safetensors", "timm crop bicubic 0.9"
    model = keras_vit.VisionTransformer(
        PLAIN, image_size=32, classes=3, preparation=crop
    )
    keras_vit.save_released_weights(model, path)
    assert preparation_of(keras_vit.load_model(path)) == crop
    settings = {"model": str(path), "weights": str(path), "image_size": 32}
    recipe = dataclasses.replace(recipes.for_dataset(dataset), **settings)
    assert preparation_of(building.model(recipe, 2)) == "squash"
    batches = pipeline.evaluation_batches
    assert batches.__kwdefaults__["preparation"] == "squash"


def test_a_photo_that_is_too_narrow_is_named_by_evaluation():
    pixels = np.zeros((1, 80_000, 3), "uint8")
    split = in_memory("photos", [0], [0], lambda record: tf.constant(pixels), str)
    batches = pipeline.evaluation_batches(
        split, image_size=SIZE, batch_size=1, preparation="timm crop bicubic"
    )
    reason = "every image decodes: .*A photo of 1 x 80,000.*cut it out before"
    with pytest.raises(DataError, match=reason):
        list(pipeline.explained(batches, split))

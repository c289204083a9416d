"""The evaluation of models that are named in all possible ways."""

import dataclasses
import hashlib
import inspect
import json
import os
import pathlib
import re
import shutil
import types

import keras
import numpy as np
import pytest
from evaluated import COLOURS, CONFIG, report_of, tiny
from in_process import run_command
from PIL import Image
from scipy.special import log_softmax, softmax

import keras_vit
import zoo
from train import recipes
from train.common.errors import RunError
from train.data import pipeline, sources
from train.evaluate import evaluation, real_labels
from train.models import loaded_model
from train.models.run_directory import RunDirectory
from train.run import training
from train.scoring import evaluation_data, running
from train.scoring.matching import match_classes
from zoo.catalog import registry

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the input needs TensorFlow"
)

WRITTEN = {
    "confusion_matrix.png",
    "label_errors.csv",
    "mistakes.csv",
    "mistakes.png",
    "reliability.png",
    "report.html",
    "report.json",
    "report.md",
}


@pytest.fixture(scope="module")
def run_dir(in_short, tmp_path_factory):
    """A short run on the digits."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    recipe = recipes.for_dataset("digits").override(
        model=CONFIG, steps=4, batch_size=16, validation_fraction=0.1
    )
    training.run(recipe, run_dir=folder, command="python -m train.finetune ...")
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "tiny.npz"
    keras_vit.save_released_weights(tiny(10), path)
    (path.parent / "class_names.txt").write_text("\n".join("0123456789"))
    return path


def test_a_run_on_its_own_data(run_dir, tmp_path):
    before = (run_dir / "report.json").read_bytes()
    # In another runtime than that which tested the run.
    results = evaluation.evaluate(
        str(run_dir),
        batch_size=50,
        engine="onnxruntime",
        out_dir=tmp_path,
        command="python ...",
    )
    own, found = report_of(run_dir), report_of(tmp_path)
    # 360 images in batches of 50: the last one counts too.
    assert found["test_examples"] == own["test_examples"] == 360
    assert found["test_accuracy"] == own["test_accuracy"] == results["test_accuracy"]
    assert found["test_loss"] == pytest.approx(own["test_loss"], rel=1e-5)
    assert found["loss_function"] == own["loss_function"] == "softmax cross-entropy"
    for row in own["per_class"]:
        assert row.pop("train_examples") > 0
    assert found["per_class"] == own["per_class"]
    assert found["parameters"] == own["parameters"]
    assert found["config"]["engine"] == "onnxruntime"
    assert found["images_per_second"] > 0 < found["images_per_second_model_alone"]
    assert {path.name for path in tmp_path.iterdir()} == WRITTEN
    page = (tmp_path / "report.md").read_text()
    assert "# digits on digits" in page and "## Calibration" in page
    assert "(95% interval " in page and "(reliability.png)" in page
    assert (run_dir / "report.json").read_bytes() == before


def test_the_numbers_by_hand(weights, tmp_path):
    evaluation.evaluate(str(weights), dataset="digits", out_dir=tmp_path)
    split = sources.load("digits").test
    images, labels = zip(*split.records(), strict=True)
    images = tf.image.resize(np.stack([split.decode(i) for i in images]), (32, 32))
    labels = np.array(labels)
    logits = keras_vit.load_model(weights).predict(images / 127.5 - 1, verbose=0)
    chances, guesses = softmax(logits, axis=1), logits.argmax(axis=1)
    found = report_of(tmp_path)
    assert found["test_accuracy"] == np.mean(guesses == labels)
    first = np.argsort(-logits, axis=1)[:, :5]
    assert found["test_top5_accuracy"] == np.mean((first == labels[:, None]).any(1))
    losses = -log_softmax(logits, axis=1)[np.arange(360), labels]
    assert found["test_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    confidence, error = chances.max(axis=1), 0
    for low in np.arange(15) / 15:
        here = (low < confidence) & (confidence <= low + 1 / 15)
        if here.any():
            gap = np.mean(guesses[here] == labels[here]) - confidence[here].mean()
            error += abs(gap) * here.mean()
    assert found["test_calibration_error"] == pytest.approx(error, rel=1e-4)
    assert sum(row["examples"] for row in found["calibration"]) == 360


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_a_model_that_diverged_is_named(number):
    batch = np.zeros((3, 2, 2, 3), "float32"), np.array([0, 1, 1])
    batches = tf.data.Dataset.from_tensors(batch)
    split = types.SimpleNamespace(num_examples=3)

    def predictor(images):
        return np.array([[0.0, 1.0], [number, 0.0], [1.0, 0.0]], "float32")

    with pytest.raises(RunError, match="1 of 3 images are not finite: it has diverged"):
        list(running.predictions(predictor, batches, split))


def test_files_need_no_registry(goldens, tmp_path, monkeypatch):
    shutil.copy(goldens / "token.npz", tmp_path / "best.npz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("zoo.store.transport.BACKOFF_SECONDS", 0)
    monkeypatch.setenv("KERAS_VIT_REGISTRY", "http://127.0.0.1:9/r")
    for path in ("best.npz", "./best.npz", tmp_path / "best.npz"):
        assert loaded_model.load(path).name == "best"


def test_other_splits(run_dir, tmp_path):
    results = evaluation.evaluate(
        str(run_dir), split="validation", batch_size=48, out_dir=tmp_path
    )
    assert results["validation_examples"] == 144
    found = report_of(tmp_path)
    assert "validation_top5_accuracy" in found and "test_accuracy" not in found
    assert "144 validation examples" in (tmp_path / "report.md").read_text()
    loaded = loaded_model.LoadedModel(
        "run", None, config=RunDirectory(run_dir).read_config()
    )
    assert (
        evaluation_data.load_split(loaded, None, None, False, "train")[1].num_examples
        == 1293
    )


def test_ways_to_name_a_model(run_dir, weights, tmp_path, monkeypatch):
    published = tmp_path / "registry" / "mine"
    published.mkdir(parents=True)
    shutil.copy(weights, published / "model.npz")
    shutil.copy(weights.parent / "class_names.txt", published)
    digits = tuple(map(str, range(10)))
    card = zoo.PublishedModel(
        name="mine",
        architecture=dataclasses.asdict(CONFIG),
        image_size=(32, 32),
        channels=3,
        classes=10,
        class_names=digits,
        parameters=1,
        weights="model.npz",
        file_size=weights.stat().st_size,
        sha256=hashlib.sha256(weights.read_bytes()).hexdigest(),
        data_set="digits",
        metrics={},
        base=None,
        variant=None,
        licence="apache-2.0",
    )
    (published / "model.json").write_text(card.to_json())
    registry.write_index(published.parent)
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_VIT_REGISTRY", str(tmp_path / "registry"))
    for source, name in (
        (str(run_dir), "digits"),
        (str(run_dir / "model.keras"), "model"),
        (str(published), "mine"),
        ("mine", "mine"),
        (str(published / "model.npz"), "model"),
    ):
        loaded = loaded_model.load(source)
        assert (loaded.name, loaded.class_names) == (name, digits), source
        assert loaded.model.output_shape == (None, 10)
    assert loaded_model.load(str(run_dir)).config["dataset"] == "digits"


def test_another_image_size_keeps_what_the_model_computes(run_dir):
    exact = keras_vit.VisionTransformer(
        keras_vit.ViTConfig(16, 1, 2, 16, 8, activation="gelu"),
        image_size=32,
        classes=3,
    )
    path = run_dir.parent / "exact.keras"
    exact.get_layer("head").kernel.assign(np.eye(16, 3))
    exact.save(path)
    images = np.random.default_rng(0).normal(size=(2, 48, 48, 3)).astype("float32")
    loaded = loaded_model.load(str(path), image_size=48)
    weights = path.with_suffix(".safetensors")
    keras_vit.save_released_weights(exact, weights)
    expected = keras_vit.load_model(weights, image_size=48)(images)
    np.testing.assert_allclose(loaded.model(images), expected, atol=1e-6)
    assert loaded.model.get_layer("encoder_block_0").activation == "gelu"


def test_weights_without_a_head_give_features(tmp_path):
    config = keras_vit.ViTConfig(16, 1, 2, 16, 8)
    model = keras_vit.VisionTransformer(config, image_size=32, include_top=False)
    path = keras_vit.save_released_weights(model, tmp_path / "features.npz")
    loaded = loaded_model.load(str(path))
    assert loaded.model.output_shape == (None, 16)
    with pytest.raises(RunError, match="features has no head for classes, only feat"):
        evaluation_data.num_logits(loaded)


def test_classes_are_matched_by_name(photos, tmp_path):
    """A run's model on a folder that has some of its classes, named a bit otherwise."""
    run = tmp_path / "run"
    run.mkdir()
    model = tiny(5)
    model.save(run / "model.keras")
    names = ["yellow", "red-hot", "Blue", "grey", "green"]
    (run / "class_names.txt").write_text("".join(f"{name}\n" for name in names))
    out = tmp_path / "out"
    evaluation.evaluate(str(run), dataset=str(photos), out_dir=out)
    found = report_of(out)
    assert [row["name"] for row in found["per_class"]] == names
    assert [row["examples"] for row in found["per_class"]] == [0, 5, 5, 0, 5]
    assert found["absent_classes"] == ["yellow", "grey"]
    source = sources.load(str(photos)).test
    records, labels = zip(*source.records(), strict=True)
    images = [tf.image.resize(source.decode(one), (32, 32)) for one in records]
    guesses = model(np.stack(images) / 127.5 - 1).numpy().argmax(axis=1)
    places = np.array([1, 2, 4])[np.array(labels)]  # Red_Hot, blue, green
    assert found["test_accuracy"] == np.mean(guesses == places)


def test_names_beside_a_model_of_ones_own(photos, tmp_path):
    model = tiny(3)
    paths = [tmp_path / f"own{suffix}" for suffix in (".keras", ".npz", ".safetensors")]
    model.save(paths[0])
    for path in paths[1:]:
        keras_vit.save_released_weights(model, path)
    arguments = {"dataset": str(photos), "out_dir": tmp_path / "out"}
    assert all(loaded_model.load(str(path)).class_names is None for path in paths)
    with pytest.raises(RunError, match="not known.*write the names.*class_names"):
        evaluation.evaluate(str(paths[1]), **arguments)
    # As an editor leaves it, on Windows too: no line break at the end.
    names = tmp_path / "class_names.txt"
    names.write_bytes("\ufeffgreen\r\nred hot\r\nblue".encode())
    for path in paths:
        loaded = loaded_model.load(str(path))
        assert loaded.class_names == ("green", "red hot", "blue")
    shown, places = match_classes(3, loaded.class_names, list(COLOURS))
    assert shown == loaded.class_names and places.tolist() == [2, 0, 1]
    names.write_text("green\nblue\n")
    for path in paths:
        with pytest.raises(RunError, match="class_names.txt has 2 lines, but .* 3"):
            loaded_model.load(str(path))
        assert loaded_model.load(str(path), features=True).class_names is None


@pytest.mark.parametrize(
    "written",
    ["photos", "photos/", "./photos", "{here}/photos", "link", "moved/photos"],
)
def test_a_folder_has_one_validation_however_it_is_written(
    photos, tmp_path, monkeypatch, written
):
    """With a slash the validation was another part, which the run had learnt from."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(photos)
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "photos").symlink_to(photos)
    config = {"dataset": "photos", "validation_fraction": 0.34}
    loaded = loaded_model.LoadedModel("run", None, None, config)
    learnt, held = (
        evaluation_data.load_split(
            loaded, dataset and dataset.format(here=tmp_path), None, False, split
        )[1]
        for dataset, split in ((None, "train"), (written, "validation"))
    )
    learnt, held = (
        {pathlib.Path(path.numpy().decode()).resolve() for path, _ in part.records()}
        for part in (learnt, held)
    )
    assert len(held) == 3 and len(learnt) == 6 and not held & learnt


def test_a_central_crop(tmp_path):
    """Of a photo with a shorter side of 8/7 of the model's, pixels and no others."""
    pixels = np.random.default_rng(0).integers(0, 256, (96, 64, 3)).astype("uint8")
    for part in ("train", "test"):
        (tmp_path / part / "a").mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / part / "a" / "0.png")
    split = sources.load(str(tmp_path)).test

    def cropped(size):
        [(images, _)] = pipeline.evaluation_batches(
            split, image_size=size, batch_size=1, preparation="central crop"
        )
        assert images.shape == (1, *size, 3)
        return images[0].numpy() * 127.5 + 127.5

    found = cropped((56, 56))
    np.testing.assert_allclose(found, pixels[20:76, 4:60], atol=1e-4)
    assert cropped((84, 28)).shape == (84, 28, 3)
    # Larger: the mean over the area, as resize_small has it.
    means = pixels.reshape(48, 2, 32, 2, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(cropped((28, 28)), means[10:38, 2:30], atol=1e-3)


@pytest.fixture
def imagenet(tmp_path):
    """Photos named as those of ImageNet's validation set, of two classes."""
    numbers = {"a": [4, 2], "b": [1, 5, 3]}
    for part in ("train", "test"):
        for name, found in numbers.items():
            folder = tmp_path / "imagenet" / part / name
            folder.mkdir(parents=True)
            for number in found:
                image = np.full((9, 9, 3), 40 * number, "uint8")
                Image.fromarray(image).save(
                    folder / f"ILSVRC2012_val_{number:08d}.JPEG"
                )
    return tmp_path / "imagenet"


def test_reassessed_labels(imagenet, tmp_path, monkeypatch):
    names = [(f"n{index:08d}", f"thing_{index}") for index in range(1000)]
    names[5], names[9] = ("n5", "a"), ("n9", "b")
    monkeypatch.setattr(zoo, "class_names", lambda data_set: names)
    model = tiny(1000)
    model.get_layer("head").kernel.assign(np.zeros((16, 1000)))
    model.get_layer("head").bias.assign(np.eye(1000)[7])  # it always answers 7
    path = tmp_path / "seven.npz"
    keras_vit.save_released_weights(model, path)
    own = "\n".join(name for _, name in names)
    (tmp_path / "class_names.txt").write_text(own, "utf-8")
    file = tmp_path / "real.json"
    file.write_text("[[7, 8], [], [6], [1, 7], [7]]")
    arguments = {"dataset": str(imagenet), "out_dir": tmp_path / "out"}
    evaluation.evaluate(str(path), real_labels_file=file, **arguments)
    found = report_of(tmp_path / "out")
    assert found["test_accuracy"] == 0 and found["test_examples"] == 5
    assert (found["test_real_accuracy"], found["test_real_examples"]) == (3 / 4, 4)
    assert found["test_real_accuracy_low"] < 3 / 4 < found["test_real_accuracy_high"]
    assert "test_real_accuracy | 75.00%" in (tmp_path / "out/report.md").read_text()

    file.write_text("[[7], [7], [7], [7]]")
    with pytest.raises(RunError, match="00000005.JPEG is not one of the 4 images"):
        evaluation.evaluate(str(path), real_labels_file=file, **arguments)


def test_reassessed_labels_find_their_images(imagenet):
    names = real_labels.file_names(sources.load(str(imagenet)).test, str(imagenet))
    labels = real_labels.of_files([{1}, {2}, {3}, {4}, {5}], names)
    assert labels == [{2}, {4}, {1}, {3}, {5}]  # as the files are sorted


def test_reassessed_labels_of_a_tfds_data_set(tmp_path):
    """TFDS shuffles the images, and tells their names."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class TinyImagenet(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(2, 2, 3)),
                "label": tfds.features.ClassLabel(names=["a", "b"]),
                "file_name": tfds.features.Text(),
            }
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(features),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, manager):
            del manager
            return {part: self._generate_examples() for part in ("train", "validation")}

        def _generate_examples(self):
            for number in range(1, 31):
                name = f"ILSVRC2012_val_{number:08d}.JPEG"
                image = np.full((2, 2, 3), number, "uint8")
                yield name, {"image": image, "label": 0, "file_name": name}

    TinyImagenet(data_dir=tmp_path).download_and_prepare()
    part = sources.load("tiny_imagenet", tmp_path).test
    names = real_labels.file_names(part, "tiny_imagenet", tmp_path)
    right = real_labels.of_files([{number} for number in range(1, 31)], names)
    pixels = [{int(part.decode(image)[0, 0, 0])} for image, _ in part.records()]
    assert right == pixels and right != sorted(right, key=min)


@pytest.mark.parametrize("text", ["{", "[1]", "[[1000]]", '[["dog"]]', "[]", "{}"])
def test_labels_that_are_none(tmp_path, text):
    file = tmp_path / "real.json"
    file.write_text(text)
    with pytest.raises(RunError, match=re.escape(str(file))):
        real_labels.read(file)


def test_mistakes(run_dir, weights, tmp_path):
    def refused(told, model, **arguments):
        with pytest.raises(RunError, match=told):
            evaluation.evaluate(
                str(model), **{"dataset": "digits", "out_dir": tmp_path} | arguments
            )

    refused(r"no/such\.npz", "no/such.npz")
    refused("not a run's.*--dataset", weights, dataset=None)
    refused("did you mean cifar100", weights, dataset="cifr100")
    refused("multiples of the patch size 8", weights, image_size=33)
    refused("holds a run.*--out_dir", weights, out_dir=run_dir)
    refused("1000 classes, but the model has 10", weights, real_labels_file="r.json")
    unfinished = tmp_path / "unfinished"
    (unfinished / "checkpoints").mkdir(parents=True)
    refused("unfinished has no model.keras", unfinished)
    for name, model, told in (
        ("softmax", tiny(10, classifier_activation="softmax"), "ends in softmax"),
        ("tokens", keras_vit.VisionTransformer(CONFIG, pooling=None), "shape"),
        ("gray", tiny(10, channels=1), r"\(32, 32, 1\)"),
    ):
        model.save(tmp_path / f"{name}.keras")
        refused(f"{name}.*{told}", tmp_path / f"{name}.keras")
    (tmp_path / "broken.keras").write_text("PK")
    refused("broken.keras", tmp_path / "broken.keras")
    assert not (tmp_path / "report.json").exists()


def test_another_model_of_the_same_name(weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("tiny-digits-test", "report.json")
    folder, source = evaluation_data.report_folder(weights, None, *names)
    assert source == str(weights) and folder.is_dir()
    (folder / "report.json").write_text(json.dumps({"source": source}))
    for model in (weights, os.path.relpath(weights)):
        assert evaluation_data.report_folder(model, None, *names) == (folder, source)
    with pytest.raises(RunError, match=f"another model, {source}: pass --out_dir"):
        evaluation_data.report_folder("vit-b16/sam", None, *names)
    elsewhere = tmp_path / "elsewhere"
    found = evaluation_data.report_folder("vit-b16/sam", elsewhere, *names)
    assert found == (elsewhere, "vit-b16/sam")
    # A project that was moved, but not a copy of it, is the same.
    (tmp_path / "tiny.npz").touch()
    before = tmp_path / "before" / "tiny.npz"
    (folder / "report.json").write_text(json.dumps({"source": str(before)}))
    found = evaluation_data.report_folder("tiny.npz", None, *names)
    assert found == (folder, str(tmp_path / "tiny.npz"))
    before.parent.mkdir()
    before.touch()
    with pytest.raises(RunError, match=f"another model, {before}"):
        evaluation_data.report_folder("tiny.npz", None, *names)


def test_models_that_scale_pixels_themselves(tmp_path):
    images = keras.Input((32, 32, 3))
    for layer in (
        keras.layers.Rescaling(1 / 255, name="own"),
        keras.layers.Normalization(mean=120.0, variance=3000.0, name="own"),
    ):
        pixels = layer(images)
        outputs = keras.layers.Dense(10)(keras.layers.Flatten()(pixels))
        model = keras.Model(images, outputs)
        loaded = loaded_model.LoadedModel("net", model)
        with pytest.raises(RunError, match="layer own of the model net takes .* 255"):
            loaded_model.image_shape_of(loaded)
        whole = keras.Model(images, model(keras.layers.Rescaling(127.5, 127.5)(images)))
        whole.save(tmp_path / "whole.keras")
        loaded = loaded_model.load(str(tmp_path / "whole.keras"))
        assert loaded_model.image_shape_of(loaded) == (32, 32, 3)
    # The same in one model, as the message says.
    layers = [keras.layers.Rescaling(127.5, 127.5), keras.layers.Rescaling(1 / 255)]
    head = [keras.layers.Flatten(), keras.layers.Dense(10)]
    flat = keras.Sequential([images, *layers, *head])
    loaded = loaded_model.LoadedModel("net", flat)
    assert loaded_model.image_shape_of(loaded) == (32, 32, 3)
    bare = keras.Sequential([images, keras.layers.Rescaling(1 / 255), *head])
    with pytest.raises(RunError, match="of the model net takes .* 255"):
        loaded_model.image_shape_of(loaded_model.LoadedModel("net", bare))


def test_nothing_was_held_out(weights, photos, tmp_path, monkeypatch):
    keras_vit.save_released_weights(tiny(3), tmp_path / "three.npz")
    monkeypatch.setattr(
        recipes,
        "for_dataset",
        lambda dataset: recipes.Recipe(
            dataset, "x", None, 32, 999, validation_fraction=0
        ),
    )
    with pytest.raises(RunError, match="held out for validation: pass --split=test"):
        evaluation.evaluate(
            str(tmp_path / "three.npz"), dataset=str(photos), split="validation"
        )


def test_memory_that_is_full(weights, tmp_path, monkeypatch):
    def full(self, images):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")

    monkeypatch.setattr(keras_vit.Predictor, "__call__", full)
    with pytest.raises(RunError, match="memory is full: lower --batch_size"):
        evaluation.evaluate(str(weights), dataset="digits", out_dir=tmp_path)


def test_the_command(run_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_command("evaluate", run_dir, "--engine=keras")
    page = pathlib.Path("runs/evaluations/digits-digits-test-keras/report.html")
    own = report_of(run_dir)["test_accuracy"]
    assert re.fullmatch(
        rf"accuracy {own:.2%} \([\d.]+% to [\d.]+%\) on the test part, 360 of 1,797 "
        rf"images of digits, report {page}\n",
        capsys.readouterr().out,
    )
    assert {path.name for path in (tmp_path / page).parent.iterdir()} == WRITTEN
    assert f"keras-vit evaluate {run_dir}" in (tmp_path / page).read_text()


def test_the_function_has_the_defaults_of_the_flags(monkeypatch, weights):
    given = {}

    def evaluate(model, command, **arguments):
        given.update(arguments)
        raise RunError("enough")

    parameters = inspect.signature(evaluation.evaluate).parameters.values()
    monkeypatch.setattr(evaluation, "evaluate", evaluate)
    with pytest.raises(SystemExit, match="enough"):
        run_command("evaluate", weights)
    assert given == {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.name not in ("model", "command")
    }


def test_mistakes_at_the_command_line(weights, tmp_path, monkeypatch):
    for arguments, message in (
        (["--dataset=digits"], "one model"),
        ([weights, "digits", "--dataset=cifar10"], "one data set"),
        ([weights, "digits", "more"], "one data set"),
        ([weights], "^error: .*--dataset"),
        ([weights, "--dataset=digits", "--split=dev"], "test|validation|train"),
    ):
        with pytest.raises(SystemExit, match=message):
            run_command("evaluate", *arguments, f"--out_dir={tmp_path / 'out'}")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(SystemExit, match="TensorFlow"):
        run_command("evaluate", weights, "--dataset=digits")
    assert not list(tmp_path.iterdir())


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "real.json").write_text("[[970]]")
    assert real_labels.read("~/real.json") == [{970}]

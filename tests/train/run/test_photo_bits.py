"""--bits: photos of 12 bits in files of 16 are the same photos in every command."""

import csv
import functools
import io
import json
import math
import types
import warnings
import zlib

import numpy as np
import pytest
import same_runs
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit import structure
from train import recipes
from train.common.errors import RunError
from train.data import sources
from train.data.sources import corrupt, splits
from train.data.transforms import served_files
from train.data.transforms.decoding import decode_image, decode_in_graph
from train.models import finding, loaded_model
from train.models.exports import exported_model
from train.models.keras_files import load_model
from train.models.run_directory import RunDirectory
from train.run.classification import FineTuning
from zoo import photos
from zoo.network.preparation import ModelBits

SIZE = 32
SAID = "are taken for 12 bits, as the model {} says"
BITS = "bits must be 8 to 16 or None"


def save(path, *values):
    """Writes PNG files of 16 bits, 1.png and so on, each of one grey value."""
    path.mkdir(parents=True)
    for number, value in enumerate(values, 1):
        (path / f"{number}.png").write_bytes(png(np.full((8, 8, 1), value)))


def png(values):
    """A PNG of 16 bits, as bytes."""
    return tf.io.encode_png(np.asarray(values, "uint16")).numpy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos of 12 bits in PNG files of 16, which no chunk says."""
    path, rng = tmp_path_factory.mktemp("bits") / "photos", np.random.default_rng(0)
    for name, darkest in (("dark", 0), ("light", 2000)):
        (path / name).mkdir(parents=True)
        for index in range(6):
            values = rng.integers(darkest, darkest + 2096, (40, 50, 1))
            values[0, 0] = 4095
            (path / name / f"{index}.png").write_bytes(png(values))
    return path


# Data of training.


def test_every_part_of_a_data_set_has_the_pixels_that_predictions_have(folder):
    place, of_12 = str(folder), {"skip_corrupt": True, "bits": 12}
    data = sources.load(place, validation_fraction=0.3, **of_12)
    assert data.skipped == ()
    whole = sources.load(place, validation_fraction=None, **of_12).all
    parts = data.train, data.validation, data.test, whole, splits.pick(whole, [1, 7])
    for split in parts:
        for (record, _), path in zip(split.records(), split.names(), strict=True):
            # The highest 8 of 12 bits.
            expected = np.asarray(Image.open(path)).astype("int32")[..., None] >> 4
            expected = np.repeat(expected, 3, axis=2)
            np.testing.assert_array_equal(split.decode(record), expected)
            content = tf.io.read_file(path)
            found = decode_image(content, honour_exif=False, bits=12)
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(photos.decode(path, bits=12), expected)


@pytest.mark.parametrize("kind", ["jpeg", "png", "gif", "tiff"])
def test_bits_change_files_of_16_bits_alone(kind):
    file = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(file, kind)
    found = [decode_image(tf.constant(file.getvalue()), bits=n) for n in (None, 12)]
    np.testing.assert_array_equal(*found)


def test_values_of_more_bits_are_no_images_of_12(tmp_path):
    def load(name, bits=12, skip_corrupt=True, part=None):
        settings = {"validation_fraction": part, "skip_corrupt": skip_corrupt}
        return sources.load(str(tmp_path / name), bits=bits, **settings)

    for name in ("some", "all"):
        # No two of them are copies.
        for number, part in enumerate(("one", "two")):
            second = 4095 - number if name == "some" else 4100 + number
            save(tmp_path / name / part, 4096 + number, second)
    skipped = [path[-9:] for path in load("some").skipped]
    assert skipped == ["one/1.png", "two/1.png"]
    told = r"2 of the 4 .* cannot be decoded with bits=12: .*1\.png; leave out bits"
    with pytest.raises(sources.DataError, match=told):
        corrupt.check_readable(load("some", skip_corrupt=False).all)
    with pytest.raises(sources.DataError, match=r"with bits=12: .*; leave out bits=12"):
        load("all", part=0.0)
    remedy = r"with the model's 12 bits: .*; pass bits=16 if their values have more"
    with pytest.raises(sources.DataError, match=remedy):
        load("all", ModelBits(12), part=0.0)


def test_a_dark_image_in_a_container_is_named_by_its_split(folder):
    content = next(folder.glob("*/*.png")).read_bytes()
    split = splits.in_memory("birds test", [content], [0], tf.identity, str)
    with pytest.warns(UserWarning, match="^A file of birds test has values of 12 bits"):
        split.decode(tf.constant(content))


# Graphs, as they are exported.


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("bits", [10, 12, 16])
def test_graphs_decode_files_of_16_bits_to_the_same_pixels(bits, channels):
    values = np.random.default_rng(0).integers(0, 2**bits, (9, 7, 1), "uint16")
    # Transparency has 16 bits whatever the colours have.
    clear = np.concatenate([values, np.full_like(values, 65535)], axis=2)
    expected = photos.decode(png(values), bits)[..., :channels]
    for content in (png(values), png(clear), tf.io.encode_png(expected)):
        found = decode_in_graph(tf.constant(content), channels, bits)
        np.testing.assert_array_equal(found, expected)


def test_graphs_refuse_what_they_do_not_read_and_say_what_they_do():
    plain, said = png(np.full((4, 4, 1), 1000)), b"\0\0\0\1sBIT\12"
    said = plain[:33] + said + zlib.crc32(said[4:]).to_bytes(4, "big") + plain[33:]
    assert photos.decode(said, ModelBits(12)).max() == 1000 >> 2
    assert decode_in_graph(plain, 3, 12).numpy().max() == 1000 >> 4
    # In gray, a blue value of 5,000 is 570.
    blue = png(np.full((4, 4, 3), [0, 0, 5000]))
    np.testing.assert_array_equal(decode_in_graph(blue), photos.decode(blue))
    for content, channels, told in (
        (blue, 1, r"model's 12 bits.* Save it as JPEG\."),
        (blue, 3, r"model's 12 bits.* Save it as JPEG\."),
        (said, 3, "with an sBIT chunk"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=told) as refused:
            decode_in_graph(tf.constant(content), channels, 12)
        assert served_files(12) in str(refused.value)
    assert "below 4,096" in served_files() and "below 4,096" not in served_files(12)


# A run, and all that is done with its model.


@pytest.fixture(scope="module")
def run(folder, forks):
    """A run that was trained with --bits=12."""
    words = ["photos", "--smoke", "--bits=12", "--run_dir=run"]
    assert "nearly black" not in forks.output(folder.parent, "train.finetune", *words)
    return folder.parent / "run"


@pytest.fixture(scope="module")
def command(run, forks):
    """Runs a command beside the run; returns what it printed."""

    def perform(name, *words):
        output = forks.output(run.parent, f"train.{name}", *words)
        assert "nearly black" not in output or "--bits=16" in words
        return output

    return perform


def chances(run, name):
    """Probabilities of a class by the files' last two names, of an answer file."""
    rows = csv.DictReader((run.parent / name).read_text("utf-8").splitlines())
    return {
        "/".join(row["file"].split("/")[-2:]): (row["label"], float(row["probability"]))
        for row in rows
    }


@pytest.fixture(scope="module")
def own(run, command):
    """What the run's model answers with its bits, as the functions do."""
    model = load_model(run / "model.keras")
    files = sorted((run.parent / "photos").glob("*/*.png"))
    answers = keras_vit.classify(model, files, bits=12)
    rows = zip(files, answers, strict=True)
    return {
        f"{path.parent.name}/{path.name}": (label, pytest.approx(chance, abs=1e-4))
        for path, [(_, label, chance), _] in rows
    }


@pytest.fixture(scope="module")
def exported(run, command):
    """Exports of the run; beside them it is published, with a SavedModel."""
    formats = "--format=tflite,onnx"
    output = command("export", "run", formats, "--out=exported", "--images=4")
    assert SAID.format("run") in output
    command("publish", "run", "--to=registry")
    return run.parent / "exported"


FORMS = [
    *("exported/model.tflite", "exported/model.onnx"),
    *("registry/run", "registry/run/saved_model"),
]


@pytest.mark.parametrize("place", FORMS)
@pytest.mark.usefixtures("exported")
def test_every_form_of_a_runs_model_sees_photos_as_the_run_did(
    place, run, command, own
):
    name = f"{place.replace('/', '_')}.csv"
    output = command("predict", place, "photos", f"--out={name}")
    assert SAID.format(place) in output
    assert chances(run, name) == own


def test_a_run_and_its_predictions_have_its_bits(run, command, own):
    assert json.loads((run / "config.json").read_text())["bits"] == 12
    assert same_runs.report(run)["config"]["bits"] == 12
    predict = functools.partial(command, "predict", "run", "photos")
    assert SAID.format("run") in predict("--out=own.csv")
    assert SAID.format("run") not in predict("--bits=12", "--out=given.csv")
    predict("--bits=16", "--out=dark.csv")
    assert chances(run, "own.csv") == chances(run, "given.csv") == own
    assert chances(run, "dark.csv") != own


@pytest.mark.usefixtures("exported")
def test_other_commands_see_photos_as_the_run_of_a_model_did(run, command, own):
    for name, place, *words in (
        ("explain", "run", "--shown=1", "--out=explained"),
        ("evaluate", "registry/run", "--out_dir=evaluated"),
        ("few_shot", "run", "--shots=1", "--out_dir=few"),
    ):
        assert SAID.format(place) in command(name, place, "photos", *words)
    report = same_runs.report(run.parent / "explained")
    assert report["bits"] == 12
    shown = report["photos"]
    assert {one["name"]: tuple(one["predictions"][0][1:]) for one in shown} == own
    report = same_runs.report(run.parent / "evaluated")
    losses = [
        -math.log(chance.expected if name.startswith(label) else 1 - chance.expected)
        for name, (label, chance) in own.items()
    ]
    assert report["config"]["bits"] == 12
    assert report["all_loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    few = json.loads((run.parent / "few" / "few_shot.json").read_text())
    assert few["bits"] == 12


def test_the_file_of_a_runs_model_says_its_bits(run, forks):
    model = load_model(run / "model.keras")
    path = run.parent / "photos" / "light" / "0.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = keras_vit.classify(model, path)
    assert found == keras_vit.classify(model, path, bits=12)
    assert found != keras_vit.classify(model, path, bits=16)
    keras_vit.save_released_weights(model, run.parent / "weights.safetensors")
    again = keras_vit.load_model(run.parent / "weights.safetensors", include_top=False)
    body = keras_vit.features(model)
    body.save(run.parent / "features.keras")
    part = loaded_model.load(str(run / "model.keras"), features=True).model
    for one in (model, again, body, load_model(run.parent / "features.keras"), part):
        assert structure.bits_of(one) == 12
    # A dark photo is a warning that names the flag, if the model says no bits.
    model.layers[-1].bits = None
    model.save(run.parent / "other.keras")
    words = ["other.keras", "photos/light/0.png", "--out=warned.csv"]
    output = forks.output(run.parent, "train.predict", *words)
    assert output.count("warning: ") == 1
    assert "--bits=12" in output and " bits=12" not in output


@pytest.mark.usefixtures("exported")
def test_serve_bytes_sees_photos_as_the_run_of_its_model_did(run):
    serve = tf.saved_model.load(str(run.parent / "registry" / "run" / "saved_model"))
    serve = serve.signatures["serve_bytes"]
    paths = sorted((run.parent / "photos").glob("*/*.png"))[::3]
    images = np.stack([photos.prepare(path, SIZE, bits=12) for path in paths])
    found = serve(image_bytes=tf.constant([path.read_bytes() for path in paths]))
    expected = load_model(run / "model.keras")(images)
    np.testing.assert_allclose(found["logits"], expected, atol=1e-4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than .* 12 bits"):
        serve(image_bytes=tf.constant([png(np.full((8, 8, 1), 4096))]))


def test_bits_that_no_export_or_run_can_have_are_refused(run, exported, tmp_path):
    import onnx

    model = onnx.load(exported / "model.onnx")
    [bits] = [entry for entry in model.metadata_props if entry.key == "bits"]
    bits.value = "77"
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(RunError, match=f"{BITS}, got 77"):
        exported_model.load(tmp_path / "model.onnx")
    config = json.loads((run / "config.json").read_text()) | {"bits": 77}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=r"config\.json is damaged \(bits .* got 77\)"):
        RunDirectory(tmp_path).read_config()


def test_training_without_bits_leaves_none_of_those_of_its_weights(tmp_path):
    config = keras_vit.ViTConfig(
        hidden_size=8, num_layers=1, num_heads=1, mlp_dim=8, patch_size=16
    )
    model = keras_vit.VisionTransformer(config, image_size=SIZE, classes=2)
    structure.set_bits(model, np.int64(12))
    weights = str(tmp_path / "weights.safetensors")
    keras_vit.save_released_weights(model, weights)
    recipe = recipes.for_dataset("digits").override(model=config, weights=weights)
    for refuse in (
        lambda bits: recipe.override(bits=bits),
        lambda bits: sources.load("digits", bits=bits),
        lambda bits: finding.bits_of("vit-b16/imagenet21k", None, requested=bits),
    ):
        with pytest.raises(ValueError, match=BITS):
            refuse(17)
    for bits in (None, 10):
        task = FineTuning(recipe.override(image_size=SIZE, bits=bits))
        task.build(types.SimpleNamespace(class_names=("a", "b"), train=None))
        assert structure.bits_of(task.model) == bits
        assert structure.bits_of(keras_vit.features(task.model)) == bits

"""--bits: photos of 12 bits in files of 16 are the same photos in every command."""

import csv
import io
import json
import math
import shutil
import types
import warnings
import zlib

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import structure
from train.common.errors import RunError
from train.data.sources.splits import pick
from train.models import finding, loaded_model
from train.models.exports import exported_model
from train.models.keras_files import load_model
from train.models.run_directory import RunDirectory
from train.recipes import recipe
from zoo import photos
from zoo.preparation import ModelBits

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the input needs TensorFlow"
)

SIZE = 32
COMMANDS = {
    "finetune": [],
    "pretrain": [],
    "masked_patches": [],
    "study": ["--study=examples"],
    "evaluate": ["run"],
    "few_shot": ["run"],
    "explain": ["run", "photo.png"],
    "export": ["run", "--format=onnx", "--out=out"],
    "predict": ["run", "photo.png"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos of 12 bits in PNG files of 16, which no chunk says."""
    path, rng = tmp_path_factory.mktemp("bits") / "photos", np.random.default_rng(0)
    for number, name in enumerate(("dark", "light")):
        (path / name).mkdir(parents=True)
        for index in range(6):
            values = rng.integers(2000 * number, 2000 * number + 2096, (40, 50))
            values[0, 0] = 4095
            Image.fromarray(values.astype("uint16")).save(path / name / f"{index}.png")
    return path


def expected(path):
    """The pixels by the definition of 12 bits: the highest 8 of them."""
    values = np.asarray(Image.open(path)).astype("int32")
    return np.repeat((values >> 4).astype("uint8")[..., None], 3, axis=2)


def test_every_part_of_a_data_set_has_the_pixels_that_predictions_have(folder):
    from train.data import pipeline, sources

    data = sources.load(
        str(folder), validation_fraction=0.3, skip_corrupt=True, bits=12
    )
    assert data.skipped == ()
    whole = sources.load(str(folder), validation_fraction=None, bits=12)
    parts = [data.train, data.validation, data.test, whole.all, pick(whole.all, [1, 7])]
    for split in parts:
        for (record, _), path in zip(split.records(), split.names(), strict=True):
            found = split.decode(record).numpy()
            np.testing.assert_array_equal(found, expected(path))
            np.testing.assert_array_equal(found, photos.decode(path, bits=12))
    settings = {"image_size": (SIZE, SIZE), "batch_size": 12}
    [(images, _)] = pipeline.evaluation_batches(whole.all, **settings)
    prepared = [photos.prepare(path, SIZE, bits=12) for path in whole.all.names()]
    np.testing.assert_array_equal(images, prepared)


def test_files_of_8_bits_stay_as_they_are(folder):
    from train.data.transforms.decoding import decode_image

    image = Image.open(next(folder.glob("*/*.png"))).convert("L").convert("RGB")
    for kind in ("jpeg", "png", "gif", "tiff"):
        image.save(folder.parent / f"photo.{kind}")
        content = tf.constant((folder.parent / f"photo.{kind}").read_bytes())
        for honour_exif in (True, False):
            plain, of_12 = (
                decode_image(content, honour_exif=honour_exif, bits=bits)
                for bits in (None, 12)
            )
            np.testing.assert_array_equal(plain, of_12)


def test_bits_hold_where_exif_does_not_count_as_for_tfds(folder):
    from train.data.transforms.decoding import decode_image

    path = next(folder.glob("*/*.png"))
    content = tf.constant(path.read_bytes())
    found = decode_image(content, honour_exif=False, bits=12)
    np.testing.assert_array_equal(found, expected(path))


def test_values_of_more_bits_are_no_images_of_12(folder, tmp_path):
    from train.data import sources
    from train.data.sources import corrupt

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((8, 8), 4096, "uint16")).save(tmp_path / name / "1.png")
        Image.fromarray(np.full((8, 8), 4095, "uint16")).save(tmp_path / name / "2.png")
    data = sources.load(
        str(tmp_path), validation_fraction=None, skip_corrupt=True, bits=12
    )
    assert [path[-9:] for path in data.skipped] == ["one/1.png", "two/1.png"]
    data = sources.load(str(tmp_path), validation_fraction=None, bits=12)
    with pytest.raises(
        sources.DataError,
        match=r"2 of the 4 .* cannot be decoded with bits=12: .*1\.png; leave out bits",
    ):
        corrupt.check_readable(data.all)
    for name in ("one", "two"):
        (tmp_path / name / "1.png").replace(tmp_path / name / "2.png")
        shutil.copy(tmp_path / name / "2.png", tmp_path / name / "1.png")
    with pytest.raises(sources.DataError, match=r"with bits=12: .*; leave out bits=12"):
        sources.load(str(tmp_path), skip_corrupt=True, bits=12)
    remedy = r"with the model's 12 bits: .*; pass bits=16 if their values have more"
    with pytest.raises(sources.DataError, match=remedy):
        sources.load(str(tmp_path), skip_corrupt=True, bits=ModelBits(12))


def test_commands_say_how_to_read_values_of_more_bits(run, command, tmp_path):
    for name in ("dark", "light"):
        (tmp_path / name).mkdir()
        for number in (1, 2):
            bright = Image.fromarray(np.full((8, 8), 4096, "uint16"))
            bright.save(tmp_path / name / f"{number}.png")
    output = command("predict", "run", str(tmp_path), status=3)
    said = (
        "1.png has values up to 4,096, more than the model's 12 bits: pass --bits=16."
    )
    assert said in output
    output = command("predict", "run", str(tmp_path), "--bits=12", status=3)
    assert "1.png has values up to 4,096, more than --bits=12: leave out" in output
    for name in ("evaluate", "explain"):
        output = command(name, "run", str(tmp_path), status=1)
        assert "the model's 12 bits" in output and "pass --bits=16" in output


def test_the_input_of_training_names_each_dark_file_once(folder):
    from train.data import sources

    whole = sources.load(str(folder), validation_fraction=None).all
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for record, _ in whole.records():
            whole.decode(record)
    told = [str(one.message).partition(" has values of 12 bits")[0] for one in shown]
    assert told == whole.names()


def test_images_in_a_container_are_called_by_their_split(folder):
    from train.data.sources import splits

    content = next(folder.glob("*/*.png")).read_bytes()
    split = splits.in_memory("birds test", [content], [0], tf.identity, str)
    with pytest.warns(UserWarning, match="^A file of birds test has values of 12 bits"):
        split.decode(tf.constant(content))


@pytest.fixture(scope="module")
def run(folder, forks):
    """A run that was trained with --bits=12."""
    words = ["photos", "--smoke", "--bits=12", "--run_dir=run"]
    code, output = forks.run(["train.finetune", *words], folder.parent, {})
    assert code == 0, output
    assert "nearly black" not in output
    return folder.parent / "run"


@pytest.fixture
def command(run, forks):
    """Runs a command beside the run; returns what it printed."""

    def perform(name, *words, status=0):
        code, output = forks.run([f"train.{name}", *words], run.parent, {})
        assert code == status, output
        return output

    return perform


def test_a_run_remembers_its_bits_and_others_have_none(run):
    assert json.loads((run / "config.json").read_text())["bits"] == 12
    assert json.loads((run / "report.json").read_text())["config"]["bits"] == 12
    plain = recipe.Recipe("digits", "ViT-Ti_16", None, SIZE, 10, warmup_steps=0)
    assert plain.deciding["bits"] is None
    assert finding.bits_of("run", None) == (None, [])
    assert finding.bits_of("run", 12, given=16) == (16, [])


def chances(path):
    """Probabilities of a class by the files' last two names, of an answer file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        "/".join(row["file"].split("/")[-2:]): (row["label"], float(row["probability"]))
        for row in rows
    }


def test_commands_see_photos_as_the_run_of_a_model_did(run, command):
    said = "are taken for 12 bits, as the model run says, unless a file says its own; "
    assert said in command("predict", "run", "photos", "--out=own.csv")
    told = command("predict", "run", "photos", "--bits=12", "--out=given.csv")
    assert said not in told
    command("predict", "run", "photos", "--bits=16", "--out=dark.csv")
    own, given, dark = (
        chances(run.parent / f"{name}.csv") for name in ("own", "given", "dark")
    )
    assert own == given
    shift = [abs(own[name][1] - dark[name][1]) for name in own]
    assert max(shift) > 1e-3

    output = command("explain", "run", "photos", "--shown=1", "--out=explained")
    assert said in output and "nearly black" not in output
    explained = json.loads((run.parent / "explained" / "report.json").read_text())
    assert explained["bits"] == 12 and len(explained["photos"]) == len(own)
    for photo in explained["photos"]:
        _, label, chance = photo["predictions"][0]
        known, probability = own[photo["name"]]
        assert label == known
        assert chance == pytest.approx(probability, abs=2e-6)

    output = command("evaluate", "run", "photos", "--out_dir=evaluated")
    assert said in output
    report = json.loads((run.parent / "evaluated" / "report.json").read_text())
    losses = [
        -math.log(chance if name.startswith(label) else 1 - chance)
        for name, (label, chance) in own.items()
    ]
    assert report["config"]["bits"] == 12
    assert report["all_loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    command("evaluate", "run", "photos", "--bits=16", "--out_dir=dark")
    other = json.loads((run.parent / "dark" / "report.json").read_text())
    assert abs(other["all_loss"] - report["all_loss"]) > 1e-3


def test_the_warning_of_dark_photos_names_a_flag_of_the_command(run, command):
    model = load_model(run / "model.keras")
    model.layers[-1].bits = None
    model.save(run.parent / "other.keras")
    photo = "photos/light/0.png"
    output = command("predict", "other.keras", photo, "--out=warned.csv")
    assert output.count("warning: ") == 1
    assert "--bits=12" in output and " bits=12" not in output


def test_the_file_of_a_runs_model_says_its_bits(run):
    model = load_model(run / "model.keras")
    path = run.parent / "photos" / "light" / "0.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = keras_vit.classify(model, path)
        features = keras_vit.embed(model, path)
    assert found == keras_vit.classify(model, path, bits=12)
    assert found != keras_vit.classify(model, path, bits=16)
    np.testing.assert_array_equal(features, keras_vit.embed(model, path, bits=12))
    keras_vit.save_released_weights(model, run.parent / "weights.safetensors")
    again = keras_vit.load_model(run.parent / "weights.safetensors", include_top=False)
    np.testing.assert_array_equal(keras_vit.embed(again, path), features)


@pytest.fixture(scope="module")
def exported(run, forks):
    """Exports of the run in each format."""
    formats = "--format=saved_model,tflite,onnx"
    for words in (["--out=exported"], ["--out=bodies", "--features"]):
        words = ["run", formats, *words, "--images=4"]
        code, output = forks.run(["train.export", *words], run.parent, {})
        assert code == 0, output
        assert "are taken for 12 bits, as the model run says" in output
    return run.parent / "exported"


def assert_same(run, path):
    """The answers in a file are those of the run's model with its bits."""
    model = load_model(run / "model.keras")
    found = chances(path)
    files = [str(run.parent / "photos" / name) for name in found]
    of_run = keras_vit.classify(model, files, bits=12)
    for (label, chance), [(_, expected, probability), _] in zip(
        found.values(), of_run, strict=True
    ):
        assert label == expected
        assert chance == pytest.approx(probability, abs=1e-4)


@pytest.mark.parametrize("name", ["saved_model", "model.tflite", "model.onnx"])
def test_exports_see_photos_as_the_run_of_their_model_did(run, command, exported, name):
    said = f"are taken for 12 bits, as the model exported/{name} says, unless"
    output = command("predict", f"exported/{name}", "photos", f"--out={name}.csv")
    assert said in output and "nearly black" not in output
    dark = command(
        *("predict", f"exported/{name}", "photos", "--bits=16", f"--out={name}16.csv")
    )
    assert said not in dark
    assert_same(run, run.parent / f"{name}.csv")
    with pytest.raises(AssertionError):
        assert_same(run, run.parent / f"{name}16.csv")
    path = exported_model.find(run.parent / "bodies" / name)
    bodies = exported_model.load(path)
    assert (bodies.output, bodies.bits) == ("features", 12)


def test_serve_bytes_sees_photos_as_the_run_of_its_model_did(run, exported):
    loaded = tf.saved_model.load(str(exported / "saved_model" / "1"))
    model = load_model(run / "model.keras")
    paths = sorted((run.parent / "photos").glob("*/*.png"))[::3]
    images = np.stack([photos.prepare(path, SIZE, bits=12) for path in paths])
    files = tf.constant([path.read_bytes() for path in paths])
    found = loaded.signatures["serve_bytes"](image_bytes=files)
    np.testing.assert_allclose(found["logits"], model(images), atol=1e-4)
    bright = io.BytesIO()
    Image.fromarray(np.full((8, 8), 4096, "uint16")).save(bright, "PNG")
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than .* 12 bits"):
        loaded.signatures["serve_bytes"](image_bytes=[bright.getvalue()])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("bits", [10, 12, 16])
def test_graphs_decode_files_of_16_bits_to_the_same_pixels(bits, channels):
    from train.data.transforms.decoding import decode_in_graph

    values = np.random.default_rng(0).integers(0, 2**bits, (9, 7), "uint16")
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    found = decode_in_graph(tf.constant(file.getvalue()), channels, bits)
    expected = photos.decode(file.getvalue(), bits)[..., :channels]
    np.testing.assert_array_equal(found, expected)
    file = io.BytesIO()
    Image.fromarray(expected[..., 0]).save(file, "PNG")
    found = decode_in_graph(tf.constant(file.getvalue()), channels, bits)
    np.testing.assert_array_equal(found, expected)


def png(values):
    """A PNG of 16 bits in colours, as bytes."""
    return tf.io.encode_png(values.astype("uint16")).numpy()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_colour_of_more_bits_is_refused_in_graphs_by_what_they_read(channels):
    """In gray, a blue value of 5,000 was 570."""
    from train.data.transforms import served_files
    from train.data.transforms.decoding import decode_in_graph

    blue = png(np.full((4, 4, 3), [0, 0, 5000]))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"model's 12 bits.* Save it as JPEG\."
    ) as refused:
        decode_in_graph(tf.constant(blue), channels, 12)
    assert served_files(12) in str(refused.value)
    assert "below 4,096" in served_files() and "below 4,096" not in served_files(12)
    np.testing.assert_array_equal(decode_in_graph(blue), photos.decode(blue))


def test_bits_are_those_of_colours_and_not_of_transparency_in_graphs():
    from train.data.transforms.decoding import decode_in_graph

    for colours in (1, 3):
        clear = png(np.full((4, 4, colours + 1), [*[4095] * colours, 65535]))
        found = decode_in_graph(clear, 3, 12)
        np.testing.assert_array_equal(found, photos.decode(clear, 12))


def test_graphs_refuse_photos_that_say_their_bits_whatever_the_model_says():
    from train.data.transforms.decoding import decode_in_graph

    said = b"\0\0\0\1sBIT\12" + zlib.crc32(b"sBIT\12").to_bytes(4, "big")
    plain = png(np.full((4, 4, 1), 1000))
    encoded = plain[:33] + said + plain[33:]
    assert photos.decode(encoded, ModelBits(12)).max() == 1000 >> 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="with an sBIT chunk"):
        decode_in_graph(encoded, 3, 12)
    assert decode_in_graph(plain, 3, 12).numpy().max() == 1000 >> 4


def test_features_of_a_runs_model_know_its_bits(run):
    model = load_model(run / "model.keras")
    features = keras_vit.features(model)
    features.save(run.parent / "features.keras")
    again = load_model(run.parent / "features.keras")
    for one in (model, features, again):
        assert structure.bits_of(one) == 12
    part = loaded_model.load(str(run / "model.keras"), features=True)
    assert structure.bits_of(part.model) == 12


def test_training_without_bits_leaves_none_of_those_of_its_weights(tmp_path):
    from train.run.classification import FineTuning

    config = keras_vit.ViTConfig(
        hidden_size=8, num_layers=1, num_heads=1, mlp_dim=8, patch_size=16
    )
    model = keras_vit.VisionTransformer(config, image_size=SIZE, classes=2)
    structure.set_bits(model, np.int64(12))
    weights = str(tmp_path / "weights.safetensors")
    keras_vit.save_released_weights(model, weights)
    for bits in (None, 10):
        settings = recipe.Recipe(
            "x", config, weights, SIZE, 10, warmup_steps=0, bits=bits
        )
        task = FineTuning(settings)
        task.build(types.SimpleNamespace(class_names=("a", "b"), train=None))
        assert structure.bits_of(task.model) == bits
        assert structure.bits_of(keras_vit.features(task.model)) == bits


def test_a_published_model_sees_photos_as_its_run_did(run, command):
    command("publish", "run", "--to=registry")
    assert (run.parent / "registry" / "run" / "saved_model").is_dir()
    for place in ("registry/run", "registry/run/saved_model"):
        name = f"{place.replace('/', '_')}.csv"
        output = command("predict", place, "photos", f"--out={name}")
        assert f"are taken for 12 bits, as the model {place} says" in output
        assert_same(run, run.parent / name)
    for name, words, report in (
        ("few_shot", ["photos", "--shots=1", "--out_dir=few"], "few/few_shot.json"),
        ("explain", ["photos/dark/0.png", "--out=shown"], "shown/report.json"),
        ("evaluate", ["photos", "--out_dir=all"], "all/report.json"),
    ):
        output = command(name, "registry/run", *words)
        assert "are taken for 12 bits, as the model registry/run says" in output
        assert "nearly black" not in output
        found = json.loads((run.parent / report).read_text())
        assert found.get("config", found)["bits"] == 12


def test_bits_that_no_export_has_are_refused(exported, tmp_path):
    import onnx

    model = onnx.load(exported / "model.onnx")
    for entry in model.metadata_props:
        if entry.key == "bits":
            entry.value = "77"
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(RunError, match="bits must be 8 to 16 or None, got 77"):
        exported_model.load(tmp_path / "model.onnx")


def test_features_of_a_run_are_of_its_bits(run, command):
    output = command("few_shot", "run", "photos", "--shots=1", "--out_dir=probe")
    assert "are taken for 12 bits" in output
    assert (
        json.loads((run.parent / "probe" / "few_shot.json").read_text())["bits"] == 12
    )


def test_a_run_goes_on_with_the_same_bits_only(run, command):
    words = ["photos", "--smoke", "--run_dir=run"]
    for other, named in (("--bits=10", "10"), (None, "None")):
        output = command("finetune", *words, *filter(None, [other]), status=1)
        assert f"a run with other settings: bits 12 (now {named})" in output


def test_the_help_of_bits_says_where_a_model_carries_them(forks, tmp_path):
    _, output = forks.run(["train.predict", "--help"], tmp_path, {})
    said = "what a file's sBIT chunk says, else those that the model was trained with, "
    said += "which its run, file, export and published model carry, else 16."
    assert said in " ".join(output.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_reads_photos_refuses_bits_that_are_none(
    name, forks, tmp_path
):
    for value in ("0", "17", "1e400", "x"):
        words = [*COMMANDS[name], f"--bits={value}"]
        code, output = forks.run([f"train.{name}", *words], tmp_path, {})
        assert code == 1 and f"--bits={value} must be an integer in the range" in output
    assert not list(tmp_path.iterdir())


def test_bits_of_python_are_checked(tmp_path):
    from train.data import sources

    of_numpy = recipe.Recipe("digits", "ViT-Ti_16", None, SIZE, 600, bits=np.int64(12))
    assert json.dumps(of_numpy.bits) == "12"
    for bits in (0, 17, "x", 12.0, True):
        with pytest.raises(ValueError, match="bits must be 8 to 16 or None"):
            sources.load("digits", bits=bits)
        with pytest.raises(ValueError, match="bits must be 8 to 16 or None"):
            recipe.Recipe("digits", "ViT-Ti_16", None, SIZE, 600, bits=bits)
        with pytest.raises(ValueError, match="bits must be 8 to 16 or None"):
            finding.bits_of("vit-b16/imagenet21k", None, given=bits)


def test_bits_that_a_run_cannot_have_had_are_named_with_their_file(run, tmp_path):
    config = json.loads((run / "config.json").read_text()) | {"bits": 77}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=r"config\.json is damaged \(bits .* got 77\)"):
        RunDirectory(tmp_path).read_config()

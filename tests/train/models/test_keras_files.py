"""`.keras` files that are damaged, of another kind, or of another library."""

import json
import random
import re
import shutil
import zipfile

import h5py
import keras
import numpy as np
import pytest

import keras_vit
from train.common.errors import RunError
from train.models import loaded_model
from train.models.keras_files import load_model

CONFIG = keras_vit.ViTConfig(
    hidden_size=32, num_layers=1, num_heads=2, mlp_dim=32, patch_size=8
)
_JSON, _WEIGHTS = "config.json", "model.weights.h5"
# An array of it.
NAME = "layers/classification_head/vars/0"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small model in a file."""
    path = tmp_path_factory.mktemp("models") / "whole.keras"
    keras_vit.VisionTransformer(CONFIG, image_size=32, classes=3).save(path)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "other.keras"


def refused(path, told):
    """Checks that a file is refused by one clear error."""
    with pytest.raises(RunError) as caught:
        loaded_model.load(str(path))
    message = str(caught.value)
    assert str(path) in message and len(message) < 1000 and message.isprintable()
    assert re.search(told, message), message


def rewritten(whole, path, change, compression=zipfile.ZIP_STORED):
    """Copies an archive, with its members changed."""
    with zipfile.ZipFile(whole) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in change(members).items():
            archive.writestr(name, content)
    return path


def test_flipped_bits(whole, path):
    data = whole.read_bytes()
    expected = keras.saving.load_model(whole).get_weights()
    seen = 0
    for bit in random.Random(0).sample(range(8 * len(data)), 150):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            model = load_model(path)
        except RunError as error:
            assert str(path) in str(error) and len(str(error)) < 1000
            seen += 1
        else:
            for found, right in zip(model.get_weights(), expected, strict=True):
                np.testing.assert_array_equal(found, right)
    # A few are in what a zip archive says besides, such as the time of day.
    assert seen > 145


def test_cut_short(whole, path):
    data = whole.read_bytes()
    rng = random.Random(0)
    for size in (0, 1, 2, 30, len(data) - 1, *rng.sample(range(len(data)), 30)):
        path.write_bytes(data[:size])
        refused(path, "copy, download or save it again")


def test_a_bug_is_not_called_damage(path, monkeypatch):
    path.write_bytes(b"PK\x03\x04" + bytes(500))
    monkeypatch.delattr(zipfile, "ZipFile")
    with pytest.raises(AttributeError, match="ZipFile"):
        load_model(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "it is empty"),
        (b"<!DOCTYPE html><html>404</html>", r"no .keras file \(it starts with b'<!DO"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5 file under another name"),
        (b"PK", "damaged or cut short"),
        (b"PK\x03\x04" + bytes(500), "damaged or cut short"),
    ],
)
def test_files_of_other_kinds(content, told, path):
    refused(path, "there is no such file")
    path.write_bytes(content)
    refused(path, told)
    path.unlink()
    path.mkdir()
    refused(path, "it is a folder")


def test_an_archive_that_was_compressed_again_is_read(whole, path):
    rewritten(whole, path, dict, zipfile.ZIP_DEFLATED)
    assert load_model(path).output_shape == (None, 3)


ARCHIVES = [
    ({_JSON: None, _WEIGHTS: None}, "not of a model that Keras saved"),
    ({_WEIGHTS: None}, "no model.weights.h5"),
    *(
        ({_JSON: config}, "damaged")
        for config in (b"{", b"[]", b"{}", b"[" * 100_000, b"\xff")
    ),
    ({"assets/zeros": bytes(10_000_000)}, "bytes hold 10"),
    ({_WEIGHTS: bytes(10_000_000)}, "bytes hold 10"),
]


@pytest.mark.parametrize(("others", "told"), ARCHIVES)
def test_archives_of_something_else_or_that_fill_the_memory(others, told, whole, path):
    def changed(members):
        members |= others
        return {name: content for name, content in members.items() if content}

    refused(rewritten(whole, path, changed, zipfile.ZIP_DEFLATED), told)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(whole, path):
    shutil.copyfile(whole, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(_JSON, archive.read(_JSON))
    refused(path, "two of its members")


@pytest.mark.parametrize(
    ("shape", "external", "told"),
    [
        (
            (32, 3),
            [("/etc/passwd", 0, 384)],
            f"{NAME!r}, an array whose numbers lie in",
        ),
        ((10**12,), None, "bytes of model.weights.h5 hold 4000000"),
    ],
)
def test_weights_elsewhere_or_without_bytes_are_refused_before_keras(
    shape, external, told, whole, path, monkeypatch
):
    def changed(members):
        weights = path.with_suffix(".h5")
        weights.write_bytes(members[_WEIGHTS])
        with h5py.File(weights, "a") as file:
            del file[NAME]
            file.create_dataset(NAME, shape, "f4", external=external)
        return members | {_WEIGHTS: weights.read_bytes()}

    rewritten(whole, path, changed)
    monkeypatch.setattr(keras.saving, "load_model", None)
    refused(path, told)


VERSION = re.escape(keras.__version__)
FOREIGN = {
    "module": "keras_hub.layers",
    "class_name": "ViTPatching",
    "registered_name": "keras_hub>ViTPatching",
}


@pytest.mark.parametrize(
    ("layer", "entries", "config", "told"),
    [
        (1, FOREIGN, {}, "its keras_hub.layers.ViTPatching is from neither Keras nor "
         "keras_vit.*the library that it comes from"),
        (0, {"class_name": "LayerOfTomorrow"}, {}, f"Keras {VERSION} saved it, and "
         f"Keras {VERSION} .*LayerOfTomorrow.*install that Keras"),
        (1, {}, {"hidden_size": 48}, "cannot load it"),
        (0, {}, {"batch_shape": (None, 16_384, 16_384, 3)}, "8,192 per side"),
        (0, {}, {"batch_shape": (1, 1, 100_000, 3)}, "where 8,192 per side"),
        # No memory is taken for weights that the file does not hold.
        (-1, {}, {"units": 10**10}, "weights of shape .*10000000000"),
    ],
)  # fmt: skip
def test_what_keras_cannot_or_should_not_make(
    layer, entries, config, told, whole, path
):
    def changed(members):
        content = json.loads(members[_JSON])
        changed = content["config"]["layers"][layer]
        changed.update(entries)
        changed["config"].update(config)
        return members | {_JSON: json.dumps(content)}

    refused(rewritten(whole, path, changed), told)
    assert load_model(whole).output_shape == (None, 3)


def test_code_is_not_loaded_nor_a_model_of_two_outputs(path):
    images = keras.Input((8, 8, 3))
    outputs = keras.layers.Lambda(lambda values: values[:, 0, 0])(images)
    keras.Model(images, outputs).save(path)
    refused(path, "Python code in a Lambda layer")
    flat = keras.layers.Flatten()(images)
    keras.Model(images, [flat, flat]).save(path)
    refused(path, "1 known inputs and 2 outputs")


def test_what_was_compiled_with_something_of_ones_own_is_loaded(whole, path):
    @keras.saving.register_keras_serializable(package="test_keras_files")
    def own_loss(labels, logits):
        return keras.ops.mean(logits, axis=-1)

    model = keras.saving.load_model(whole)
    model.compile("sgd", own_loss)
    model.save(path)
    registered = keras.saving.get_custom_objects()
    loss = registered.pop("test_keras_files>own_loss")
    try:
        assert loaded_model.load(str(path)).model.output_shape == (None, 3)
    finally:
        registered["test_keras_files>own_loss"] = loss


def test_a_run_says_how_its_model_is_written_again(whole, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "model.keras").write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(RunError, match="model.keras .*command of its run again"):
        loaded_model.load(str(tmp_path))
    shutil.copyfile(whole, tmp_path / "model.keras")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunError, match="config.json is damaged .*--dataset"):
        loaded_model.load(str(tmp_path))
    assert loaded_model.load(str(tmp_path / "model.keras")).config == {}

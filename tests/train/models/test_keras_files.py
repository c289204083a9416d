"""`.keras` files that are damaged, of another kind, or of another library."""

import json
import pathlib
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
_JSON = "config.json"
# An array of it.
NAME = "layers/classification_head/vars/0"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small model in a file."""
    path = tmp_path_factory.mktemp("models") / "whole.keras"
    keras_vit.VisionTransformer(CONFIG, image_size=32, classes=3).save(path)
    return path


def refused(path):
    """Returns why a file is refused, which must be one clear error."""
    with pytest.raises(RunError) as caught:
        loaded_model.load(str(path))
    message = str(caught.value)
    assert str(path) in message and len(message) < 1000 and message.isprintable()
    return message


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def check_flips(whole, path, bits):
    """Each is refused, or was in what a zip archive says besides."""
    data = whole.read_bytes()
    expected = keras.saving.load_model(whole).get_weights()
    seen = 0
    for bit in bits:
        path.write_bytes(flipped(data, bit))
        try:
            model = load_model(path)
        except RunError as error:
            assert str(path) in str(error) and len(str(error)) < 1000
            seen += 1
        else:
            for found, right in zip(model.get_weights(), expected, strict=True):
                np.testing.assert_array_equal(found, right)
    return seen


def test_flipped_bits(whole, tmp_path):
    size = 8 * whole.stat().st_size
    bits = random.Random(0).sample(range(size), 150)
    # A few are in what a zip archive says besides, such as the time of day.
    assert check_flips(whole, tmp_path / "flipped.keras", bits) > 145


@pytest.mark.soak
def test_every_byte_of_the_archive(whole, tmp_path):
    data = whole.read_bytes()
    size = len(data)
    places = [*range(120), *range(data.index(b"PK\x01\x02"), size)]
    bits = [8 * place + place % 8 for place in places]
    assert check_flips(whole, tmp_path / "flipped.keras", bits) > len(bits) / 2


def test_cut_short(whole, tmp_path):
    data = whole.read_bytes()
    path = tmp_path / "cut.keras"
    rng = random.Random(0)
    for size in (0, 1, 2, 30, len(data) - 1, *rng.sample(range(len(data)), 100)):
        path.write_bytes(data[:size])
        assert "copy, download or save it again" in refused(path)


def test_a_bug_is_not_called_damage(tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    path.write_bytes(b"PK\x03\x04" + bytes(500))
    monkeypatch.delattr(zipfile, "ZipFile")
    with pytest.raises(AttributeError, match="ZipFile"):
        load_model(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"<!DOCTYPE html><html>404</html>", r"no .keras file \(it starts with b'<!DO"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5 file under another name"),
        (b"PK", "damaged or cut short"),
        (b"PK\x03\x04" + bytes(500), "damaged or cut short"),
    ],
)
def test_other_files(content, reason, tmp_path):
    path = tmp_path / "other.keras"
    path.write_bytes(content)
    assert re.search(reason, refused(path))


def test_no_file(tmp_path):
    assert "there is no such file" in refused(tmp_path / "none.keras")
    (tmp_path / "folder.keras").mkdir()
    assert "it is a folder" in refused(tmp_path / "folder.keras")


def rewritten(whole, path, change, compression=zipfile.ZIP_STORED):
    """Copies an archive, with its members changed."""
    with zipfile.ZipFile(whole) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in change(members).items():
            archive.writestr(name, content)
    return path


def test_compressed_again(whole, tmp_path):
    """Some tools do, and Keras reads it."""
    path = rewritten(whole, tmp_path / "small.keras", dict, zipfile.ZIP_DEFLATED)
    assert load_model(path).output_shape == (None, 3)


def test_archives_of_something_else(whole, tmp_path):
    path = tmp_path / "other.keras"
    np.savez(path.with_suffix(".npz"), a=np.zeros(3))
    shutil.copyfile(path.with_suffix(".npz"), path)
    assert "not of a model that Keras saved" in refused(path)
    rewritten(whole, path, lambda members: {"config.json": members["config.json"]})
    assert "no model.weights.h5" in refused(path)
    for config in (b"{", b"[]", b"{}", b"[" * 100_000, b"\xff"):
        rewritten(whole, path, lambda members, new=config: {**members, _JSON: new})
        assert "damaged" in refused(path)


def test_archives_that_fill_the_memory(whole, tmp_path):
    path = tmp_path / "bomb.keras"
    for name in ("assets/zeros", "model.weights.h5"):
        rewritten(
            whole,
            path,
            lambda members, name=name: {**members, name: bytes(10_000_000)},
            zipfile.ZIP_DEFLATED,
        )
        assert "bytes hold 10" in refused(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(whole, tmp_path):
    path = tmp_path / "twice.keras"
    shutil.copyfile(whole, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(_JSON, archive.read(_JSON))
    assert "two of its members" in refused(path)


def changed_weights(whole, path, change):
    """Copies a file whose array `NAME` is what a function of it makes."""

    def changed(members):
        weights = path.with_suffix(".h5")
        weights.write_bytes(members["model.weights.h5"])
        with h5py.File(weights, "a") as file:
            shape = file[NAME].shape
            del file[NAME]
            change(file, shape)
        return {**members, "model.weights.h5": weights.read_bytes()}

    rewritten(whole, path, changed)


def external(file, shape):
    file.create_dataset(NAME, shape, "f4", external=[("/etc/passwd", 0, 384)])


def virtual(file, shape):
    layout = h5py.VirtualLayout(shape, "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "0", shape)
    file.create_virtual_dataset(NAME, layout)


def link_to_a_file(file, shape):
    file[NAME] = h5py.ExternalLink("/etc/passwd", "/0")


def link_within(file, shape):
    file[NAME] = h5py.SoftLink("/other")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (external, "an array whose numbers lie in another file"),
        (virtual, "an array whose numbers lie in another file"),
        (link_to_a_file, "a link to another place"),
        (link_within, "a link to another place"),
    ],
)
def test_weights_in_another_file_are_refused_before_keras(
    change, what, whole, tmp_path, monkeypatch
):
    path = tmp_path / "a.keras"
    changed_weights(whole, path, change)
    monkeypatch.setattr(keras.saving, "load_model", None)
    assert f"its model.weights.h5 holds {NAME!r}, {what}" in refused(path)


def test_arrays_that_have_a_shape_and_no_bytes_are_refused(
    whole, tmp_path, monkeypatch
):
    path = tmp_path / "a.keras"
    changed_weights(
        whole, path, lambda file, shape: file.create_dataset(NAME, (10**12,), "f4")
    )
    monkeypatch.setattr(keras.saving, "load_model", None)
    assert re.search("bytes of model.weights.h5 hold 4000000", refused(path))


def changed_config(whole, path, change):
    def changed(members):
        config = json.loads(members[_JSON])
        change(config)
        return {**members, _JSON: json.dumps(config)}

    return rewritten(whole, path, changed)


def test_layers_of_another_library(whole, tmp_path):
    def foreign(config):
        layer = config["config"]["layers"][1]
        layer["module"], layer["class_name"] = "keras_hub.layers", "ViTPatching"
        layer["registered_name"] = "keras_hub>ViTPatching"

    message = refused(changed_config(whole, tmp_path / "hub.keras", foreign))
    assert (
        "its keras_hub.layers.ViTPatching is from neither Keras nor keras_vit"
        in message
    )
    assert "the library that it comes from" in message


def test_what_keras_cannot_make(whole, tmp_path):
    def unknown(config):
        config["config"]["layers"][0]["class_name"] = "LayerOfTomorrow"

    message = refused(changed_config(whole, tmp_path / "new.keras", unknown))
    assert f"Keras {keras.__version__} saved it, and Keras {keras.__version__} " in (
        message
    )
    assert "LayerOfTomorrow" in message and "install that Keras" in message

    def larger(config):
        config["config"]["layers"][1]["config"]["hidden_size"] = 48

    message = refused(changed_config(whole, tmp_path / "larger.keras", larger))
    assert "cannot load it" in message


def test_code_is_not_loaded(tmp_path):
    images = keras.Input((8, 8, 3))
    outputs = keras.layers.Lambda(lambda values: values[:, 0, 0])(images)
    path = tmp_path / "code.keras"
    keras.Model(images, outputs).save(path)
    assert "Python code in a Lambda layer" in refused(path)


def test_what_is_no_model_from_images_to_logits(tmp_path):
    path = tmp_path / "other.keras"
    images = keras.Input((8, 8, 3))
    flat = keras.layers.Flatten()(images)
    keras.Model(images, [flat, flat]).save(path)
    assert "1 known inputs and 2 outputs" in refused(path)


def test_what_was_compiled_with_something_of_ones_own(whole, tmp_path):
    @keras.saving.register_keras_serializable(package="test_keras_files")
    def own_loss(labels, logits):
        return keras.ops.mean(logits, axis=-1)

    model = keras.saving.load_model(whole)
    model.compile("sgd", own_loss)
    path = tmp_path / "compiled.keras"
    model.save(path)
    registered = keras.saving.get_custom_objects()
    loss = registered.pop("test_keras_files>own_loss")
    try:
        assert loaded_model.load(str(path)).model.output_shape == (None, 3)
    finally:
        registered["test_keras_files>own_loss"] = loss


def test_a_run_says_how_its_model_is_written_again(whole, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "model.keras").write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(RunError, match="model.keras .*command of its run again"):
        loaded_model.load(str(run))
    shutil.copyfile(whole, run / "model.keras")
    for damaged in ("{", "[]", "\x00"):
        (run / "config.json").write_text(damaged)
        with pytest.raises(RunError, match="config.json is damaged .*--dataset"):
            loaded_model.load(str(run))
    assert loaded_model.load(str(pathlib.Path(run, "model.keras"))).config == {}


@pytest.mark.parametrize("shape", [[None, 16_384, 16_384, 3], [1, 1, 100_000, 3]])
def test_images_beyond_the_limits_are_refused_before_keras_builds(tmp_path, shape):
    images = keras.Input((8, 8, 3))
    path, large = tmp_path / "small.keras", tmp_path / "large.keras"
    keras.Model(images, keras.layers.GlobalAveragePooling2D()(images)).save(path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(large, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                old_shape = b"[null, 8, 8, 3]"
                assert old_shape in content
                content = content.replace(old_shape, json.dumps(shape).encode())
            new.writestr(name, content)
    assert load_model(path).input_shape == (None, 8, 8, 3)
    with pytest.raises(RunError, match="where 8,192 per side"):
        load_model(large)


def test_weights_that_the_file_does_not_hold_take_no_memory(tmp_path):
    images = keras.Input((8, 8, 3))
    path, large = tmp_path / "small.keras", tmp_path / "large.keras"
    pooled = keras.layers.GlobalAveragePooling2D()(images)
    keras.Model(images, keras.layers.Dense(7)(pooled)).save(path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(large, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                assert b'"units": 7' in content
                content = content.replace(b'"units": 7', b'"units": 10000000000')
            new.writestr(name, content)
    assert load_model(path).output_shape == (None, 7)
    with pytest.raises(RunError, match="weights of shape .*10000000000"):
        load_model(large)
    assert load_model(path).output_shape == (None, 7)

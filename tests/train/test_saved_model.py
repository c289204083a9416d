import contextlib
import dataclasses
import logging
import os
import pathlib
import resource
import signal
import subprocess
import sys

import absl.logging
import keras
import numpy as np
import pytest
import tensorflow as tf
from harness import global_policy, gradients, normal, randomize

from keras_vit import VisionTransformer, ViTConfig, preprocess_input
from train.data.preprocessing import squash, to_model_range
from train.errors import RunError
from train.exporters.saved_model import write_saved_model
from train.files import whole_folder

ROOT = pathlib.Path(__file__).parents[2]
PLAIN = ViTConfig(hidden_size=24, num_layers=2, num_heads=3, mlp_dim=40, patch_size=8)
HYBRID = dataclasses.replace(PLAIN, patch_size=1, resnet_stages=(1, 1), resnet_width=32)
SIZE = (32, 48)
NO_HUB = 'pip install tensorflow-hub "setuptools<82"'
MODELS = {
    "plain": {},
    "hybrid": {"config": HYBRID},
    "pre-logits": {"representation_size": 16},
    "without head": {"include_top": False},
    "pre-logits without head": {"include_top": False, "representation_size": 16},
    "mean of the tokens": {"pooling": "gap"},
    "gray": {"channels": 1},
    "softmax": {"classifier_activation": "softmax"},
}


def made(config=PLAIN, **arguments):
    model = VisionTransformer(config, image_size=SIZE, classes=5, **arguments)
    randomize(model)
    return model


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype="uint8")


def scaled(images):
    """What `tf.image.convert_image_dtype` makes of bytes."""
    return images.astype("float32") / 255


def expected(model, images):
    """Logits, or None, and features, of bytes of the model's size."""
    inputs = preprocess_input(images)
    head = model.layers[-1] if model.layers[-1].name == "head" else None
    if head is None:
        return None, model(inputs).numpy()
    features = keras.Model(model.input, head.input)(inputs).numpy()
    return features @ head.kernel.numpy() + head.bias.numpy(), features


def written(folder, **arguments):
    model = made(**arguments)
    write_saved_model(model, folder)
    return model, tf.saved_model.load(folder)


def close(found, wanted, atol=1e-5):
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, wanted, atol=atol)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model and where it lies, for tests that change neither."""
    folder = tmp_path_factory.mktemp("saved_model") / "exported"
    model, _ = written(folder)
    return model, folder


@pytest.mark.parametrize("name", MODELS)
def test_the_call_and_every_signature(name, tmp_path):
    model, loaded = written(tmp_path / "exported", **MODELS[name])
    images = pixels(3, *SIZE, model.input_shape[-1])
    logits, features = expected(model, images)
    outputs = {"image_feature_vector": features}
    if logits is not None:
        outputs["image_classification"] = logits
    outputs["serving_default"] = features if logits is None else logits
    assert set(loaded.signatures) == set(outputs)
    for signature, wanted in outputs.items():
        answer = loaded.signatures[signature](images=tf.constant(scaled(images)))
        assert list(answer) == ["default"]
        close(answer["default"], wanted)
        shape = loaded.signatures[signature].structured_outputs["default"].shape
        assert shape.as_list() == [None, wanted.shape[1]]
    wanted = outputs["serving_default"]
    close(loaded(scaled(images)), wanted)
    close(loaded(tf.constant(scaled(images)), training=False), wanted)
    close(loaded(tf.constant(scaled(images)), training=True), wanted)
    if name == "plain":
        close(model(preprocess_input(images)), wanted)
    if name == "softmax":
        close(tf.nn.softmax(wanted), model(preprocess_input(images)))


@pytest.mark.parametrize("size", [(20, 30), (33, 47), (100, 75), (400, 300), (48, 32)])
@pytest.mark.parametrize("batch", [1, 2])
def test_other_sizes_are_resized_as_for_evaluation(exported, size, batch):
    model, folder = exported
    images = pixels(batch, *size, 3)
    inputs = tf.stack([to_model_range(squash(image, SIZE)) for image in images])
    close(tf.saved_model.load(folder)(scaled(images)), model(inputs))


LOADING = """
import sys

for package in {hidden}:
    sys.modules[package] = None  # refuses to be imported

import numpy as np
import tensorflow as tf
import {library} as library

loaded = library.load(sys.argv[1])
images = np.load("images.npy")
answers = {{
    name: signature(images=tf.constant(images))["default"]
    for name, signature in loaded.signatures.items()
}}
np.savez("answers.npz", call=loaded(images), **answers)
"""


@pytest.mark.parametrize("library", ["tensorflow.saved_model", "tensorflow_hub"])
def test_loads_where_this_package_is_not(exported, tmp_path, library):
    hidden = ["keras_vit", "train", "zoo"]
    if library == "tensorflow_hub":
        pytest.importorskip(library, reason=NO_HUB)
    else:
        hidden.append("keras")
    model, folder = exported
    images = pixels(2, *SIZE, 3)
    np.save(tmp_path / "images.npy", scaled(images))
    script = LOADING.format(hidden=hidden, library=library)
    subprocess.run([sys.executable, "-c", script, folder], cwd=tmp_path, check=True)
    logits, features = expected(model, images)
    with np.load(tmp_path / "answers.npz") as answers:
        for name in ("call", "serving_default", "image_classification"):
            close(answers[name], logits)
        close(answers["image_feature_vector"], features)


def test_hub_loads_beside_keras_3(exported):
    hub = pytest.importorskip("tensorflow_hub", reason=NO_HUB)
    model, folder = exported
    images = pixels(2, *SIZE, 3)
    close(hub.load(str(folder))(scaled(images)), expected(model, images)[0])
    assert keras.version().startswith("3.")


@pytest.mark.parametrize("trainable", [False, True])
def test_hub_keras_layer(tmp_path, trainable):
    hub = pytest.importorskip("tensorflow_hub", reason=NO_HUB)
    tf_keras = pytest.importorskip("tf_keras")
    folder = tmp_path / "exported"
    model, _ = written(folder, include_top=False, dropout_rate=0.1)
    layer = hub.KerasLayer(str(folder), trainable=trainable)
    images, labels = scaled(pixels(8, *SIZE, 3)), np.arange(8) % 2
    close(layer(images), model(preprocess_input(255 * images)))
    before = [variable.numpy() for variable in layer.variables]
    assert len(layer.trainable_variables) == trainable * len(model.trainable_variables)
    assert len(before) == len(model.variables)

    classifier = tf_keras.Sequential([layer, tf_keras.layers.Dense(2)])
    classifier.compile(
        tf_keras.optimizers.Adam(1e-2),
        tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    losses = classifier.fit(images, labels, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    changed = [
        (variable.numpy() != old).any()
        for variable, old in zip(layer.trainable_variables, before, strict=False)
    ]
    assert all(changed) and len(changed) == len(layer.trainable_variables)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"config": HYBRID}, {"remat": True}, {"include_top": False}],
    ids=["plain", "hybrid", "remat", "without head"],
)
def test_gradients_are_the_models(tmp_path, arguments):
    model, loaded = written(tmp_path / "exported", **arguments)
    images = pixels(3, *SIZE, 3)
    wanted = gradients(model, preprocess_input(images), training=True)
    largest = max(np.abs(gradient).max() for gradient in wanted)
    weights = normal(model.compute_output_shape(images.shape), seed=1)
    for trained in (False, True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loaded(scaled(images), training=trained) * weights)
        found = tape.gradient(loss, loaded.trainable_variables)
        for gradient, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(gradient, other, atol=1e-5 * largest)


def test_the_reusable_interface(exported, tmp_path):
    model, folder = exported
    loaded = tf.saved_model.load(folder)
    assert list(loaded.regularization_losses) == []
    for found, own in (
        (loaded.variables, model.variables),
        (loaded.trainable_variables, model.trainable_variables),
    ):
        for variable, other in zip(found, own, strict=True):
            np.testing.assert_array_equal(variable, other)
    assert all(variable.trainable for variable in loaded.trainable_variables)
    # They are those that the functions read.
    loaded.trainable_variables[-1].assign_add(tf.ones(5))
    images = pixels(2, *SIZE, 3)
    logits, _ = expected(model, images)
    close(loaded(scaled(images)), logits + 1)
    answer = loaded.signatures["image_classification"](tf.constant(scaled(images)))
    close(answer["default"], logits + 1)


@pytest.mark.parametrize("rate", ["dropout_rate", "stochastic_depth_rate"])
def test_training_is_random_where_the_model_is(tmp_path, rate):
    _, loaded = written(tmp_path / "exported", **{rate: 0.5})
    images = tf.constant(scaled(pixels(8, *SIZE, 3)))
    first, second = (loaded(images, training=True).numpy() for _ in range(2))
    assert (first != second).any()
    np.testing.assert_array_equal(loaded(images), loaded(images, training=False))


def test_mixed_precision_answers_in_float32(tmp_path):
    with global_policy("mixed_bfloat16"):
        model, loaded = written(tmp_path / "exported")
    images = pixels(4, *SIZE, 3)
    logits, features = expected(model, images)
    # Rounded elsewhere than in the model, which is not compiled here.
    close(loaded(scaled(images)), logits, atol=0.1)
    answer = loaded.signatures["image_feature_vector"](tf.constant(scaled(images)))
    close(answer["default"], features.astype("float32"), atol=0.1)
    assert all(variable.dtype == tf.float32 for variable in loaded.variables)


def test_holds_one_copy_of_the_weights(tmp_path):
    config = dataclasses.replace(PLAIN, hidden_size=384, mlp_dim=1536)
    model, _ = written(tmp_path / "exported", config=config)
    weights = sum(variable.numpy().nbytes for variable in model.variables)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert weights < size < 1.05 * weights


def test_writes_no_notices(tmp_path, capfd, caplog):
    caplog.set_level(logging.INFO, "tensorflow")
    verbosity = absl.logging.get_verbosity()
    absl.logging.set_verbosity(absl.logging.INFO)
    try:
        write_saved_model(made(), tmp_path / "exported")
        assert capfd.readouterr() == ("", "")
        assert caplog.records == []
        absl.logging.info("as before")
        assert caplog.messages == ["as before"]
    finally:
        absl.logging.set_verbosity(verbosity)


def test_an_older_one_is_replaced_whole(tmp_path):
    folder = tmp_path / "deep" / "exported"
    written(folder)
    (folder / "assets" / "left over").write_text("")
    (folder / "variables" / "more").write_text("")
    model, loaded = written(folder, representation_size=16)
    images = pixels(2, *SIZE, 3)
    close(loaded(scaled(images)), expected(model, images)[0])
    assert not [*folder.rglob("left over"), *folder.rglob("more")]
    assert os.listdir(folder.parent) == ["exported"]
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777


@contextlib.contextmanager
def interrupted():
    def interrupt(package, folder, **_):
        pathlib.Path(folder, "saved_model.pb").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tf.saved_model, "save", interrupt)
        yield


@contextlib.contextmanager
def disk_full():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(RunError, match="Cannot write the folder .*exported: .*"):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def stopped_between_the_renames():
    rename = pathlib.Path.rename

    def stop(path, target):
        if path.name == "new":
            raise KeyboardInterrupt
        return rename(path, target)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pathlib.Path, "rename", stop)
        yield


@pytest.mark.parametrize(
    "failing", [interrupted, disk_full, stopped_between_the_renames]
)
def test_a_failure_leaves_the_older_one(tmp_path, failing):
    folder = tmp_path / "exported"
    model, _ = written(folder)
    before = {path: path.stat().st_ino for path in folder.rglob("*")}
    with failing():
        write_saved_model(made(representation_size=16), folder)
    assert {path: path.stat().st_ino for path in folder.rglob("*")} == before
    assert os.listdir(tmp_path) == ["exported"]


KILLED = """
import os, signal, sys
from train.files import whole_folder

with whole_folder(sys.argv[1]) as temporary:
    (temporary / "saved_model.pb").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_in_the_middle(tmp_path):
    folder = tmp_path / "exported"
    with whole_folder(folder) as temporary:
        (temporary / "saved_model.pb").write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, folder], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    assert (folder / "saved_model.pb").read_text() == "old"
    with whole_folder(folder) as temporary:
        (temporary / "saved_model.pb").write_text("new")
    assert (folder / "saved_model.pb").read_text() == "new"


def test_a_link_to_a_folder_stays_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with whole_folder(tmp_path / "link") as temporary:
        (temporary / "file").write_text("")
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "real") == ["file"]


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    for name in ("folder", "file"):
        path = tmp_path / name
        if name == "folder":
            path.mkdir()
            (path / "thesis.tex").write_text("all")
        else:
            path.write_text("all")
        with pytest.raises(RunError, match=f"{name} is there and is no SavedModel"):
            write_saved_model(made(), path)
    assert (tmp_path / "folder" / "thesis.tex").read_text() == "all"
    assert (tmp_path / "file").read_text() == "all"


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="Cannot write the folder .*choose another"):
        write_saved_model(made(), tmp_path / "file" / "exported")


@pytest.mark.parametrize("include_top", [False, True])
def test_all_tokens_are_refused(tmp_path, include_top):
    model = made(pooling=None, include_top=include_top)
    with pytest.raises(ValueError, match='all tokens, .* pooling="token" or "gap"'):
        write_saved_model(model, tmp_path / "exported")
    assert not list(tmp_path.iterdir())


def test_other_models_are_refused(tmp_path):
    model = made()
    more = keras.layers.Softmax(name="shares")(model.output)
    with pytest.raises(ValueError, match="ends in the layer 'shares': pass a model"):
        write_saved_model(keras.Model(model.input, more), tmp_path / "exported")
    assert not list(tmp_path.iterdir())

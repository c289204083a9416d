"""What a SavedModel computes, in this process and where this package is not."""

import functools
import io
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from harness import global_policy
from small_models import HYBRID, PLAIN, SIZE, made, of

import zoo
from keras_vit import preprocess_input
from train.models.exports import operations
from train.models.exports.saved_model import write_saved_model
from train.models.exports.writing import body_and_head

NAMES = ("tench", "goldfish", "white shark", "müßig", "")


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype="uint8")


def scaled(images):
    """What `tf.image.convert_image_dtype` makes of bytes."""
    return images.astype("float32") / 255


def expected(model, images):
    """Logits, or None, and features, of bytes of the model's size."""
    body, head = body_and_head(model)
    features = body(preprocess_input(images)).numpy()
    logits = head and features @ head.kernel.numpy() + head.bias.numpy()
    return logits, features


# Each is written once. Between them they have all that the writer tells apart, and all
# that it has to trace.
MODELS = {
    "plain": {**of(PLAIN, num_layers=1), "remat": True},
    "gray, softmax": {
        **of(
            PLAIN,
            activation="gelu",
            patch_size=(8, 12),
            position_embedding="2d",
            position_embedding_at="every_layer",
        ),
        "channels": 1,
        "classifier_activation": "softmax",
        "representation_size": 16,
        "pooling": "gap",
    },
    "hybrid without head, random, mixed precision": {
        **of(HYBRID, num_layers=1, position_embedding="relative"),
        "include_top": False,
        "representation_size": 16,
        "dropout_rate": 0.5,
        "stochastic_depth_rate": 0.5,
    },
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function to a model, its folder and what is loaded, which no test changes."""

    @functools.cache
    def export(name="plain"):
        model = written = made(**MODELS[name])
        if "mixed precision" in name:
            with global_policy("mixed_bfloat16"):
                written = made(**MODELS[name])  # of the same values
        folder = tmp_path_factory.mktemp("saved_model") / "exported"
        names = NAMES if name == "plain" else None
        write_saved_model(written, folder, class_names=names)
        operations.check(folder)
        return model, folder, tf.saved_model.load(folder)

    return export


def close(found, wanted, atol=1e-5):
    """Whether they differ by no more than a share of the largest."""
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol * np.abs(wanted).max())


@pytest.mark.parametrize("name", MODELS)
def test_the_call_and_every_signature(exported, name):
    model, _, loaded = exported(name)
    images = pixels(3, *SIZE, model.input_shape[-1])
    logits, features = expected(model, images)
    inputs, pictures = preprocess_input(images), tf.constant(scaled(images))
    # Lossless, and of the model's size: nothing is resized.
    files = [tf.io.encode_png(image).numpy() for image in images]
    main = {"features": features} if logits is None else {"logits": logits}
    wanted = {
        "serving_default": (inputs, main),
        "features": (inputs, {"features": features}),
        "serve_bytes": (files, dict(main)),
        "image_feature_vector": (pictures, {"default": features}),
    }
    if logits is not None:
        wanted["serve_bytes"][1]["probabilities"] = tf.nn.softmax(logits)
        wanted["image_classification"] = pictures, {"default": logits}
    assert set(loaded.signatures) == set(wanted)
    for signature in ("serving_default", "features"):
        # As many patches, in rows of another length.
        turned = tf.zeros((1, *SIZE[::-1], images.shape[-1]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected shape"):
            loaded.signatures[signature](images=turned)
    for signature, (takes, gives) in wanted.items():
        function = loaded.signatures[signature]
        [argument] = function.structured_input_signature[1]
        found = function(**{argument: tf.constant(takes)})
        assert set(found) - {"label"} == set(gives)
        for key, value in gives.items():
            close(found[key], value)
            shape = function.structured_outputs[key].shape
            assert shape.as_list() == [None, value.shape[1]]
    [result] = main.values()
    close(loaded(scaled(images)), result)
    close(loaded(pictures, training=False), result)
    if "random" in name:
        many = tf.repeat(pictures, 8, axis=0)
        first, second = (loaded(many, training=True).numpy() for _ in range(2))
        assert (first != second).any()
    else:
        close(loaded(pictures, training=True), result)


def encoded(image, kind="PNG", **options):
    """A file by another encoder; the colours of JPEG are at half the resolution."""
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


def photo(*shape, seed=0):
    """A smooth image, which JPEG does little harm to."""
    small = PIL.Image.fromarray(pixels(6, 5, 3, seed=seed))
    return np.asarray(small.resize(shape[::-1], PIL.Image.Resampling.BICUBIC))


def served(loaded, files):
    return loaded.signatures["serve_bytes"](image_bytes=tf.constant(files))


def test_files_of_any_size(exported, tmp_path):
    model, written, _ = exported()
    folder = shutil.copytree(written, tmp_path / "moved")
    loaded = tf.saved_model.load(folder)  # whose variables change below
    sizes = [(70, 90), (33, 20), SIZE, (100, 64)]
    images = [photo(*size, seed=seed) for seed, size in enumerate(sizes)]
    kinds = ("JPEG", "PNG", "PNG", "JPEG")
    files = [encoded(*one) for one in zip(images, kinds, strict=True)]
    decoded = map(zoo.photos.decode, files)
    inputs = [tf.image.resize(image, SIZE).numpy() / 127.5 - 1 for image in decoded]
    wanted = model(np.stack(inputs)).numpy()
    answers = served(loaded, files)
    close(answers["logits"], wanted)
    close(answers["probabilities"], tf.nn.softmax(wanted))
    for index, name in enumerate(NAMES):
        loaded.trainable_variables[-1].assign(100.0 * np.eye(5)[index])
        assert served(loaded, files)["label"].numpy().tolist() == 4 * [name.encode()]
    assert served(loaded, np.zeros(0, "S1"))["logits"].shape == (0, 5)
    path = pathlib.Path(loaded.class_names_file.asset_path.numpy().decode())
    assert path == folder / "assets" / "class_names.txt"
    assert path.read_text("utf-8") == "".join(f"{name}\n" for name in NAMES)
    with pytest.raises(tf.errors.InvalidArgumentError):
        served(loaded, [files[0], files[0][: len(files[0]) // 2]])


LOADING = """
import sys

# Refuse to be imported.
for package in ("keras_vit", "train", "zoo", "keras"):
    sys.modules[package] = None

import tensorflow as tf

loaded = tf.saved_model.load(sys.argv[1])
answers = loaded.signatures["serve_bytes"](image_bytes=[tf.io.read_file("photo.png")])
print(answers["logits"].numpy().tolist())
"""


def test_loads_where_this_package_is_not(exported, tmp_path):
    model, folder, _ = exported()
    image = pixels(*SIZE, 3)
    (tmp_path / "photo.png").write_bytes(encoded(image))
    command = [sys.executable, "-c", LOADING, folder]
    found = subprocess.check_output(command, cwd=tmp_path, text=True)
    logits, _ = expected(model, image[None])
    close(np.float32(json.loads(found)), logits)


def test_the_reusable_interface(exported):
    model, folder, _ = exported()
    loaded = tf.saved_model.load(folder)  # whose variables change below
    assert list(loaded.regularization_losses) == []
    images = pixels(2, *SIZE, 3)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loaded(scaled(images), training=True) ** 2)
    assert all(map(np.any, tape.gradient(loss, loaded.trainable_variables)))
    for name in ("variables", "trainable_variables"):
        for pair in zip(getattr(loaded, name), getattr(model, name), strict=True):
            np.testing.assert_array_equal(*pair)
    assert all(variable.trainable for variable in loaded.trainable_variables)
    # They are those that the functions read.
    loaded.trainable_variables[-1].assign_add(tf.ones(5))
    logits, _ = expected(model, images)
    close(loaded(scaled(images)), logits + 1)
    answer = loaded.signatures["image_classification"](tf.constant(scaled(images)))
    close(answer["default"], logits + 1)


def test_holds_one_copy_of_the_weights(exported):
    model, folder, _ = exported()
    stored = (folder / "variables" / "variables.data-00000-of-00001").read_bytes()
    graph = (folder / "saved_model.pb").read_bytes()
    assert len(stored) < 1.5 * 4 * model.count_params()
    for variable in model.variables:
        if len(variable.shape) > 1:
            content = variable.numpy().tobytes()
            assert (stored.count(content), graph.count(content)) == (1, 0)


def test_photos_are_prepared_as_the_model_says(tmp_path):
    preparation = "timm crop bicubic 0.9"
    model = made(**of(PLAIN, num_layers=1), preparation=preparation)
    write_saved_model(model, tmp_path / "saved")
    operations.check(tmp_path / "saved")
    loaded = tf.saved_model.load(tmp_path / "saved")
    image = photo(83, 57)
    inputs = zoo.photos.prepare(image, SIZE, preparation)
    wanted = model(inputs[None]).numpy()
    squashed = model(zoo.photos.prepare(image, SIZE)[None]).numpy()
    assert np.abs(wanted - squashed).max() > 0.1
    answers = served(loaded, [encoded(image)])
    # Pillow sums integers, whose rounding may differ by a level.
    close(answers["logits"], wanted, atol=0.01)
    scale = (image / 255.0).astype("float32")[None]
    inputs = zoo.photos.prepare(image.astype("float32"), SIZE, preparation)
    close(loaded(scale), model(inputs[None]), atol=1e-3)

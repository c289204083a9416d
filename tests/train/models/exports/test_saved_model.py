import contextlib
import io
import logging
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys

import absl.logging
import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from harness import all_layers, global_policy, gradients, normal
from small_models import HYBRID, PLAIN, SIZE, made, of
from tensorflow.core.protobuf import saved_model_pb2

import zoo
from keras_vit import preprocess_input
from keras_vit.runtimes.precision import in_precision
from train.common.errors import RunError
from train.common.files import whole_folder
from train.data.transforms.preprocessing import squash, to_model_range
from train.models.exports import operations, saved_model
from train.models.exports.saved_model import add_version, write_saved_model

ROOT = pathlib.Path(__file__).parents[4]
NO_HUB = 'pip install tensorflow-hub "setuptools<82"'
NAMES = ("tench", "goldfish", "white shark", "müßig", "")


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


# Each is written once. Between them they have all that the writer tells apart, and all
# that it has to trace.
MODELS = {
    "plain": {"remat": True},
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
def export(tmp_path_factory):
    """Function of a name to a model, its folder and what is loaded from it, for tests
    that change none of them."""
    known = {}

    def exported(name):
        if name not in known:
            model = written = made(**MODELS[name])
            if "mixed precision" in name:
                with global_policy("mixed_bfloat16"):
                    written = made(**MODELS[name])  # of the same values
            folder = tmp_path_factory.mktemp("saved_model") / "exported"
            names = NAMES if name == "plain" else None
            write_saved_model(written, folder, class_names=names)
            known[name] = model, folder, tf.saved_model.load(folder)
        return known[name]

    return exported


@pytest.fixture
def exported(export):
    """The plain model and its folder."""
    return export("plain")[:2]


@pytest.fixture
def written_quickly(monkeypatch):
    """A writer that traces no model: the file alone matters."""

    def package(model, class_names):
        package = tf.train.Checkpoint(kernel=tf.Variable(tf.ones(1000)))
        package.__call__ = tf.function(lambda images: images + package.kernel[0])
        package.__call__.get_concrete_function(tf.TensorSpec((None,)))
        return package, {}

    monkeypatch.setattr(saved_model, "_package", package)


def is_random(name):
    return "random" in name


def close(found, wanted, atol=1e-5):
    """Whether they differ by no more than a share of the largest."""
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol * np.abs(wanted).max())


@pytest.mark.parametrize("name", MODELS)
def test_the_call_and_every_signature(export, name):
    model, _, loaded = export(name)
    images = pixels(3, *SIZE, model.input_shape[-1])
    logits, features = expected(model, images)
    inputs = {"images": preprocess_input(images)}
    pictures = {"images": scaled(images)}
    # Lossless, and of the model's size: nothing is resized.
    files = {"image_bytes": [tf.io.encode_png(image).numpy() for image in images]}
    wanted = {
        "serving_default": (inputs, {"features": features}),
        "features": (inputs, {"features": features}),
        "serve_bytes": (files, {"features": features}),
        "image_feature_vector": (pictures, {"default": features}),
    }
    if logits is not None:
        probabilities = tf.nn.softmax(logits)
        wanted["serving_default"] = (inputs, {"logits": logits})
        answers = {"logits": logits, "probabilities": probabilities}
        wanted["serve_bytes"] = (files, answers)
        wanted["image_classification"] = (pictures, {"default": logits})
    assert set(loaded.signatures) == set(wanted)
    for signature, (takes, gives) in wanted.items():
        function = loaded.signatures[signature]
        found = function(**{key: tf.constant(value) for key, value in takes.items()})
        assert set(found) - {"label"} == set(gives)
        for key, value in gives.items():
            close(found[key], value)
            shape = function.structured_outputs[key].shape
            assert shape.as_list() == [None, value.shape[1]]
    result = features if logits is None else logits
    close(loaded(scaled(images)), result)
    close(loaded(tf.constant(scaled(images)), training=False), result)
    pictures = tf.constant(scaled(images))
    if is_random(name):
        many = tf.repeat(pictures, 8, axis=0)
        first, second = (loaded(many, training=True).numpy() for _ in range(2))
        assert (first != second).any()
    else:
        close(loaded(pictures, training=True), result)
    if "softmax" in name:
        close(probabilities, model(preprocess_input(images)))
    else:
        close(model(preprocess_input(images)), result)


def jpeg(image):
    """A file by another encoder, its colours at half the resolution."""
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, "JPEG", quality=90)
    return file.getvalue()


def png(image):
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def photo(*shape, seed=0):
    """A smooth image, which JPEG does little harm to."""
    small = PIL.Image.fromarray(pixels(6, 5, 3, seed=seed))
    return np.asarray(small.resize(shape[::-1], PIL.Image.Resampling.BICUBIC))


def test_files_of_any_size(export):
    model, folder, _ = export("plain")
    loaded = tf.saved_model.load(folder)  # whose variables change below
    sizes = [(70, 90), (33, 20), SIZE, (100, 64)]
    images = [photo(*size, seed=seed) for seed, size in enumerate(sizes)]
    files = [jpeg(images[0]), png(images[1]), png(images[2]), jpeg(images[3])]
    images[0], images[3] = map(zoo.photos.decode, (files[0], files[3]))
    inputs = [tf.image.resize(image, SIZE).numpy() / 127.5 - 1 for image in images]
    wanted = model(np.stack(inputs)).numpy()
    answers = loaded.signatures["serve_bytes"](image_bytes=tf.constant(files))
    close(answers["logits"], wanted)
    close(answers["probabilities"], tf.nn.softmax(wanted))
    for index, name in enumerate(NAMES):
        loaded.trainable_variables[-1].assign(100.0 * np.eye(5)[index])
        answers = loaded.signatures["serve_bytes"](image_bytes=tf.constant(files))
        assert answers["label"].numpy().tolist() == 4 * [name.encode()]
    nothing = loaded.signatures["serve_bytes"](image_bytes=tf.zeros(0, tf.string))
    assert nothing["logits"].shape == (0, 5)


def test_files_in_gray(export):
    model, _, loaded = export("gray, softmax")
    gray = photo(*SIZE)[..., :1]
    # A PNG in colour, but gray: by whatever weights, its gray value is that.
    files = [png(gray[..., 0]), png(np.repeat(gray, 3, axis=-1)), jpeg(photo(*SIZE))]
    jpeg_in_gray = np.asarray(PIL.Image.open(io.BytesIO(files[2])).convert("L"))
    images = np.stack([gray, gray, jpeg_in_gray[..., None]])
    answers = loaded.signatures["serve_bytes"](image_bytes=tf.constant(files))
    wanted, _ = expected(model, images)
    close(answers["logits"][:2], wanted[:2])
    # The two decoders' transforms round differently, by a level or so.
    close(answers["logits"][2:], wanted[2:], atol=0.05)
    assert np.abs(wanted[2] - wanted[0]).max() > 0.2 * np.abs(wanted).max()


def test_what_is_no_image(export):
    loaded = export("plain")[2]
    whole = png(pixels(*SIZE, 3))
    for broken in (b"GIF", b"", whole[: len(whole) // 2]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            loaded.signatures["serve_bytes"](image_bytes=tf.constant([whole, broken]))


def test_images_of_another_size_are_refused(export):
    loaded = export("plain")[2]
    for signature in ("serving_default", "features"):
        # As many patches, in rows of another length.
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected shape"):
            loaded.signatures[signature](images=tf.zeros((1, *SIZE[::-1], 3)))


def test_class_names(exported, tmp_path):
    shutil.copytree(exported[1], tmp_path / "moved")
    loaded = tf.saved_model.load(tmp_path / "moved")
    path = loaded.class_names_file.asset_path.numpy().decode()
    assert path == str(tmp_path / "moved" / "assets" / "class_names.txt")
    lines = pathlib.Path(path).read_text(encoding="utf-8").split("\n")
    assert tuple(lines) == (*NAMES, "")


@pytest.mark.parametrize(
    "names, include_top, message",
    [
        (NAMES[:4], True, "4 names .* 5 classes"),
        ((*NAMES[:4], "two\nlines"), True, "two.nlines.*spans lines"),
        (NAMES, False, "no head .* leave out class_names"),
    ],
)
def test_class_names_that_do_not_fit(names, include_top, message, tmp_path):
    model = made(include_top=include_top)
    with pytest.raises(ValueError, match=message):
        write_saved_model(model, tmp_path / "exported", class_names=names)
    assert not list(tmp_path.iterdir())


def test_as_tensorflow_serving_runs_it(exported):
    model, folder = exported
    images = pixels(2, *SIZE, 3)
    wanted, features = expected(model, images)
    files = [png(image) for image in images]
    fed = {
        "serving_default": ("images", preprocess_input(images), "logits", wanted),
        "serve_bytes": ("image_bytes", files, "logits", wanted),
        "features": ("images", preprocess_input(images), "features", features),
    }
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        graph = v1.saved_model.load(session, [v1.saved_model.SERVING], str(folder))
        for name, (takes, value, gives, result) in fed.items():
            signature = graph.signature_def[name]
            assert signature.method_name == "tensorflow/serving/predict"
            assert list(signature.inputs) == [takes]
            tensors = {key: info.name for key, info in signature.outputs.items()}
            found = session.run(tensors, {signature.inputs[takes].name: value})
            close(found[gives], result)
            # One row an image, without which the server's REST answers are refused.
            assert {len(rows) for rows in found.values()} == {2}


def test_versions(exported, tmp_path):
    served = tmp_path / "models" / "flowers"
    for number, others in (1, []), (2, ["1"]), (10, ["1", "009", "notes"]):
        for other in others:
            (served / other).mkdir(exist_ok=True)
        shutil.copytree(exported[1], tmp_path / "new")
        assert add_version(tmp_path / "new", served) == served / str(number)
        assert (served / str(number) / "saved_model.pb").is_file()
        assert not (tmp_path / "new").exists()
    with pytest.raises(RunError, match="Cannot move .*new to .*11: No such file"):
        add_version(tmp_path / "new", served)


def test_a_version_that_another_process_takes(tmp_path, monkeypatch):
    (tmp_path / "new").mkdir()
    rename = os.rename

    def late(path, target):
        monkeypatch.undo()
        (target / "variables").mkdir(parents=True)
        rename(path, target)

    monkeypatch.setattr(os, "rename", late)
    assert add_version(tmp_path / "new", tmp_path / "out") == tmp_path / "out" / "2"
    assert os.listdir(tmp_path / "out" / "1") == ["variables"]


@pytest.mark.parametrize("size", [(20, 30), (33, 47), (100, 75), (400, 300), (48, 32)])
def test_other_sizes_are_resized_as_for_evaluation(export, size):
    model, _, loaded = export("plain")
    images = pixels(2, *size, 3)
    inputs = tf.stack([to_model_range(squash(image, SIZE)) for image in images])
    for batch in (1, 2):
        close(loaded(scaled(images[:batch])), model(inputs[:batch]))


LOADING = """
import sys

# Refuse to be imported.
for package in ("keras_vit", "train", "zoo", "keras"):
    sys.modules[package] = None

import numpy as np
import tensorflow as tf

given = np.load("given.npz")
takes = dict(
    serving_default="images", features="images", serve_bytes="image_bytes",
    image_classification="pictures", image_feature_vector="pictures",
)
loaded = tf.saved_model.load(sys.argv[1])
answers = {}
for name, signature in loaded.signatures.items():
    value = given[takes[name]]
    if takes[name] == "image_bytes":
        value = [row.tobytes() for row in value]
    [argument] = signature.structured_input_signature[1]
    for key, answer in signature(**{argument: tf.constant(value)}).items():
        answer = answer.numpy()
        is_label = answer.dtype == object
        answers[name + "." + key] = answer.astype("S") if is_label else answer
np.savez("answers.npz", call=loaded(given["pictures"]), **answers)
"""


def test_loads_where_this_package_is_not(exported, tmp_path):
    model, folder = exported
    images = pixels(2, *SIZE, 3)
    np.savez(
        tmp_path / "given.npz",
        images=preprocess_input(images),
        pictures=scaled(images),
        # Rows of bytes are as long as one another; what follows a PNG is not read.
        image_bytes=[
            np.frombuffer(png(image).ljust(9999), "uint8") for image in images
        ],
    )
    command = [sys.executable, "-c", LOADING, folder]
    subprocess.run(command, cwd=tmp_path, check=True)
    logits, features = expected(model, images)
    with np.load(tmp_path / "answers.npz") as answers:
        for name in (
            "call",
            "serving_default.logits",
            "serve_bytes.logits",
            "image_classification.default",
        ):
            close(answers[name], logits)
        for name in ("features.features", "image_feature_vector.default"):
            close(answers[name], features)
        labels = [NAMES[row.argmax()].encode() for row in logits]
        assert answers["serve_bytes.label"].tolist() == labels


def test_hub_loads_beside_keras_3(exported):
    hub = pytest.importorskip("tensorflow_hub", reason=NO_HUB)
    model, folder = exported
    images = pixels(2, *SIZE, 3)
    close(hub.load(str(folder))(scaled(images)), expected(model, images)[0])
    assert keras.version().startswith("3.")


def test_hub_keras_layer(export):
    hub = pytest.importorskip("tensorflow_hub", reason=NO_HUB)
    tf_keras = pytest.importorskip("tf_keras")
    model, folder, _ = export("plain")
    images, labels = scaled(pixels(8, *SIZE, 3)), np.arange(8) % 2
    fixed = hub.KerasLayer(str(folder))
    close(fixed(images), model(preprocess_input(255 * images)))
    assert fixed.trainable_variables == []
    assert len(fixed.variables) == len(model.variables)

    layer = hub.KerasLayer(str(folder), trainable=True)
    before = [variable.numpy() for variable in layer.trainable_variables]
    assert len(before) == len(model.trainable_variables)
    # A head of some random kernels learns more slowly than four epochs show.
    tf_keras.utils.set_random_seed(0)
    classifier = tf_keras.Sequential([layer, tf_keras.layers.Dense(2)])
    classifier.compile(
        tf_keras.optimizers.Adam(1e-2),
        tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    losses = classifier.fit(images, labels, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    for variable, old in zip(layer.trainable_variables, before, strict=True):
        assert (variable.numpy() != old).any()


@pytest.mark.parametrize(
    "name", ["plain", "hybrid without head, random, mixed precision"]
)
def test_gradients_are_the_models(export, name):
    model, _, loaded = export(name)
    images = pixels(3, *SIZE, 3)
    # In training the blocks of the plain one are computed again.
    for training in [False] if is_random(name) else [False, True]:
        wanted = gradients(model, preprocess_input(images), training=training)
        largest = max(np.abs(gradient).max() for gradient in wanted)
        weights = normal(model.compute_output_shape(images.shape), seed=1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loaded(scaled(images), training=training) * weights)
        found = tape.gradient(loss, loaded.trainable_variables)
        for gradient, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(gradient, other, atol=1e-5 * largest)


def test_the_reusable_interface(exported):
    model, folder = exported
    loaded = tf.saved_model.load(folder)  # whose variables change below
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


def test_in_float32_to_the_innermost_layer():
    with global_policy("float16"):
        model = made(config=HYBRID, stochastic_depth_rate=0.1)
    found = in_precision(model)
    assert {part.dtype_policy.name for part in all_layers(found)} == {"float32"}
    assert found.get_layer("encoder_block_1").stochastic_depth_rate == 0.1
    both = zip(found.trainable_variables, model.trainable_variables, strict=True)
    for variable, other in both:
        assert variable.dtype == "float32"
        np.testing.assert_array_equal(variable, other)
    assert "float16" in {variable.dtype for variable in model.variables}
    assert in_precision(found) is found


def test_holds_one_copy_of_the_weights(export):
    model, folder, _ = export("plain")
    stored = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    shapes = stored.get_variable_to_shape_map()
    kinds = stored.get_variable_to_dtype_map()
    weights = [shapes[name] for name in shapes if kinds[name] == tf.float32]
    assert sum(map(np.prod, weights)) == model.count_params()
    proto = saved_model_pb2.SavedModel.FromString(
        (folder / "saved_model.pb").read_bytes()
    )
    [meta_graph] = proto.meta_graphs
    graph = meta_graph.graph_def
    nodes = [*graph.node]
    for function in graph.library.function:
        nodes += function.node_def
    constants = [
        np.prod([side.size for side in node.attr["value"].tensor.tensor_shape.dim])
        for node in nodes
        if node.op == "Const"
    ]
    smallest_matrix = PLAIN.hidden_size * len(NAMES)
    assert len(constants) > 100 and max(constants) < smallest_matrix


def test_logs_nothing(exported, tmp_path, capfd, caplog, written_quickly):
    caplog.set_level(logging.INFO, "tensorflow")
    verbosity = absl.logging.get_verbosity()
    absl.logging.set_verbosity(absl.logging.INFO)
    try:
        write_saved_model(exported[0], tmp_path / "exported")
        assert capfd.readouterr() == ("", "")
        assert caplog.records == []
        absl.logging.info("as before")
        assert caplog.messages == ["as before"]
    finally:
        absl.logging.set_verbosity(verbosity)


def test_an_older_one_is_replaced_whole(exported, tmp_path, written_quickly):
    folder = tmp_path / "deep" / "exported"
    shutil.copytree(exported[1], folder)
    (folder / "assets" / "left over").write_text("")
    (folder / "variables" / "more").write_text("")
    write_saved_model(exported[0], folder)
    assert tf.saved_model.load(folder)([1.0]) == 2.0
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
def test_a_failure_leaves_the_older_one(exported, tmp_path, failing, written_quickly):
    folder = tmp_path / "exported"
    shutil.copytree(exported[1], folder)
    before = {path: path.stat().st_ino for path in folder.rglob("*")}
    with failing():
        write_saved_model(exported[0], folder)
    assert {path: path.stat().st_ino for path in folder.rglob("*")} == before
    assert os.listdir(tmp_path) == ["exported"]


KILLED = """
import os, signal, sys
from train.common.files import whole_folder

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


def test_a_folder_of_something_else_is_left_alone(exported, tmp_path):
    for name in ("folder", "file"):
        path = tmp_path / name
        if name == "folder":
            path.mkdir()
            (path / "thesis.tex").write_text("all")
        else:
            path.write_text("all")
        with pytest.raises(RunError, match=f"{name} exists and is not a SavedModel"):
            write_saved_model(exported[0], path)
    assert (tmp_path / "folder" / "thesis.tex").read_text() == "all"
    assert (tmp_path / "file").read_text() == "all"


def test_a_folder_that_cannot_be_made(exported, tmp_path, written_quickly):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="Cannot write the folder .*choose another"):
        write_saved_model(exported[0], tmp_path / "file" / "exported")


@pytest.mark.parametrize("include_top", [False, True])
def test_all_tokens_are_refused(tmp_path, include_top):
    model = made(pooling=None, include_top=include_top)
    with pytest.raises(ValueError, match='all tokens, .* pooling="token" or "gap"'):
        write_saved_model(model, tmp_path / "exported")
    assert not list(tmp_path.iterdir())


def test_other_models_are_refused(exported, tmp_path):
    model = exported[0]
    more = keras.layers.Softmax(name="shares")(model.output)
    with pytest.raises(ValueError, match="ends in the layer 'shares': pass a model"):
        write_saved_model(keras.Model(model.input, more), tmp_path / "exported")
    assert not list(tmp_path.iterdir())


def test_features_behind_a_norm(tmp_path):
    network = of(PLAIN, num_layers=1, norm_after_pooling=True)
    model = made(**network, include_top=False, pooling="gap")
    assert model.layers[-1].name == "norm_after_pooling"
    write_saved_model(model, tmp_path)
    images = np.random.default_rng(0).random((2, *model.input_shape[1:]), "float32")
    found = tf.saved_model.load(str(tmp_path))(images)
    np.testing.assert_allclose(found, model(2 * images - 1), rtol=0, atol=1e-5)


def test_another_backend(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RunError, match="on TensorFlow, but KERAS_BACKEND is 'jax'"):
        write_saved_model(exported[0], tmp_path / "exported")


def test_files_that_exif_turns(export):
    loaded = export("plain")[2]
    turned = PIL.Image.Exif()
    turned[0x0112] = 6
    image = PIL.Image.fromarray(photo(40, 70))
    files = [io.BytesIO(), io.BytesIO()]
    image.save(files[0], "PNG")
    image.transpose(PIL.Image.Transpose.ROTATE_90).save(files[1], "PNG", exif=turned)
    answers = loaded.signatures["serve_bytes"](
        image_bytes=tf.constant([file.getvalue() for file in files])
    )["logits"].numpy()
    close(answers[1:], answers[:1])


@pytest.mark.parametrize("preparation", ["central crop", "timm crop bicubic 0.9"])
def test_photos_are_prepared_as_the_model_says(preparation, tmp_path):
    """They were squashed, whatever the model said."""
    model = made(preparation=preparation)
    write_saved_model(model, tmp_path / "saved")
    operations.check(tmp_path / "saved")
    loaded = tf.saved_model.load(tmp_path / "saved")
    image = photo(83, 57)
    inputs = zoo.photos.prepare(image, SIZE, preparation)
    wanted = model(inputs[None]).numpy()
    squashed = model(zoo.photos.prepare(image, SIZE)[None]).numpy()
    assert np.abs(wanted - squashed).max() > 0.1
    answers = loaded.signatures["serve_bytes"](image_bytes=tf.constant([png(image)]))
    # Pillow sums integers, whose rounding may differ by a level.
    close(answers["logits"], wanted, atol=0.01)
    scale = (image / 255.0).astype("float32")[None]
    inputs = zoo.photos.prepare(image.astype("float32"), SIZE, preparation)
    close(loaded(scale), model(inputs[None]), atol=1e-3)

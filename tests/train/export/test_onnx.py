import dataclasses
import importlib.util
import json
import os

import keras
import numpy as np
import pytest
import small_models
from harness import global_policy, randomize
from small_models import HYBRID, PLAIN, made, of, positions, shared

import keras_vit
from keras_vit import preprocess_input
from keras_vit.models.bit import BiTResNet
from train.common.errors import RunError
from train.export.onnx import OPSET, write_onnx
from zoo.network import BiTConfig
from zoo.position_embedding import METHODS

onnx = pytest.importorskip("onnx", reason="pip install onnx")
onnxruntime = pytest.importorskip("onnxruntime")

ODD = dataclasses.replace(HYBRID, patch_size=(2, 1), resnet_stages=(1, 2))
# Those that this exporter writes node by node.
MODELS = small_models.MODELS | {
    "hybrid, odd sides": {"config": ODD, "image_size": (46, 41)},
    "hybrid of timm": of(HYBRID, resnet_padding="symmetric", resnet_epsilons="timm"),
    "hybrid without stages": of(HYBRID, resnet_stages=()),
    "rows and columns": positions("2d"),
    "rows and columns, no class token": {**positions("2d"), "pooling": "gap"},
    "positions before every block": positions("learned", "every_layer"),
    "one table before every block": positions("2d", "every_layer_shared"),
    "relative, no class token": {**positions("relative"), "pooling": "gap"},
    "no positions": positions("none"),
    "class token and mean, registers behind": {
        **of(PLAIN, num_registers=2, tokens_with_positions="class token and patches"),
        "pooling": "token_and_gap",
    },
    "distilled": {**of(PLAIN, distillation_token=True), "pooling": "distilled"},
    "rotary alone": of(PLAIN, rotary="dinov3", tokens_with_positions="none"),
}
IN_FLOAT16 = ("plain", "exact GELU", "hybrid", "relative")


@pytest.fixture
def plain():
    """The plain model, for tests that do not change it."""
    return shared()


def images_for(model, count=3):
    shape = (count, *model.input_shape[1:])
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype="uint8")
    return preprocess_input(pixels)


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )


def check(model, path, atol, output="logits"):
    """Runs the file with one image and with three; atol is of the largest output."""
    images = images_for(model)
    wanted = np.asarray(model(images))
    runs = session(path)
    [taken], [given] = runs.get_inputs(), runs.get_outputs()
    assert (taken.name, taken.type) == ("images", "tensor(float)")
    assert (given.name, given.type) == (output, "tensor(float)")
    assert taken.shape == ["batch", *images.shape[1:]]
    assert given.shape == ["batch", *wanted.shape[1:]]
    for count in (1, 3):
        [found] = runs.run(None, {"images": images[:count]})
        largest = np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted[:count], rtol=0, atol=atol * largest)


def test_the_mean_of_patches_beside_a_class_token(tmp_path):
    model = small_models.patches_averaged()
    write_onnx(model, tmp_path / "model.onnx")
    check(model, tmp_path / "model.onnx", 1e-5)


def test_a_map_of_features(tmp_path):
    maps = keras_vit.features(shared("registers"), 0)
    model = keras.Model(maps.input, maps.output["layer_0"])
    write_onnx(model, tmp_path / "model.onnx")
    check(model, tmp_path / "model.onnx", 1e-5, "features")


OF_ANY_SIZE = sorted(
    name
    for name in MODELS
    if not name.startswith("relative,")
    and name != "relative"
    and "image_size" not in MODELS[name]
)


@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_images_of_any_size(name, tmp_path):
    is_shared = name in small_models.MODELS
    fixed = shared(name) if is_shared else made(**MODELS[name])
    model = keras_vit.at_image_size(fixed, (None, None))
    write_onnx(model, tmp_path / "model.onnx")
    file = session(tmp_path / "model.onnx")
    channels = fixed.input_shape[-1]
    assert file.get_inputs()[0].shape == ["batch", "height", "width", channels]
    for size in (fixed.input_shape[1:3], (48, 24), (96, 144)):
        wanted = keras_vit.at_image_size(fixed, size)
        images = images_for(wanted)
        [found] = file.run(None, {"images": images})
        wanted = np.asarray(wanted(images))
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= 5e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("method", METHODS)
def test_every_rule_of_resizing(method, tmp_path):
    fixed = shared()
    model = keras_vit.at_image_size(fixed, (None, None), method)
    write_onnx(model, tmp_path / "model.onnx")
    file = session(tmp_path / "model.onnx")
    for size in ((8, 8), (16, 80), (40, 24), (136, 120)):
        wanted = keras_vit.at_image_size(fixed, size, method)
        images = images_for(wanted)
        [found] = file.run(None, {"images": images})
        wanted = np.asarray(wanted(images))
        assert np.abs(found - wanted).max() <= 5e-6 * np.abs(wanted).max()


def test_a_map_of_features_of_images_of_any_size(tmp_path):
    model = keras_vit.at_image_size(shared("registers"), (None, None))
    maps = keras_vit.features(model, 0)
    model = keras.Model(maps.input, maps.output["layer_0"])
    write_onnx(model, tmp_path / "model.onnx")
    images = images_for(keras_vit.at_image_size(model, (24, 64)))
    [found] = session(tmp_path / "model.onnx").run(None, {"images": images})
    wanted = np.asarray(model(images))
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def output_of(model):
    if model.layers[-1].name != "head":
        return "features"
    linear = model.layers[-1].activation is keras.activations.linear
    return "logits" if linear else "probabilities"


@pytest.mark.parametrize("name", MODELS)
def test_computes_what_the_model_does(name, tmp_path):
    is_shared = name in small_models.MODELS
    model = shared(name) if is_shared else made(**MODELS[name])
    path = tmp_path / "model.onnx"
    write_onnx(model, path)
    check(model, path, 1e-5, output_of(model))
    assert os.listdir(tmp_path) == ["model.onnx"]
    if name in IN_FLOAT16:
        write_onnx(model, path, precision="float16")
        # Some roundings of 2^-11 after one another.
        check(model, path, 1e-2)
        check_precisions(onnx.load(path).graph)


def check_precisions(graph):
    """Weights are float16, and what needs more is computed in float32."""
    kinds = {
        len(tensor.dims): tensor.data_type
        for tensor in graph.initializer
        if tensor.name.endswith("kernel")
    }
    assert set(kinds.values()) == {onnx.TensorProto.FLOAT16}
    made_wide = {
        node.output[0]: node.attribute[0].i == onnx.TensorProto.FLOAT
        for node in graph.node
        if node.op_type == "Cast"
    }
    for node in graph.node:
        if node.op_type in ("Softmax", "InstanceNormalization", "ReduceMean"):
            assert made_wide[node.input[0]]


def test_float16_keeps_statistics_of_large_numbers(tmp_path):
    model, path = made(), tmp_path / "model.onnx"
    # Their squares are more than float16 holds.
    table = model.get_layer("position_embedding").position_embedding
    table.assign(keras.ops.concatenate([1e3 * table[..., :3], table[..., 3:]], -1))
    assert np.abs(table).max() > 300
    write_onnx(model, path, precision="float16")
    check(model, path, 1e-2)


def test_bit(tmp_path):
    config = BiTConfig((1, 1))
    model = BiTResNet(config, image_size=(39, 32), classes=5)
    randomize(model)
    for precision, atol in (("float32", 1e-5), ("float16", 1e-2)):
        write_onnx(model, tmp_path / "model.onnx", precision=precision)
        check(model, tmp_path / "model.onnx", atol)


def test_mixed_precision_becomes_float32(plain, tmp_path):
    with global_policy("mixed_bfloat16"):
        model = made()
    model.set_weights(plain.get_weights())
    write_onnx(model, tmp_path / "model.onnx")
    check(plain, tmp_path / "model.onnx", 1e-5)


def test_int8_weights_become_what_they_stand_for(tmp_path):
    model = keras_vit.quantize_weights(made(HYBRID))
    write_onnx(model, tmp_path / "model.onnx")
    check(model, tmp_path / "model.onnx", 1e-5)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_opset_and_metadata(plain, precision, tmp_path):
    model, path = plain, tmp_path / "model.onnx"
    names = ["cat", "été", 'a "quoted", long name', "4", "5"]
    write_onnx(model, path, precision=precision, class_names=names)
    onnx.checker.check_model(str(path), full_check=True)
    proto = onnx.load(path)
    assert [(entry.domain, entry.version) for entry in proto.opset_import] == [
        ("", OPSET)
    ]
    assert (proto.producer_name, proto.ir_version) == ("keras_vit", 9)
    metadata = session(path).get_modelmeta().custom_metadata_map
    assert json.loads(metadata.pop("class_names")) == names
    assert metadata == {
        "opset": "20",
        "precision": precision,
        "input_range": "[-1, 1]",
        "activation": "linear",
        "preparation": "squash",
    }


def test_each_weight_once_and_by_its_name(tmp_path):
    config = dataclasses.replace(PLAIN, hidden_size=192, mlp_dim=768)
    model, path = made(config), tmp_path / "model.onnx"
    weights = 4 * model.count_params()
    for precision, share in (("float32", 1), ("float16", 0.5)):
        write_onnx(model, path, precision=precision)
        assert share * weights < path.stat().st_size < share * weights + 30_000
    write_onnx(model, path)
    stored = {tensor.name: tensor for tensor in onnx.load(path).graph.initializer}
    for variable in model.variables:
        array = onnx.numpy_helper.to_array(stored[variable.path])
        np.testing.assert_array_equal(array.ravel(), np.ravel(variable))


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_large_models_have_their_weights_beside(
    plain, precision, tmp_path, monkeypatch
):
    monkeypatch.setattr("keras_vit.runtimes.onnx.LARGEST_FILE", 10_000)
    folder = tmp_path / "here"
    folder.mkdir()
    model, path = plain, folder / "model.onnx"
    for _ in range(2):
        write_onnx(model, path, precision=precision)
    assert sorted(os.listdir(folder)) == ["model.onnx", "model.onnx.data"]
    weights = np.dtype(precision).itemsize * model.count_params()
    assert (folder / "model.onnx.data").stat().st_size >= weights
    folder.rename(tmp_path / "there")
    path = tmp_path / "there" / "model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        for entry in tensor.external_data:
            assert entry.key != "offset" or int(entry.value) % 4096 == 0
    check(model, path, 1e-5 if precision == "float32" else 1e-2)


@pytest.mark.parametrize("largest", [10_000, 10**9])
def test_a_failure_leaves_the_older_file(plain, largest, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.runtimes.onnx.LARGEST_FILE", largest)
    path = tmp_path / "model.onnx"
    write_onnx(plain, path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(onnx.checker, "check_model", fail)
    with pytest.raises(KeyboardInterrupt):
        write_onnx(plain, path, precision="float16")
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_prints_nothing(plain, tmp_path, capfd):
    write_onnx(plain, tmp_path / "model.onnx", precision="float16")
    assert capfd.readouterr() == ("", "")


def too_large():
    model = made()
    model.get_layer("head").bias.assign([0.0, 1e5, 0.0, 0.0, 0.0])
    return model


class Twice(keras_vit.layers.LayerNorm):
    def call(self, tokens):
        return 2.0 * super().call(tokens)


def more(layer):
    model = shared()
    return keras.Model(model.input, layer(model.output))


def two_outputs():
    model = shared()
    return keras.Model(model.input, [model.output, model.layers[-2].output])


def by_keras():
    model = made()
    model.get_layer("head").quantize("int8")
    return model


class Own(keras.Model):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (shared, {"precision": "int8"}, "one of float32, float16, got 'int8'"),
        (shared, {"class_names": ["cat"]}, "1 names .* 5 classes of .*: pass one name"),
        (
            lambda: shared("without head"),
            {"class_names": ["cat"]},
            "no head whose classes could have names: leave out class_names",
        ),
        (too_large, {"precision": "float16"}, 'head/bias .*: .* precision="float32"'),
        (
            lambda: more(keras.layers.LayerNormalization(name="last")),
            {},
            "'last' is a LayerNormalization, which the ONNX exporter does not know",
        ),
        (lambda: more(Twice(name="last")), {}, "'last' is a Twice, which"),
        (
            lambda: more(keras.layers.Dense(2, activation="elu", name="last")),
            {},
            "last has the activation 'elu', .*: use one of linear, relu",
        ),
        (
            lambda: more(keras.layers.ReLU(max_value=6.0, name="last")),
            {},
            "last has a max_value, .*: use a plain ReLU",
        ),
        (by_keras, {}, "head/kernel has integers: export the model before Keras"),
        (
            lambda: keras_vit.features(shared(), (0, -1)),
            {},
            r"a dict of layer_0, layer_1, .*: pass keras.Model.*\['layer_0'\]",
        ),
        (two_outputs, {}, "not a functional model of one input and one output"),
        (lambda: Own(shared()), {}, "own.* is not a functional model"),
        (
            lambda: keras.Sequential([shared()]),
            {},
            "sequential.* is not a functional model",
        ),
    ],
)
def test_wrong_models_and_arguments(make, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_onnx(make(), tmp_path / "model.onnx", **options)
    assert os.listdir(tmp_path) == []


def test_without_the_package(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RunError, match=r"pip install onnx"):
        write_onnx(plain, tmp_path / "model.onnx")


def test_a_folder_that_is_not_there(plain, tmp_path):
    with pytest.raises(RunError, match=r"Cannot write .*model.onnx"):
        write_onnx(plain, tmp_path / "nowhere" / "model.onnx")

"""Predictors of other runtimes, beside Keras."""

import concurrent.futures
import importlib.util
import itertools
import tracemalloc

import keras
import numpy as np
import pytest
from harness import normal, numpy, randomize

from keras_vit import Predictor, VisionTransformer, ViTConfig, at_image_size
from keras_vit.runtimes import automatic, choices
from keras_vit.runtimes.changes import Values
from keras_vit.runtimes.precision import is_of_policy, recast
from zoo.runtimes import RUNTIMES

CONFIG = ViTConfig(hidden_size=24, num_layers=2, num_heads=3, mlp_dim=40, patch_size=8)
HERE = [
    name
    for name, row in RUNTIMES.items()
    if row.packages
    and keras.backend.backend() in row.backends
    and all(map(importlib.util.find_spec, row.packages))
]
OF_ANY_SHAPE = [name for name in HERE if not RUNTIMES[name].of_one_shape]
every_engine = pytest.mark.parametrize("engine", HERE)


@pytest.fixture
def model():
    model = VisionTransformer(CONFIG, image_size=(16, 24), classes=5)
    randomize(model)
    return model


def close(found, expected):
    assert found.dtype == np.float32
    limit = 2e-5 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)


@every_engine
def test_answers_and_new_weights(model, engine):
    predictor = Predictor(model, batch_size=4, engine=engine)
    assert predictor.engine == engine
    images = normal((9, 16, 24, 3))
    for count in (1, 3, 9, 4):
        close(predictor(images[:count]), numpy(model(images[:count])))
    # One value of the many that are compared.
    bias = model.get_layer("head").bias
    bias.assign(bias + np.eye(5)[0])
    close(predictor(images), numpy(model(images)))


@pytest.mark.parametrize("engine", OF_ANY_SHAPE)
def test_images_of_any_size(model, engine):
    of_any_size = at_image_size(model, (None, None))
    predictor = Predictor(of_any_size, engine=engine)
    for size in ((16, 24), (32, 24)):
        images = normal((2, *size, 3))
        close(predictor(images), numpy(of_any_size(images)))


@pytest.mark.parametrize(
    "engine, precision, limit",
    [
        ("keras", "bfloat16", 0.02),
        ("openvino", "bfloat16", 0.02),
        ("openvino", "int8", 0.1),
        ("litert", "int8", 0.1),
    ],
)
def test_lower_precisions(model, engine, precision, limit, monkeypatch):
    if engine not in ("keras", *HERE):
        pytest.skip(f"{engine} is not here")
    monkeypatch.setattr(
        "keras_vit.runtimes.requirements.computes_bfloat16", lambda: True
    )
    images = normal((3, 16, 24, 3))
    predictor = Predictor(model, 2, engine=engine, precision=precision)
    for _ in range(2):
        expected = numpy(model(images))
        found = predictor(images)
        assert found.dtype == np.float32
        error = np.abs(found - expected).max() / np.abs(expected).max()
        # It is another precision indeed.
        assert 1e-4 < error < limit
        randomize(model, seed=1)


def test_large_models_have_their_weights_beside(model, monkeypatch):
    [engine, *_] = OF_ANY_SHAPE
    monkeypatch.setattr("keras_vit.runtimes.onnx.LARGEST_FILE", 1000)
    images = normal((2, 16, 24, 3))
    close(Predictor(model, engine=engine)(images), numpy(model(images)))


INT8_KERAS = {"engine": "keras", "precision": "int8"}


def test_what_cannot_be_is_refused_by_name(model, monkeypatch):
    for arguments, words in (
        ({"engine": "tensorrt"}, "one of auto, keras, litert, onnxruntime, openvino"),
        ({"precision": "float8"}, "precision must be one of float32, bfloat16, int8"),
        (INT8_KERAS, "keras computes in .*, not in int8: .*='openvino'"),
        ({"engine": "openvino", "jit_compile": True}, "jit_compile is of engine='ker"),
        ({"precision": "int8", "jit_compile": True}, "'int8': leave jit_compile out"),
    ):
        with pytest.raises(ValueError, match=words):
            Predictor(model, **arguments)
    with pytest.raises(ValueError, match="got no images, .*: pass at least one"):
        Predictor(model)([])
    monkeypatch.setattr(
        "keras_vit.runtimes.requirements.computes_bfloat16", lambda: False
    )
    with pytest.raises(ValueError, match="no instructions for bfloat16.*choose float3"):
        Predictor(model, engine="openvino", precision="bfloat16")
    if "litert" in HERE:
        of_any_size = at_image_size(model, (None, None))
        with pytest.raises(ValueError, match="litert takes images of one size"):
            Predictor(of_any_size, engine="litert")
    inputs = keras.Input((3,))
    other = keras.Model(inputs, keras.layers.Softmax()(inputs))
    with pytest.raises(ValueError, match="a Softmax, which the ONNX exporter does not"):
        Predictor(other, engine=OF_ANY_SHAPE[0])(normal((2, 3)))
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="litert converts models on tensorflow, and"):
        Predictor(model, engine="litert")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install onnx openvino"):
        Predictor(model, engine="openvino")


@pytest.fixture
def impatient(monkeypatch, tmp_path):
    """Conversions that are likely to take no time, and an empty cache."""
    # Less than any, also by a clock that stands still.
    monkeypatch.setattr(automatic, "conversion_seconds", lambda *_: -1.0)
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    return tmp_path / "engines"


def test_auto_takes_the_fastest_and_keeps_the_choice(model, impatient, monkeypatch):
    monkeypatch.setattr(
        automatic, "_seconds", lambda answer, *_: SECONDS[answer.engine]
    )
    images = normal((7, 16, 24, 3))
    predictor = Predictor(model, 3)
    close(predictor(images[:3]), numpy(model(images[:3])))
    assert (predictor.engine, predictor.trials) == ("keras", {})
    close(predictor(images), numpy(model(images)))
    assert predictor.engine == "onnxruntime"
    tried = [name for name in HERE if RUNTIMES[name].is_automatic]
    assert predictor.trials == {name: SECONDS[name] for name in ("keras", *tried)}
    [path] = impatient.iterdir()

    # New weights begin with Keras, and then the kept choice alone is taken.
    randomize(model, seed=1)
    close(predictor(images[:3]), numpy(model(images[:3])))
    assert (predictor.engine, predictor.trials) == ("keras", {})
    close(predictor(images), numpy(model(images)))
    assert (predictor.engine, predictor.trials) == ("onnxruntime", {})

    for damaged in ("", "[]", '{"engine": "other"}', "[" * 50_000):
        path.write_text(damaged)
        assert choices.read(path, HERE) is None


SECONDS = {"keras": 4.0, "litert": 3.0, "onnxruntime": 1.0, "openvino": 2.0}


def test_auto_stays_with_keras_where_others_fail(model, impatient, monkeypatch):
    monkeypatch.setitem(automatic.TOLERANCES, "float32", 0.0)
    monkeypatch.setattr(
        "keras_vit.runtimes.onnxruntime.convert", lambda *_: 1 / 0, raising=False
    )
    images = normal((6, 16, 24, 3))
    predictor = Predictor(model, 2)
    predictor(images)
    assert predictor.engine == "keras"
    assert predictor.trials["onnxruntime"] == "ZeroDivisionError: division by zero"
    assert "its answers differ by" in predictor.trials["openvino"]
    # What fails here may not fail the next time.
    assert not impatient.exists()


def test_auto_chooses_by_batches_alike_whose_answers_are_numbers(model, impatient):
    model.get_layer("head").bias.assign(np.full(5, np.nan))
    images = normal((7, 16, 24, 3))
    predictor = Predictor(model, 3)
    predictor(images)
    assert (predictor.engine, predictor.trials) == ("keras", {})
    model.get_layer("head").bias.assign(np.zeros(5))
    predictor(images[:1])
    assert predictor.trials == {}
    predictor(images)
    assert predictor.trials


def test_auto_begins_anew_with_batches_of_another_size(model, impatient, monkeypatch):
    # Of a machine whose fastest engine is Keras the choice would be kept at once.
    monkeypatch.setattr(
        automatic, "_seconds", lambda answer, *_: SECONDS[answer.engine]
    )
    images = normal((8, 16, 24, 3))
    for first, later in ((1, 8), (8, 1)):
        predictor = Predictor(model, 8)
        predictor(images[:first])
        for _ in range(4):
            assert not predictor.trials
            close(predictor(images[:later]), numpy(model(images[:later])))
        assert predictor.trials


def column(model):
    kernel = model.get_layer("head").kernel
    values = numpy(kernel).copy()
    values[:, 71] = 0.5
    kernel.assign(values)


def one_value(model):
    kernel = model.get_layer("encoder_block_1").mlp.expand.kernel
    values = numpy(kernel).copy()
    values[7, 11] += 1.0
    kernel.assign(values)


def two_swapped(model):
    bias = model.get_layer("head").bias
    values = numpy(bias).copy()
    values[[13, 29]] = values[[29, 13]]
    bias.assign(values)


def masked_bias(model):
    bias = model.get_layer("head").bias
    bias.assign(np.where(np.arange(100) == 57, -1e9, numpy(bias)))


def added(model):
    model.get_layer("head").bias.assign_add(np.eye(100)[43])


def set_weights(model):
    head = model.get_layer("head")
    kernel, bias = head.get_weights()
    head.set_weights([kernel, bias * (np.arange(100) != 3)])


def step(model):
    head = model.get_layer("head")
    # Of a gradient that is zero nearly everywhere.
    gradient = keras.ops.convert_to_tensor(np.eye(100, dtype="float32")[19])
    keras.optimizers.SGD(0.1).apply([gradient], [head.bias])


def pruned(model):
    kernel = model.get_layer("encoder_block_0").attention.out.kernel
    values = numpy(kernel)
    kernel.assign(values * (abs(values) > np.quantile(abs(values), 0.02)))


def lora(model):
    query = model.get_layer("encoder_block_0").attention.value
    query.enable_lora(2)
    query.lora_kernel_b.assign(normal(query.lora_kernel_b.shape))


def activation(model):
    model.get_layer("head").activation = keras.activations.softmax


def epsilon(model):
    model.get_layer("encoder_block_1").mlp_norm.epsilon = 0.5


VALUES = (
    column,
    one_value,
    two_swapped,
    masked_bias,
    added,
    set_weights,
    step,
    pruned,
)
SETTINGS = (lora, activation, epsilon)


@pytest.mark.parametrize("change", VALUES + SETTINGS)
@pytest.mark.parametrize("engine", ["keras", *HERE])
def test_any_change_is_noticed_by_the_next_call(change, engine):
    model = VisionTransformer(CONFIG, image_size=(16, 24), classes=100)
    randomize(model)
    images = normal((2, 16, 24, 3))
    predictor = Predictor(model, 2, engine=engine)
    before = predictor(images)
    close(before, numpy(model(images)))
    change(model)
    expected = numpy(model(images))
    assert np.abs(expected - before).max() > 1e-4 * np.abs(expected).max()
    close(predictor(images), expected)


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("engine", ["keras", *HERE])
def test_what_keras_quantizes_is_noticed_or_refused(model, engine):
    predictor = Predictor(model, 2, engine=engine)
    images = normal((2, 16, 24, 3))
    predictor(images)
    model.quantize("int8")
    if engine == "keras":
        close(predictor(images), numpy(model(images)))
    else:
        words = "has integers: export|has quantized weights in the layer .*: leave"
        with pytest.raises(ValueError, match=words):
            predictor(images)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_single_value_is_noticed_in_other_precisions(model, precision, monkeypatch):
    monkeypatch.setattr(
        "keras_vit.runtimes.requirements.computes_bfloat16", lambda: True
    )
    images = normal((2, 16, 24, 3))
    predictor = Predictor(model, 2, engine="openvino", precision=precision)
    before = predictor(images)
    model.get_layer("head").bias.assign_add(np.eye(5)[3] * 7)
    np.testing.assert_allclose(
        predictor(images) - before, np.tile(np.eye(5)[3] * 7, (2, 1)), atol=0.1
    )


def test_auto_notices_a_single_value(model, impatient, monkeypatch):
    monkeypatch.setattr(
        automatic, "_seconds", lambda answer, *_: SECONDS[answer.engine]
    )
    predictor = Predictor(model, 2)
    images = normal((6, 16, 24, 3))
    predictor(images)
    assert predictor.engine == "onnxruntime"
    model.get_layer("head").bias.assign_add(np.eye(5)[3])
    close(predictor(images), numpy(model(images)))


def test_nothing_is_made_anew_without_a_change(model, monkeypatch):
    # On a busy machine "auto" would convert the model here.
    monkeypatch.setattr(automatic, "conversion_seconds", lambda *_: float("inf"))
    made = []
    monkeypatch.setattr(
        "keras_vit.runtimes.onnxruntime.convert", lambda *_: made.append(1)
    )
    monkeypatch.setattr(
        "keras_vit.runtimes.onnxruntime.load", lambda *_: lambda images: images
    )
    of_any_size = at_image_size(model, (None, None))
    predictors = [Predictor(model, engine="onnxruntime"), Predictor(of_any_size)]
    answers = [predictor._answer for predictor in predictors]
    for size in ((16, 24), (32, 24), (16, 24)):
        predictors[1](normal((2, *size, 3)))
        predictors[0](normal((2, 16, 24, 3)))
    # Values that are written anew and are the same.
    model.set_weights(model.get_weights())
    predictors[0](normal((2, 16, 24, 3)))
    assert made == [1]
    assert answers == [predictor._answer for predictor in predictors]


def test_values_that_share_memory_with_an_array_are_compared():
    # At such places JAX takes an array of NumPy without a copy.
    memory = np.zeros(4096 + 64, "uint8")
    start = -memory.ctypes.data % 64
    values = memory[start : start + 4096].view("float32").reshape(32, 32)
    inputs = keras.Input((32,))
    dense = keras.layers.Dense(32, use_bias=False)
    model = keras.Model(inputs, dense(inputs))
    dense.kernel.assign(values)
    kept = Values(model)
    assert kept.hold()
    before = numpy(dense.kernel).copy()
    values[3, 5] = 1.0
    assert kept.hold() == np.array_equal(before, numpy(dense.kernel))


@pytest.mark.parametrize("dtype, size", [("float32", 2**20 + 3), ("bfloat16", 5)])
def test_values_are_compared_to_the_last_one_and_bit(dtype, size):
    inputs = keras.Input((1,))
    dense = keras.layers.Dense(size, dtype=dtype)
    model = keras.Model(inputs, dense(inputs))
    kept = Values(model)
    dense.bias.assign(dense.bias + 0)
    assert kept.hold()
    values = np.zeros(size)
    values[-1] = -0.0
    dense.bias.assign(values)
    assert not kept.hold()
    values[-1] = np.nan
    dense.bias.assign(values)
    kept = Values(model)
    dense.bias.assign(values)
    assert kept.hold()


def test_values_are_compared_without_results_of_each():
    inputs = keras.Input((1,))
    dense = keras.layers.Dense(2**20)
    model = keras.Model(inputs, dense(inputs))
    kept = Values(model)
    dense.bias.assign(dense.bias + 0)
    assert kept.hold()
    tracemalloc.start()
    try:
        assert kept.hold()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_auto_converts_once_its_clock_says_that_it_pays(model, impatient, monkeypatch):
    monkeypatch.setattr(automatic, "conversion_seconds", lambda *_: 1.25)
    images = normal((2, 16, 24, 3))
    # Every look at it is a second later, so a batch takes one.
    answer = automatic.Automatic(model, 2, "float32", clock=itertools.count().__next__)
    tried = sum(RUNTIMES[name].is_automatic for name in HERE)
    assert tried == 2
    for _ in range(3):  # The first one is not counted; two conversions take 2.5.
        answer(images)
        assert not answer.trials
    answer(images)
    assert answer.trials


def test_auto_leaves_other_policies_and_full_memory_to_keras(impatient, monkeypatch):
    def tried():
        model = VisionTransformer(CONFIG, image_size=(16, 24), classes=5, dtype=policy)
        predictor = Predictor(model, 2)
        predictor(normal((6, 16, 24, 3)))
        return predictor.trials

    policy = "mixed_bfloat16"
    assert not tried()
    policy = "float32"
    assert tried()
    monkeypatch.setattr(automatic, "available_bytes", lambda: 1000)
    assert not tried()


def test_models_in_models_are_recast_and_lora_is_refused(model):
    inputs = keras.Input((16, 24, 3))
    outer = keras.Model(inputs, keras.layers.Softmax()(model(inputs)))
    other = recast(outer, "mixed_bfloat16")
    assert is_of_policy(other, "mixed_bfloat16")
    assert not is_of_policy(outer, "mixed_bfloat16")
    model.get_layer("encoder_block_0").attention.query.enable_lora(2)
    with pytest.raises(ValueError, match="has LoRA in the layer encoder_block_0"):
        recast(model, "mixed_bfloat16")


@every_engine
def test_threads_share_a_predictor(model, engine):
    predictor = Predictor(model, 2, engine=engine)
    batches = [normal((2, 16, 24, 3), seed=seed) for seed in range(8)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for images, found in zip(batches, pool.map(predictor, batches), strict=True):
            close(found, numpy(model(images)))


def test_auto_converts_nothing_in_short_uses(model):
    answer = automatic.Automatic(model, 2, "float32", clock=lambda: 0.0)
    answer(normal((6, 16, 24, 3)))
    assert (answer.engine, answer.trials) == ("keras", {})
    if keras.backend.backend() != "torch":
        assert Predictor(model, jit_compile=True).trials == {}
    [quickest, *_] = [name for name in ("openvino", "litert") if name in HERE]
    assert Predictor(model, precision="int8").engine == quickest

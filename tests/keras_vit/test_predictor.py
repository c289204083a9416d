"""Predictors of other runtimes, beside Keras."""

import concurrent.futures
import dataclasses
import functools
import importlib.util
import itertools
import tracemalloc

import keras
import numpy as np
import pytest
from harness import check_refusal, normal, numpy, randomize

from keras_vit import Predictor, VisionTransformer, ViTConfig, at_image_size
from keras_vit.runtimes import automatic, batches, fastest
from keras_vit.runtimes.precision import is_of_policy, recast
from keras_vit.runtimes.staleness import Values
from zoo.common.machine import computes_bfloat16
from zoo.runtimes import RUNTIMES

CONFIG = ViTConfig(hidden_size=24, num_layers=2, num_heads=3, mlp_dim=40, patch_size=8)
HERE = [
    name
    for name, row in RUNTIMES.items()
    if "float32" in row.precisions
    and row.packages
    and keras.backend.backend() in row.backends
    and all(map(importlib.util.find_spec, row.packages))
]
OF_ANY_SHAPE = [name for name in HERE if not RUNTIMES[name].of_one_shape]
COMPUTES_BFLOAT16 = "keras_vit.runtimes.requirements.computes_bfloat16"
IMAGES = normal((9, 16, 24, 3))
every_engine = pytest.mark.parametrize("engine", ["keras", *HERE])


@pytest.fixture
def model():
    return made()


def made(config=CONFIG, **options):
    model = VisionTransformer(config, image_size=(16, 24), **{"classes": 5} | options)
    randomize(model)
    return model


@pytest.fixture
def with_bfloat16(monkeypatch):
    """A processor that is taken for one with instructions for bfloat16."""
    monkeypatch.setattr(COMPUTES_BFLOAT16, lambda: True)


def close(found, expected):
    assert found.dtype == np.float32
    limit = 2e-5 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="torch has no XLA")
def test_answers_as_the_model_does_compiled_by_xla():
    # XLA takes its time for each block.
    model = made(ViTConfig(8, num_layers=1, num_heads=2, mlp_dim=16, patch_size=8))
    predictor = Predictor(model, batch_size=4, jit_compile=True)
    expected = numpy(model(IMAGES))
    for images in (1, 4, 5, 9):
        close(predictor(IMAGES[:images]), expected[:images])


@every_engine
def test_answers_to_any_number_of_images_in_threads(model, engine):
    predictor = Predictor(model, batch_size=4, engine=engine)
    assert predictor.engine == engine
    expected = numpy(model(IMAGES))
    for count in (1, 3, 9, 4):
        close(predictor(IMAGES[:count]), expected[:count])
    single = [IMAGES[number : number + 1] for number in range(9)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        close(np.concatenate([*pool.map(predictor, single)]), expected)


@pytest.mark.parametrize("engine", ["keras", *OF_ANY_SHAPE])
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
        ("openvino_bfloat16", "int8", 0.1),
        ("litert", "int8", 0.1),
    ],
)
def test_lower_precisions(model, engine, precision, limit, with_bfloat16):
    if engine.removesuffix("_bfloat16") not in ("keras", *HERE):
        pytest.skip(f"{engine} is not here")
    if (engine, precision) == ("openvino", "bfloat16") and not computes_bfloat16():
        pytest.skip("OpenVINO takes float32 on a processor without bfloat16")
    images = IMAGES[:3]
    predictor = Predictor(model, 2, engine=engine, precision=precision)
    for _ in range(2):
        expected = numpy(model(images))
        found = predictor(images)
        assert found.dtype == np.float32
        error = np.abs(found - expected).max() / np.abs(expected).max()
        # It is another precision indeed.
        assert 1e-4 < error < limit
        randomize(model, seed=1)


@pytest.mark.parametrize("engine", ["openvino", "litert"])
def test_halves_side_by_side_have_the_answers_of_the_whole(model, engine, monkeypatch):
    if engine not in HERE:
        pytest.skip(f"{engine} is not here")
    answers = []
    for processors in (1, 2):
        monkeypatch.setattr(batches, "threads", lambda count=processors: count)
        assert batches.parts_side_by_side(4, "int8") == processors
        predictor = Predictor(model, 4, engine=engine, precision="int8")
        # Two batches, and one photo alone.
        answers.append(predictor(IMAGES))
    np.testing.assert_array_equal(*answers)


def test_large_models_have_their_weights_beside(model, monkeypatch):
    [engine, *_] = OF_ANY_SHAPE
    monkeypatch.setattr("keras_vit.runtimes.onnx.LARGEST_FILE", 1000)
    images = IMAGES[:2]
    close(Predictor(model, engine=engine)(images), numpy(model(images)))


SIZES = (0, 1.5, None, True, "8", [8], float("inf"), 10**400)
REFUSED = [
    *(({"batch_size": size}, "batch_size must be") for size in SIZES),
    ({"engine": "tensorrt"}, "one of auto, keras, litert, onnxruntime, openvino"),
    ({"precision": "float8"}, "must be one of float32, bfloat16, int8"),
    ({"engine": "keras", "precision": "int8"}, "not in int8", "='openvino'"),
    ({"engine": "openvino", "jit_compile": True}, "jit_compile is of engine='ker"),
    ({"precision": "int8", "jit_compile": True}, "leave jit_compile out"),
    ({"engine": "openvino", "precision": "bfloat16"},
     "no instructions for bfloat16", "choose another"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_choices_that_are_refused_by_name(model, row, monkeypatch):
    monkeypatch.setattr(COMPUTES_BFLOAT16, lambda: False)
    options, *parts = row
    check_refusal(lambda: Predictor(model, **options), *parts)


def test_what_cannot_be_is_refused_by_name(model, monkeypatch):
    check_refusal(lambda: Predictor(model)([]), "got no images", "pass at least one")
    for images in (IMAGES[0], IMAGES.swapaxes(1, 2)):
        with pytest.raises(ValueError, match=r"shape \(images, 16, 24, 3"):
            Predictor(model)(images)
    if "litert" in HERE:
        of_any_size = at_image_size(model, (None, None))
        check_refusal(
            lambda: Predictor(of_any_size, engine="litert"), "takes images of one size"
        )
    inputs = keras.Input((3,))
    other = keras.Model(inputs, keras.layers.Softmax()(inputs))
    check_refusal(
        lambda: Predictor(other, engine=OF_ANY_SHAPE[0])(normal((2, 3))),
        "a Softmax, which the ONNX exporter does not",
    )
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    check_refusal(
        lambda: Predictor(model, engine="litert"), "converts models on tensorflow, and"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_refusal(
        lambda: Predictor(model, engine="openvino"),
        "pip install onnx openvino",
        error=ModuleNotFoundError,
    )


@pytest.fixture
def impatient(monkeypatch, tmp_path):
    """Conversions that are likely to take no time, and an empty cache."""
    # Less than any, also by a clock that stands still.
    monkeypatch.setattr(automatic, "conversion_seconds", lambda *_: -1.0)
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    return tmp_path / "engines"


SECONDS = {"keras": 4.0, "litert": 3.0, "onnxruntime": 1.0, "openvino": 2.0}


@pytest.fixture
def timed(impatient, monkeypatch):
    """The seconds of each engine, on any machine."""
    monkeypatch.setattr(fastest, "seconds", lambda answer, *_: SECONDS[answer.engine])
    return impatient


def test_auto_takes_the_fastest_and_keeps_the_choice(model, timed):
    images = IMAGES[:7]
    predictor = Predictor(model, 3)
    close(predictor(images[:3]), numpy(model(images[:3])))
    assert (predictor.engine, predictor.trials) == ("keras", {})
    close(predictor(images), numpy(model(images)))
    assert predictor.engine == "onnxruntime"
    tried = [name for name in HERE if "float32" in RUNTIMES[name].saves]
    assert predictor.trials == {name: SECONDS[name] for name in ("keras", *tried)}
    [path] = timed.iterdir()

    # New weights begin with Keras, and then the kept choice alone is taken.
    randomize(model, seed=1)
    close(predictor(images[:3]), numpy(model(images[:3])))
    assert (predictor.engine, predictor.trials) == ("keras", {})
    close(predictor(images), numpy(model(images)))
    assert (predictor.engine, predictor.trials) == ("onnxruntime", {})

    of_list = '{"engine": "openvino", "trials": []}'
    for damaged in ("", "[]", '{"engine": "other"}', "[" * 50_000, of_list):
        path.write_text(damaged)
        assert fastest.read(path, HERE) == (None, {})


def test_auto_stays_with_keras_where_others_fail(model, impatient, monkeypatch):
    monkeypatch.setitem(automatic.TOLERANCES, "float32", 0.0)
    monkeypatch.setattr(
        "keras_vit.runtimes.onnxruntime.converted", lambda *_: 1 / 0, raising=False
    )
    images = IMAGES[:6]
    predictor = Predictor(model, 2)
    predictor(images)
    assert predictor.engine == "keras"
    assert predictor.trials["onnxruntime"] == "ZeroDivisionError: division by zero"
    assert "its answers differ by" in predictor.trials["openvino"]
    # A failure here need not be one the next time.
    assert not impatient.exists()


def test_auto_chooses_by_batches_alike_whose_answers_are_numbers(model, impatient):
    model.get_layer("head").bias.assign(np.full(5, np.nan))
    images = IMAGES[:7]
    predictor = Predictor(model, 3)
    predictor(images)
    assert (predictor.engine, predictor.trials) == ("keras", {})
    model.get_layer("head").bias.assign(np.zeros(5))
    predictor(images[:1])
    assert predictor.trials == {}
    predictor(images)
    assert predictor.trials


def test_auto_begins_anew_with_batches_of_another_size(model, timed):
    for first, later in ((1, 8), (8, 1)):
        predictor = Predictor(model, 8)
        predictor(IMAGES[:first])
        for _ in range(4):
            assert not predictor.trials
            predictor(IMAGES[:later])
        assert predictor.trials


def assigned(place, change):
    """A change of the values of a model's variable."""

    def changed(model):
        name, *parts = place.split(".")
        variable = functools.reduce(getattr, parts, model.get_layer(name))
        variable.assign(change(numpy(variable)))

    return changed


def lora(model):
    query = model.get_layer("encoder_block_0").attention.value
    query.enable_lora(2)
    query.lora_kernel_b.assign(normal(query.lora_kernel_b.shape))


def epsilon(model):
    model.get_layer("encoder_block_1").mlp_norm.epsilon = 0.5


SWAPPED = np.arange(100)
SWAPPED[[13, 29]] = 29, 13
CHANGES = {
    "one value": assigned(
        "encoder_block_1.mlp.expand.kernel",
        lambda old: old + np.eye(old.size)[291].reshape(old.shape),
    ),
    "two swapped": assigned("head.bias", lambda old: old[SWAPPED]),
    "lora": lora,
    "epsilon": epsilon,
}


@every_engine
def test_any_change_is_noticed_by_the_next_call(engine):
    model = made(classes=100)
    images = IMAGES[:2]
    predictor = Predictor(model, 2, engine=engine)
    before = predictor(images)
    close(before, numpy(model(images)))
    for name, change in CHANGES.items():
        change(model)
        expected = numpy(model(images))
        assert np.abs(expected - before).max() > 1e-4 * np.abs(expected).max(), name
        before = predictor(images)
        close(before, expected)


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@every_engine
def test_what_keras_quantizes_is_noticed_or_refused(engine):
    model = made(dataclasses.replace(CONFIG, num_layers=1))
    predictor = Predictor(model, 2, engine=engine)
    images = IMAGES[:2]
    predictor(images)
    model.quantize("int8")
    if engine == "keras":
        close(predictor(images), numpy(model(images)))
    else:
        words = "has integers: export|has quantized weights in the layer .*: leave"
        with pytest.raises(ValueError, match=words):
            predictor(images)


def test_nothing_is_made_anew_without_a_change(model, monkeypatch):
    # On a busy machine "auto" would convert the model here.
    monkeypatch.setattr(automatic, "conversion_seconds", lambda *_: float("inf"))
    made = []

    def converted(*_):
        made.append(1)
        return lambda images: images

    monkeypatch.setattr("keras_vit.runtimes.onnxruntime.converted", converted)
    of_any_size = at_image_size(model, (None, None))
    predictors = [Predictor(model, engine="onnxruntime"), Predictor(of_any_size)]
    answers = [predictor._answer for predictor in predictors]
    for size in ((16, 24), (32, 24), (16, 24)):
        predictors[1](normal((2, *size, 3)))
        predictors[0](IMAGES[:2])
    # Values that are written anew and are the same.
    model.set_weights(model.get_weights())
    predictors[0](IMAGES[:2])
    assert made == [1]
    assert answers == [predictor._answer for predictor in predictors]


def dense(size, inputs=1, **options):
    """A dense layer, and the values of a model of it that are kept."""
    layer = keras.layers.Dense(size, **options)
    tensor = keras.Input((inputs,))
    model = keras.Model(tensor, layer(tensor))
    return layer, lambda: Values(model)


def test_values_that_share_memory_with_an_array_are_compared():
    # At such places JAX takes an array of NumPy without a copy.
    memory = np.zeros(4096 + 64, "uint8")
    start = -memory.ctypes.data % 64
    values = memory[start : start + 4096].view("float32").reshape(32, 32)
    layer, keep = dense(32, 32, use_bias=False)
    layer.kernel.assign(values)
    kept = keep()
    assert kept.hold()
    before = numpy(layer.kernel).copy()
    values[3, 5] = 1.0
    assert kept.hold() == np.array_equal(before, numpy(layer.kernel))


@pytest.mark.parametrize("dtype, size", [("float32", 2**20 + 3), ("bfloat16", 5)])
def test_values_are_compared_to_the_last_bit_without_results_of_each(dtype, size):
    layer, keep = dense(size, dtype=dtype)
    kept = keep()
    layer.bias.assign(layer.bias + 0)
    assert kept.hold()
    tracemalloc.start()
    try:
        assert kept.hold()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    values = np.zeros(size)
    values[-1] = -0.0
    layer.bias.assign(values)
    assert not kept.hold()
    values[-1] = np.nan
    layer.bias.assign(values)
    kept = keep()
    layer.bias.assign(values)
    assert kept.hold()


def test_auto_converts_once_its_clock_says_that_it_pays(model, impatient, monkeypatch):
    monkeypatch.setattr(automatic, "conversion_seconds", lambda *_: 2.5)
    images = IMAGES[:2]
    # Every look at it is a second later, so a batch takes one.
    answer = automatic.Automatic(model, 2, "float32", clock=itertools.count().__next__)
    for _ in range(3):  # The first one is not counted.
        answer(images)
        assert not answer.trials
    answer(images)
    assert answer.trials


@pytest.mark.parametrize("expected, is_converted", [(160, False), (200, True)])
def test_auto_weighs_a_conversion_against_known_images(
    expected, is_converted, model, impatient, monkeypatch
):
    monkeypatch.setattr(automatic, "conversion_seconds", lambda *_: 4.0)
    clock = itertools.count().__next__
    said = []
    answer = automatic.Automatic(model, 2, "float32", said.append, clock)
    answer.left = expected
    # A batch of two takes a second, of which a tenth is saved: 9.9 s of 198 images, and
    # two conversions and their trial take 8.
    answer(IMAGES[:2])
    assert bool(answer.trials) == is_converted
    if is_converted:
        converting, chosen = said
        assert converting.startswith("converting the model for onnxruntime and openv")
        assert chosen.startswith(f"{answer.engine} computes now; ms per image: ")
        return
    # Nothing pays for more than were expected either.
    for _ in range(90):
        answer(IMAGES[:2])
        assert not answer.trials
    answer.left = 200
    answer(IMAGES[:2])
    assert answer.trials


def test_a_kept_choice_has_its_own_gain(model, impatient, monkeypatch):
    path = fastest.path_of(
        model, (2, *IMAGES.shape[1:]), "float32", ["keras", "onnxruntime", "openvino"]
    )
    for seconds, is_converted in ((0.99, False), (0.5, True)):
        fastest.write(path, "openvino", {"keras": 1.0, "openvino": seconds})
        monkeypatch.setattr(automatic, "conversion_seconds", lambda *_: 4.0)
        clock = itertools.count().__next__
        answer = automatic.Automatic(model, 2, "float32", clock=clock)
        answer.left = 60
        answer(IMAGES[:2])
        assert (answer.engine == "openvino") == is_converted


def test_a_kept_engine_that_fails_is_not_tried_again(model, impatient, monkeypatch):
    engines = ["keras", "onnxruntime", "openvino"]
    path = fastest.path_of(model, (2, *IMAGES.shape[1:]), "float32", engines)
    fastest.write(path, "onnxruntime", {"keras": 1.0, "onnxruntime": 0.1})
    monkeypatch.setattr(
        "keras_vit.runtimes.onnxruntime.converted", lambda *_: 1 / 0, raising=False
    )
    monkeypatch.setattr(automatic, "conversion_seconds", lambda *_: 4.0)
    said = []
    clock = itertools.count().__next__
    answer = automatic.Automatic(model, 2, "float32", said.append, clock)
    answer.left = 120
    for _ in range(3):
        answer(IMAGES[:2])
    # A tenth is likely of the other, not the nine tenths of the one that was kept.
    assert said == ["converting the model for onnxruntime: about 4 s"]
    answer.left = 1000
    answer(IMAGES[:2])
    assert said[1] == "converting the model for openvino: about 4 s"


def test_images_that_follow_are_expected_after_a_change_too(model):
    predictor = Predictor(model, 2)
    predictor.expect(10)
    predictor(IMAGES[:2])
    epsilon(model)
    predictor(IMAGES[:2])
    assert predictor._answer.left == 6
    predictor.expect(None)
    assert predictor._answer.left is None
    check_refusal(lambda: predictor.expect(0), "images must be a positive int, got 0")


@pytest.mark.skipif("litert" not in HERE, reason="LiteRT does not convert here")
def test_auto_of_int8_begins_with_openvino_and_goes_on_with_litert(
    model, timed, monkeypatch
):
    monkeypatch.setitem(SECONDS, "litert", 1.0)
    monkeypatch.setitem(SECONDS, "openvino_bfloat16", 1.5)
    predictor = Predictor(model, 3, precision="int8")
    named = {
        name: Predictor(model, 3, engine=name, precision="int8")(IMAGES)
        for name in ("openvino", "litert")
    }
    # One engine answers all that follow.
    for _ in range(3):
        np.testing.assert_array_equal(predictor(IMAGES[:3]), named["openvino"][:3])
        assert (predictor.engine, predictor.trials) == ("openvino", {})
    predictor = Predictor(model, 3, precision="int8")
    predictor.expect(100)
    np.testing.assert_array_equal(predictor(IMAGES[:3]), named["litert"][:3])
    assert predictor.engine == "litert"
    tried = {"openvino": 2.0, "openvino_bfloat16": 1.5, "litert": 1.0}
    assert predictor.trials == {
        name: seconds
        for name, seconds in tried.items()
        if name != "openvino_bfloat16" or computes_bfloat16()
    }
    np.testing.assert_array_equal(predictor(IMAGES), named["litert"])


def test_auto_leaves_other_policies_and_full_memory_to_keras(impatient, monkeypatch):
    def tried():
        predictor = Predictor(made(dtype=policy), 2)
        predictor(IMAGES[:6])
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


def test_auto_converts_nothing_in_short_uses(model):
    answer = automatic.Automatic(model, 2, "float32", clock=lambda: 0.0)
    answer(IMAGES[:6])
    assert (answer.engine, answer.trials) == ("keras", {})
    if keras.backend.backend() != "torch":
        assert Predictor(model, jit_compile=True).trials == {}
    [quickest, *_] = [name for name in ("openvino", "litert") if name in HERE]
    assert Predictor(model, precision="int8").engine == quickest


def test_all_tokens_and_other_inputs():
    model = VisionTransformer(CONFIG, image_size=16, include_top=False, pooling=None)
    images = np.ones((2, 16, 16, 3), "uint8")
    expected = numpy(model(images.astype("float32")))
    for given in (images, images.tolist(), keras.ops.convert_to_tensor(images)):
        close(Predictor(model)(given), expected)
    layer, _ = dense(2, 3)
    model = keras.Sequential([keras.Input((3,)), layer])
    vectors = normal((5, 3))
    close(Predictor(model, batch_size=2)(vectors), numpy(model(vectors)))


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="counts the traces of TensorFlow"
)
def test_traces_once():
    calls = []

    class Counting(keras.layers.Layer):
        def call(self, images):
            calls.append(images.shape)
            return images

    predictor = Predictor(keras.Sequential([keras.Input((3,)), Counting()]), 4)
    calls.clear()
    for images in (1, 4, 9, 1):
        predictor(normal((images, 3)))
    assert calls == [(None, 3)]

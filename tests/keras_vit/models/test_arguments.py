"""What the functions that make models accept they do."""

import dataclasses
import json
import re
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from harness import numpy, randomize, rms
from small_models import HYBRID, PLAIN, positions

import keras_vit
import zoo
from keras_vit import VisionTransformer, ViTConfig
from keras_vit.models.bit import BiTResNet
from zoo.network import BiTConfig

READ = "keras_vit.models.vision_transformer.read_located"


def vit(config=PLAIN, **options):
    return VisionTransformer(config, **{"image_size": 32, **options})


def bit(**options):
    return BiTResNet(BiTConfig((1, 1)), **{"image_size": 32, **options})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of five classes for each kind of model."""
    folder = tmp_path_factory.mktemp("files")
    paths = {}
    for make in (vit, bit):
        model = make(classes=5)
        randomize(model)
        path = folder / f"{make.__name__}.npz"
        paths[make] = keras_vit.save_released_weights(model, path)
    return paths


@pytest.mark.parametrize(
    ("make", "options"),
    [
        *((make, options) for make in (vit, bit) for options in ({}, {"classes": 5})),
        (vit, {"class_names": list("aeiou")}),
    ],
)
def test_a_new_head_of_as_many_classes_is_on_the_same_body(make, options, files):
    path = files[make]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make(weights=path, new_head=True, **options)
    kept = make(weights=path, **options)
    assert model.output_shape == kept.output_shape == (None, 5)
    assert not numpy(model.get_layer("head").kernel).any()
    assert numpy(kept.get_layer("head").kernel).any()
    for first, second in zip(model.weights[:-2], kept.weights[:-2], strict=True):
        np.testing.assert_array_equal(numpy(first), numpy(second))


@pytest.mark.parametrize(
    "options", [{"classes": 3}, {"class_names": ["a", "b"]}, {"new_head": True}]
)
def test_a_bias_is_that_of_a_new_head(options, files):
    for weights, bias in ((files[vit], -6.9), (None, -6.9), (None, 0.0)):
        model = vit(weights=weights, head_bias_init=bias, **options)
        head = model.get_layer("head")
        assert not numpy(head.kernel).any()
        assert (numpy(head.bias) == np.float32(bias)).all()


def test_numbers_of_numpy_are_numbers():
    sizes = {
        field.name: np.int64(value)
        for field in dataclasses.fields(PLAIN)
        if isinstance(value := getattr(PLAIN, field.name), int)
    }
    config = ViTConfig(**sizes)
    hybrid = dataclasses.replace(HYBRID, resnet_stages=np.array([1, 1]))
    assert (config, hybrid) == (PLAIN, HYBRID)
    assert hash(dataclasses.replace(PLAIN, patch_size=[8, 8])) == hash(PLAIN)
    model = vit(config, image_size=np.int64(16), classes=np.int64(3))
    assert model.output_shape == (None, 3)
    assert json.loads(model.to_json()) and json.dumps(dataclasses.asdict(hybrid))


KINDS = {
    "vit": vit,
    "hybrid": lambda **options: vit(HYBRID, **options),
    "relative": lambda **options: vit(
        **positions("relative"), representation_size=4, **options
    ),
    "bit": bit,
}
# JAX has no float64 unless asked to.
DOUBLE = [("vit", "float64")] if keras.backend.backend() != "jax" else []


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, "mixed_bfloat16") for kind in KINDS), ("vit", "bfloat16"), *DOUBLE],
)
def test_a_dtype_is_that_of_every_layer_but_the_head(kind, dtype, tmp_path):
    of_head, tolerance = "float32", 0.1
    if dtype == "float64":
        of_head, tolerance = dtype, 1e-4
    model = KINDS[kind](classes=7, dtype=dtype)
    assert keras.config.dtype_policy().name == "float32"
    plain = KINDS[kind](classes=7)
    assert {layer.dtype_policy.name for layer in plain.layers} == {"float32"}
    randomize(plain)
    model.set_weights([numpy(weight) for weight in plain.weights])
    images = np.random.default_rng(0).normal(size=(2, 32, 32, 3))
    expected = numpy(plain(images))
    found = model(images)
    assert keras.backend.standardize_dtype(found.dtype) == of_head
    found = np.array(found)
    assert 0 < rms(found - expected) < tolerance * rms(expected)

    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for one in (model, again):
        for layer in one.layers[1:]:
            policy = of_head if layer.name == "head" else dtype
            assert layer.dtype_policy.name == policy, layer.path
    np.testing.assert_array_equal(np.array(again(images)), found)


@pytest.fixture
def asked(monkeypatch):
    """Calls a function, and returns the weights that it asks for."""
    asked = []

    def read_located(weights, variant, num_heads):
        asked.append(weights)
        raise zoo.StoreError("told")

    monkeypatch.setattr(READ, read_located)

    def ask(function, **options):
        with pytest.raises(zoo.StoreError, match="told"):
            function(**options)
        return asked.pop()

    return ask


@pytest.mark.parametrize("variant", keras_vit.VARIANTS)
def test_a_variant_answers_where_a_classifier_was_released(variant, asked):
    head, _, patch = variant.rpartition("_")
    function = getattr(keras_vit, head.replace("+", "_").replace("-", "_") + patch)
    whole = zoo.find(variant, asked(function))
    text = " ".join(function.__doc__.split()).replace("images of", "of")
    assert whole.release in text
    assert f"of {whole.image_size}x{whole.image_size}" in text
    if variant in ("ViT-H_14", "R26+ViT-B_32"):
        assert not whole.usable_head
        assert "whose head is all zeros" in text
    else:
        assert whole.usable_head and whole.classes == 1000
    for options in ({"classes": 10}, {"include_top": False}, {"new_head": True}):
        assert asked(function, **options) == zoo.default_release(variant)
    assert asked(function, weights="sam") == "sam"


BODY = "imagenet21k"
CLASSIFIER = "augreg-imagenet21k+imagenet2012"


HEADS = ({"classes": 10}, {"classes": 1000}, {"new_head": True})
NEEDS_A_NEW_HEAD = (
    {"pooling": "gap"},
    {"representation_size": 768},
    {"head_bias_init": -1.0},
)
# A variant, its default weights, and the arguments with which they are these.
DEFAULTS = [
    # The count of the classifier keeps its head.
    (keras_vit.ViT_B16, CLASSIFIER, [{}, HEADS[1], {"classes": np.int64(1000)}]),
    (keras_vit.ViT_L32, "imagenet21k+imagenet2012", [{}]),
    (keras_vit.ViT_H14, BODY, [*HEADS, {"representation_size": 1280}]),
    (keras_vit.ViT_B16, BODY, [
        {"classes": 1000, "new_head": True},
        {"class_names": ["a", "b"]},
        *({**option, **head} for option in NEEDS_A_NEW_HEAD for head in HEADS),
        *({**option, "include_top": False} for option in NEEDS_A_NEW_HEAD[:2]),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "weights", "given"), DEFAULTS)
def test_defaults_go_with_the_other_arguments(function, weights, given, asked):
    for options in given:
        assert asked(function, **options) == weights, options


def test_what_the_defaults_become(files, monkeypatch):
    """With a small file in the place of the pre-trained one."""
    small = zoo.read(files[vit])
    monkeypatch.setitem(keras_vit.VARIANTS, "ViT-B_16", PLAIN)
    monkeypatch.setattr(READ, lambda *_: small)
    for options in ({"pooling": "gap"}, {"head_bias_init": -1.0}):
        model = keras_vit.ViT_B16(classes=small.classes, **options)
        kernel, bias = model.get_layer("head").get_weights()
        assert not kernel.any() and (bias == options.get("head_bias_init", 0)).all()


def test_the_version_has_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+", keras_vit.__version__)
    root = Path(keras_vit.__file__).parents[1]
    setup = (root / "setup.cfg").read_text()
    assert "\nversion = attr: keras_vit.version.__version__\n" in setup
    # A module of its own, which setuptools reads without importing the package.
    text = (root / "keras_vit" / "version.py").read_text()
    assert f'\n__version__ = "{keras_vit.__version__}"\n' in "\n" + text


@pytest.mark.parametrize(
    ("classes", "variant", "advised"),
    [
        (21843, "ViT-B_16", True),
        (21843, "ViT-H_14", False),
        (21843, None, False),
        (5, "ViT-B_16", False),
    ],
)
def test_zero_heads_advise_what_was_released(
    classes, variant, advised, tmp_path, monkeypatch
):
    model = vit(classes=classes)
    path = keras_vit.save_released_weights(model, tmp_path / "zero.npz")
    monkeypatch.setattr("keras_vit.weights.loading._variant", lambda _: variant)
    for load in (
        lambda: keras_vit.load_model(path),
        lambda: keras_vit.load_released_weights(model, path),
    ):
        with pytest.warns(UserWarning, match="all zeros") as record:
            load()
        assert ("augreg-imagenet21k" in str(record[0].message)) == advised
        # It points at the caller.
        assert record[0].filename == __file__

"""What the functions that make models accept they do, what they cannot they say."""

import contextlib
import dataclasses
import json
import math
import re
import subprocess
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from harness import normal, numpy, randomize, rms
from small_models import HYBRID, PLAIN, made

import keras_vit
import zoo
from keras_vit import VisionTransformer, ViTConfig
from keras_vit.models.bit import BiTResNet
from zoo.network import BiTConfig

BIT = BiTConfig((1, 1))


def vit(**options):
    return VisionTransformer(PLAIN, **{"image_size": 32, **options})


def bit(**options):
    return BiTResNet(BIT, **{"image_size": 32, **options})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of five classes for each kind of model."""
    folder = tmp_path_factory.mktemp("files")
    small = vit(classes=5)
    resnet = bit(classes=5)
    for model in (small, resnet):
        randomize(model)
    return {
        vit: keras_vit.save_released_weights(small, folder / "vit.npz"),
        bit: keras_vit.save_released_weights(resnet, folder / "bit.npz"),
    }


def of_file(path, **options):
    return keras_vit.load_model(path, **options)


class TestClasses:
    """How many, and whether the head is new."""

    @pytest.mark.parametrize("make", [vit, bit])
    @pytest.mark.parametrize("classes", [0, -1, 2.5, "ten", True])
    def test_no_classes(self, make, classes, files):
        message = (
            f"classes must be a positive int, got {classes!r}; .*include_top=False"
        )
        for options in ({}, {"weights": files[make]}):
            with pytest.raises(ValueError, match=message):
                make(classes=classes, **options)
        with pytest.raises(ValueError, match=message):
            of_file(files[vit], classes=classes)
        with pytest.raises(ValueError, match=message):
            keras_vit.ViT_Ti16(None, classes=classes)

    def test_counts_of_numpy(self):
        model = vit(classes=np.int64(3), representation_size=np.int32(4))
        assert model.output_shape == (None, 3)
        assert json.loads(model.to_json())

    @pytest.mark.parametrize("name", ["representation_size", "channels"])
    def test_other_sizes(self, name):
        with pytest.raises(ValueError, match=f"{name} must be a positive int, got 0"):
            vit(**{name: 0})

    @pytest.mark.parametrize("name", ["dropout_rate", "stochastic_depth_rate"])
    @pytest.mark.parametrize(
        "rate", [1.0, -0.1, True, None, "0.1", [0.1], 1e400, float("nan"), 10**400]
    )
    def test_rates_that_are_none(self, name, rate):
        message = rf"^{name} must be in \[0, 1\), got .{{,110}}$"
        with pytest.raises(ValueError, match=message):
            vit(**{name: rate})

    @pytest.mark.parametrize("make", [vit, bit])
    @pytest.mark.parametrize("argument", [{"classes": 5}, {"new_head": True}])
    def test_arguments_of_a_head_that_is_left_out(self, make, argument, files):
        (name,) = argument
        for options in ({}, {"weights": files[make]}):
            with pytest.raises(ValueError, match=f"{name}=.* needs the head: pass inc"):
                make(include_top=False, **argument, **options)

    @pytest.mark.parametrize("make", [vit, bit])
    @pytest.mark.parametrize("classes", [None, 5])
    def test_a_new_head_of_as_many_classes(self, make, classes, files):
        path = files[make]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = make(weights=path, classes=classes, new_head=True)
        kept = make(weights=path, classes=classes)
        assert model.output_shape == kept.output_shape == (None, 5)
        assert not numpy(model.get_layer("head").kernel).any()
        assert numpy(kept.get_layer("head").kernel).any()
        features = [
            numpy(keras.Model(one.input, one.get_layer("pooling").output)(images))
            for one in (model, kept)
            for images in [normal((1, 32, 32, 3))]
        ]
        assert features[0].std() > 0.01
        # The same body.
        for first, second in zip(model.weights[:-2], kept.weights[:-2], strict=True):
            np.testing.assert_array_equal(numpy(first), numpy(second))

    def test_a_new_head_goes_without_pre_logits(self, goldens):
        kept = of_file(goldens / "pre_logits.npz")
        new = of_file(goldens / "pre_logits.npz", new_head=True)
        assert kept.output_shape == new.output_shape == (None, 21)
        assert "pre_logits" not in [layer.name for layer in new.layers]
        assert "pre_logits" in [layer.name for layer in kept.layers]

    def test_a_bias_for_a_head_that_is_kept(self, files):
        with pytest.raises(
            ValueError, match="is for a new head, and that of .* is kept"
        ):
            vit(weights=files[vit], head_bias_init=-6.9)
        model = vit(weights=files[vit], head_bias_init=-6.9, new_head=True)
        assert (numpy(model.get_layer("head").bias) == np.float32(-6.9)).all()

    @pytest.mark.parametrize(
        "value", [math.nan, math.inf, -math.inf, 1e300, 10**400, "-6.9", True]
    )
    def test_a_bias_that_float32_cannot_hold(self, files, value):
        message = "head_bias_init must be a number of at most 3.4e.38, got"
        for options in ({}, {"weights": files[vit], "new_head": True}):
            with pytest.raises(ValueError, match=message):
                vit(head_bias_init=value, **options)

    def test_a_checkpoint_of_no_classes(self, goldens):
        arrays = dict(np.load(goldens / "token.npz"))
        arrays["head/kernel"] = arrays["head/kernel"][:, :0]
        arrays["head/bias"] = arrays["head/bias"][:0]
        with pytest.raises(zoo.CheckpointError, match="classes is 0"):
            zoo.Checkpoint("own", arrays)


@pytest.mark.parametrize("weights", [None, "token.npz"])
def test_position_embedding_methods(weights, goldens):
    """An unknown one is refused although nothing is resized."""
    for make in (
        lambda **options: VisionTransformer("ViT-Ti_16", **options),
        keras_vit.ViT_Ti16,
    ):
        with pytest.raises(
            ValueError, match="unknown method 'cubic', choose from .*bic"
        ):
            make(
                weights=weights and goldens / weights,
                image_size=32,
                position_embedding_method="cubic",
            )


class TestHabits:
    """Arguments of Keras's own models are answered with ours."""

    @pytest.mark.parametrize(
        ("make", "name"),
        [
            (lambda **o: VisionTransformer("ViT-Ti_16", **o), "VisionTransformer"),
            (lambda **o: keras_vit.ViT_B16(None, **o), "ViT_B16"),
            (lambda **o: BiTResNet("BiT-R50x1", **o), "BiTResNet"),
        ],
    )
    @pytest.mark.parametrize(
        ("argument", "remedy"),
        [
            ({"input_shape": (32, 32, 3)}, "pass image_size=(height, width), and chan"),
            ({"input_tensor": 1}, "build the model without it and call it on the tens"),
            ({"num_classes": 5}, "pass classes=."),
        ],
    )
    def test_arguments(self, make, name, argument, remedy):
        (given,) = argument
        message = re.escape(f"{name}() takes no {given}: {remedy}")
        with pytest.raises(TypeError, match=f"^{message}"):
            make(**argument)

    def test_options_of_load_model(self, files):
        with pytest.raises(TypeError, match="takes no input_shape: pass image_size="):
            of_file(files[vit], input_shape=(32, 32, 3))

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (
                lambda: keras_vit.ViT_Ti16(None, colour=3),
                "ViT_Ti16() takes no colour: its arguments are weights, include_top, ",
            ),
            (
                lambda: vit(clases=3),
                "VisionTransformer() takes no clases: did you mean ",
            ),
            (
                lambda: keras_vit.at_image_size(None, 64, method="bicubic"),
                "at_image_size() takes no method: its arguments are model, image_size,",
            ),
        ],
    )
    def test_unknown_arguments(self, make, message):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
            make()

    @pytest.mark.parametrize(
        ("pooling", "remedy"),
        [
            ("avg", ': the mean over the patches is pooling="gap" here.'),
            ("max", ": take the maximum over the tokens that include_top=False, "),
            ("cls", ", got 'cls'."),
        ],
    )
    def test_poolings(self, pooling, remedy):
        with pytest.raises(ValueError, match=re.escape(remedy)):
            vit(pooling=pooling)
        if pooling == "avg":
            with pytest.raises(TypeError, match="always averaged .* leave it out"):
                bit(pooling=pooling)


class TestConfig:
    """Numbers of NumPy are numbers."""

    def test_sizes_of_numpy(self):
        sizes = {
            field.name: np.int64(value)
            for field in dataclasses.fields(PLAIN)
            if isinstance(value := getattr(PLAIN, field.name), int)
        }
        config = ViTConfig(**sizes)
        assert config == PLAIN
        assert json.dumps(dataclasses.asdict(config))
        stages = np.array([1, 1])
        hybrid = dataclasses.replace(HYBRID, resnet_stages=stages)
        assert hybrid == HYBRID and json.dumps(dataclasses.asdict(hybrid))
        assert json.loads(VisionTransformer(config, image_size=np.int64(16)).to_json())

    @pytest.mark.parametrize(
        "wrong",
        [
            {"hidden_size": 48.0},
            {"num_layers": "2"},
            {"resnet_stages": (1, 0)},
            {"resnet_width": 0, "resnet_stages": (1,)},
        ],
    )
    def test_what_is_no_number(self, wrong):
        with pytest.raises(ValueError, match="must be a positive int, got"):
            dataclasses.replace(PLAIN, **wrong)


@contextlib.contextmanager
def untouched_policy():
    before = keras.config.dtype_policy().name
    yield
    assert keras.config.dtype_policy().name == before == "float32"


MAKERS = {
    "vit": vit,
    "hybrid": lambda **options: VisionTransformer(HYBRID, image_size=32, **options),
    "relative": lambda **options: VisionTransformer(
        dataclasses.replace(PLAIN, position_embedding="relative"),
        image_size=32,
        representation_size=4,
        **options,
    ),
    "bit": bit,
}


class TestDtype:
    """dtype= is that of every layer, and of no other model."""

    @pytest.mark.parametrize(
        ("kind", "dtype", "tolerance"),
        [
            *((kind, "mixed_bfloat16", 0.1) for kind in MAKERS),
            ("vit", "bfloat16", 0.1),
        ],
    )
    def test_every_layer(self, kind, dtype, tolerance, tmp_path):
        with untouched_policy():
            model = MAKERS[kind](classes=7, dtype=dtype)
        plain = MAKERS[kind](classes=7)
        assert {layer.dtype_policy.name for layer in plain.layers} == {"float32"}
        randomize(plain)
        model.set_weights([numpy(weight) for weight in plain.weights])
        for layer in model.layers[1:]:
            expected = "float32" if layer.name == "head" else dtype
            assert layer.dtype_policy.name == expected, layer.path
        images = normal((2, 32, 32, 3))
        expected = numpy(plain(images))
        found = model(images)
        assert keras.backend.standardize_dtype(found.dtype) == "float32"
        error = rms(numpy(found) - expected)
        assert 0 < error < tolerance * rms(expected)

        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        for layer in again.layers[1:]:
            policy = model.get_layer(layer.name).dtype_policy.name
            assert layer.dtype_policy.name == policy
        np.testing.assert_array_equal(numpy(again(images)), numpy(found))

    def test_with_weights(self, files):
        with untouched_policy():
            small = vit(weights=files[vit], dtype="mixed_bfloat16")
            loaded = of_file(files[vit], dtype=keras.DTypePolicy("mixed_bfloat16"))
            resnet = bit(weights=files[bit], dtype="bfloat16")
            tiny = keras_vit.ViT_Ti16(None, image_size=32, dtype="mixed_bfloat16")
        for model in (small, loaded, resnet, tiny):
            assert "bfloat16" in model.get_layer("pooling").dtype_policy.name
            assert model.get_layer("head").dtype == "float32"

    def test_without_a_head(self):
        model = vit(include_top=False, dtype="bfloat16")
        assert model.output.dtype == "bfloat16"

    @pytest.mark.skipif(
        keras.backend.backend() == "jax", reason="JAX has no float64 unless asked to"
    )
    def test_double_precision(self):
        model = vit(classes=3, dtype="float64")
        assert {layer.dtype_policy.name for layer in model.layers} == {"float64"}
        randomize(model)
        images = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3))
        found = numpy(model(images))
        assert found.dtype == "float64"
        single = vit(classes=3)
        single.set_weights([numpy(weight) for weight in model.weights])
        assert 0 < np.abs(found - numpy(single(images))).max() < 1e-4

    @pytest.mark.parametrize("dtype", ["int8", "float99", 16, "int8_from_float32"])
    def test_what_is_none(self, dtype):
        with untouched_policy(), pytest.raises(ValueError, match="dtype must be a pol"):
            vit(dtype=dtype)

    def test_an_error_leaves_the_policy(self):
        with untouched_policy(), pytest.raises(ValueError):
            vit(dtype="bfloat16", dropout_rate=2.0)


class TestDefaults:
    """ViT_X() answers where a classifier was released."""

    @pytest.fixture
    def asked(self, monkeypatch):
        asked = []

        def read_weights(weights, variant, num_heads):
            asked.append(weights)
            raise zoo.StoreError("told")

        monkeypatch.setattr(
            "keras_vit.models.vision_transformer.read_weights", read_weights
        )

        def ask(function, **options):
            with pytest.raises(zoo.StoreError, match="told"):
                function(**options)
            return asked.pop()

        return ask

    @pytest.mark.parametrize("variant", keras_vit.VARIANTS)
    def test_of_each_variant(self, variant, asked):
        head, _, patch = variant.rpartition("_")
        function = getattr(keras_vit, head.replace("+", "_").replace("-", "_") + patch)
        whole = zoo.find(variant, asked(function))
        assert whole.release in function.__doc__
        assert f"of {whole.image_size}x{whole.image_size}" in " ".join(
            function.__doc__.split()
        ).replace("images of", "of")
        if variant in ("ViT-H_14", "R26+ViT-B_32"):
            assert not whole.usable_head
            assert "whose head is all zeros" in " ".join(function.__doc__.split())
        else:
            assert whole.usable_head and whole.classes == 1000
        for options in ({"classes": 10}, {"include_top": False}, {"new_head": True}):
            assert asked(function, **options) == zoo.default_release(variant)
        assert asked(function, weights="sam") == "sam"

    def test_the_classifiers_own_count_keeps_its_head(self, asked):
        whole = zoo.default_classifier("ViT-B_16")
        for classes in (None, 1000, np.int64(1000)):
            assert asked(keras_vit.ViT_B16, classes=classes) == whole
        for classes in (1000, 10):
            assert asked(keras_vit.ViT_H14, classes=classes) == "imagenet21k"
        again = {"classes": 1000, "new_head": True}
        assert asked(keras_vit.ViT_B16, **again) == "imagenet21k"

    @pytest.mark.parametrize(
        "options",
        [{"pooling": "gap"}, {"representation_size": 768}, {"head_bias_init": -1.0}],
        ids=str,
    )
    def test_what_needs_a_new_head(self, options, asked):
        (name,) = options
        for classes in (10, 1000):
            assert asked(keras_vit.ViT_B16, classes=classes, **options) == "imagenet21k"
        assert asked(keras_vit.ViT_B16, new_head=True, **options) == "imagenet21k"
        # Nothing is asked for: `asked` would raise something else.
        with pytest.raises(ValueError, match=f"^{name}=.* pass classes=K"):
            keras_vit.ViT_B16(**options)
        if name != "head_bias_init":
            found = asked(keras_vit.ViT_B16, include_top=False, **options)
            assert found == "imagenet21k"

    def test_pre_logits_that_no_default_has(self, asked):
        for function, size in ((keras_vit.ViT_B16, 64), (keras_vit.ViT_S16, 384)):
            for options in ({}, {"classes": 10}, {"include_top": False}):
                with pytest.raises(ValueError, match=f"^representation_size={size} d"):
                    function(representation_size=size, **options)
        with pytest.raises(ValueError, match="class token: leave it out"):
            keras_vit.ViT_B16(classes=10, representation_size=768, pooling="gap")
        function = keras_vit.ViT_H14
        assert asked(function, representation_size=1280) == "imagenet21k"

    def test_what_the_defaults_become(self, files, monkeypatch):
        """With a small file in the place of the pre-trained one."""
        small = zoo.read(files[vit])
        monkeypatch.setitem(keras_vit.VARIANTS, "ViT-B_16", PLAIN)
        monkeypatch.setattr(
            "keras_vit.models.vision_transformer.read_weights", lambda *_: small
        )
        for options in ({"pooling": "gap"}, {"head_bias_init": -1.0}):
            for classes in (3, small.classes):
                model = keras_vit.ViT_B16(classes=classes, **options)
                kernel, bias = model.get_layer("head").get_weights()
                assert not kernel.any() and len(bias) == classes
                assert (bias == options.get("head_bias_init", 0)).all()

    def test_augreg_goes_first(self):
        found = {name: zoo.default_classifier(name) for name in keras_vit.VARIANTS}
        assert found["ViT-B_16"] == "augreg-imagenet21k+imagenet2012"
        assert found["ViT-L_32"] == found["R50+ViT-B_16"] == "imagenet21k+imagenet2012"
        assert found["ViT-H_14"] == found["R26+ViT-B_32"] == "imagenet21k"
        assert sum(name.startswith("augreg") for name in found.values()) == 10


def test_the_version_has_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+", keras_vit.__version__)
    root = Path(keras_vit.__file__).parents[1]
    setup = (root / "setup.cfg").read_text()
    assert "\nversion = attr: keras_vit.version.__version__\n" in setup
    # setuptools takes it without importing the package, nor what that needs.
    program = (
        "import sys\n"
        "from setuptools.config.expand import read_attr\n"
        f"print(read_attr('keras_vit.version.__version__', root_dir={str(root)!r}))\n"
        "print({'keras', 'numpy', 'keras_vit'} & set(sys.modules))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    assert told[:2] == [keras_vit.__version__, "set()"]


def test_warnings_point_at_the_caller(tmp_path, goldens):
    arrays = dict(np.load(goldens / "token.npz"))
    arrays["head/kernel"] *= 0
    arrays["head/bias"] *= 0
    path = tmp_path / "zero.npz"
    np.savez(path, **arrays)
    model = of_file(goldens / "token.npz")
    for load in (
        lambda: of_file(path),
        lambda: keras_vit.load_released_weights(model, path),
    ):
        with pytest.warns(UserWarning, match="all zeros") as record:
            load()
        assert record[0].filename == __file__


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
    path = keras_vit.save_released_weights(vit(classes=classes), tmp_path / "zero.npz")
    monkeypatch.setattr("keras_vit.weights.loading._variant", lambda _: variant)
    with pytest.warns(UserWarning, match="all zeros") as record:
        of_file(path)
    assert ("augreg-imagenet21k" in str(record[0].message)) == advised


def test_made_models_have_a_head_or_none():
    assert made(include_top=False).output_shape == (None, 24)

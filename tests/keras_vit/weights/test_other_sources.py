"""Models of timm, transformers and keras-hub compute the same numbers here.

Each test makes a random model there, writes it as its library does, and compares the
logits of the same photos-to-be, in [0, 1], each normalised as its side wants it.
"""

import dataclasses
import json

import keras
import numpy as np
import peer_models
import pytest
from harness import numpy
from peer_models import IMAGENET, TIMM_NAMES, difference, photos

import keras_vit
import zoo
from keras_vit import VARIANTS, VisionTransformer, ViTConfig

# The largest difference as a fraction of the largest logit; a whole ResNet of random
# weights makes more of each rounding.
TOLERANCE = 1e-5
RESNET_TOLERANCE = 1e-4
TINY = ViTConfig(hidden_size=48, num_layers=2, num_heads=3, mlp_dim=96, patch_size=8)
IMAGENET_MEAN, IMAGENET_STD = IMAGENET
TIMM_TINY = {
    "name": "vit_tiny_patch16_224",
    "patch_size": 8,
    "embed_dim": 48,
    "depth": 2,
    "num_heads": 3,
    "mlp_ratio": 2,
    "img_size": 32,
    "num_classes": 10,
}


@pytest.fixture
def keras_hub():
    return pytest.importorskip("keras_hub", reason="its numbers are compared")


def ours(model, images):
    return numpy(model(2 * images - 1))


def check(found, expected, tolerance=TOLERANCE):
    gap = difference(found, expected)
    print(f"largest difference {gap:.1e} of the largest output")
    assert gap < tolerance


def config_of(checkpoint):
    return ViTConfig(
        hidden_size=checkpoint.hidden_size,
        num_layers=checkpoint.num_layers,
        num_heads=checkpoint.num_heads,
        mlp_dim=checkpoint.mlp_dim,
        patch_size=checkpoint.patch_size,
    )


def randomise(model, seed=0):
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        shape = tuple(variable.shape)
        scale = 0.2 if len(shape) < 2 else 1.5 * np.prod(shape[:-1]) ** -0.5
        centre = 1.0 if variable.name == "gamma" else 0.0
        variable.assign(centre + scale * rng.standard_normal(shape))


class TestTimm:
    """Checkpoints of timm."""

    @pytest.mark.parametrize("file", ["state.npz", "state.safetensors"])
    def test_plain(self, file, timm, tmp_path):
        path, images = tmp_path / file, photos(32)
        expected = timm(peer_models.save_timm, path, images, **TIMM_TINY)
        built = VisionTransformer(TINY, path)
        assert built.get_layer("encoder_block_1").activation == "gelu"
        check(ours(built, images), expected)
        # The other form of GELU would show.
        checkpoint = zoo.read(path, num_heads=3, semantics=zoo.ViTConfig.released())
        other = VisionTransformer(TINY, checkpoint)
        assert difference(ours(other, images), expected) > TOLERANCE / 2

    def test_without_class_token(self, timm, tmp_path):
        path, images = tmp_path / "state.npz", photos(32)
        pooling = {"class_token": False, "global_pool": "avg", "fc_norm": False}
        expected = timm(peer_models.save_timm, path, images, **TIMM_TINY, **pooling)
        with pytest.raises(zoo.CheckpointError, match="without a class token"):
            zoo.read(path, num_heads=3)
        said = {"architecture": "vit_base_patch16_gap_224"}
        said["model_args"] = {"num_heads": 3}
        (tmp_path / "config.json").write_text(json.dumps(said))
        check(ours(VisionTransformer(TINY, path, pooling="gap"), images), expected)

    @pytest.mark.parametrize("stages", [(), (2, 1, 1)])
    @pytest.mark.parametrize("padding", ["same", "symmetric"])
    @pytest.mark.parametrize("side", [64, 80])
    def test_hybrids(self, stages, padding, side, timm, tmp_path):
        path, images = tmp_path / "state.npz", photos(side)
        patch_size = 1 if stages else 4
        expected = timm(
            peer_models.save_timm_hybrid,
            path,
            images,
            stages,
            padding,
            img_size=side,
            patch_size=patch_size,
            embed_dim=48,
            depth=2,
            num_heads=3,
            mlp_ratio=2,
            num_classes=10,
        )
        said = zoo.ViTConfig.released(
            activation="gelu", resnet_epsilons="timm", resnet_padding=padding
        )
        checkpoint = zoo.read(path, num_heads=3, semantics=said)
        if padding == "same":
            found = zoo.read(path, num_heads=3).semantics
            assert found.computed == said.computed
        config = dataclasses.replace(TINY, patch_size=patch_size, resnet_stages=stages)
        built = VisionTransformer(config, checkpoint)
        check(ours(built, images), expected)
        again = keras.Model.from_config(built.get_config())
        again.set_weights(built.get_weights())
        np.testing.assert_array_equal(ours(again, images), ours(built, images))

    def test_settings_beside_the_file(self, timm, tmp_path):
        images = photos(32)
        arguments = {key: value for key, value in TIMM_TINY.items() if key != "name"}
        arguments["act_layer"] = "gelu_tanh"
        name = TIMM_TINY["name"]
        expected = timm(
            peer_models.save_timm_folder, tmp_path, images, name, IMAGENET, arguments
        )
        checkpoint = zoo.read(tmp_path)
        assert checkpoint.semantics.activation == "gelu_tanh"
        assert checkpoint.semantics.input_std == IMAGENET_STD
        check(ours(VisionTransformer(TINY, tmp_path), images), expected)

    def test_settings_beside_a_hybrid(self, timm, tmp_path):
        images, name = photos(64), "vit_tiny_r_s16_p8_224"
        arguments = {"depth": 2, "img_size": 64, "num_classes": 10}
        half = (peer_models.HALF, peer_models.HALF)
        expected = timm(
            peer_models.save_timm_folder, tmp_path, images, name, half, arguments
        )
        config = dataclasses.replace(VARIANTS["R+ViT-Ti_16"], num_layers=2)
        built = VisionTransformer(config, tmp_path)
        assert built.get_layer("conv_root").epsilons == "timm"
        check(ours(built, images), expected)

    def test_plain_deit_with_imagenets_inputs(self, timm, tmp_path):
        path, images = tmp_path / "state.npz", photos(224)
        gray = images[..., :1]
        arguments = {
            "name": "deit_tiny_patch16_224",
            "inputs": IMAGENET,
            "depth": 2,
            "num_classes": 10,
        }
        said = zoo.ViTConfig.released(
            activation="gelu", input_mean=IMAGENET_MEAN, input_std=IMAGENET_STD
        )
        config = dataclasses.replace(VARIANTS["ViT-Ti_16"], num_layers=2)
        expected = timm(peer_models.save_timm, path, images, **arguments)
        checkpoint = zoo.read(path, semantics=said, num_heads=3)
        check(ours(VisionTransformer(config, checkpoint), images), expected)
        expected = timm(
            peer_models.save_timm, path, gray.repeat(3, axis=-1), **arguments
        )
        checkpoint = zoo.read(path, semantics=said, num_heads=3)
        built = VisionTransformer(config, checkpoint, channels=1)
        check(ours(built, gray), expected)

    @pytest.mark.parametrize(
        ("kwargs", "reason"),
        [
            ({"init_values": 0.1}, "layer_scale"),
            ({"reg_tokens": 2}, "num_registers"),
            ({"global_pool": "avg"}, "norm_after_pooling"),
            ({"pre_norm": True}, "norm_before_blocks"),
            ({"qk_norm": True}, "queries and keys"),
            ({"qkv_bias": False}, "qkv_bias"),
            ({"name": "deit_tiny_distilled_patch16_224"}, "distillation_token"),
        ],
    )
    def test_other_networks_are_refused(self, kwargs, reason, timm, tmp_path):
        path = tmp_path / "state.npz"
        timm(peer_models.save_timm, path, photos(32), **{**TIMM_TINY, **kwargs})
        with pytest.raises(zoo.CheckpointError, match=reason):
            VisionTransformer(TINY, path)

    @pytest.mark.parametrize("name", ["token", "gap", "non_square"])
    @pytest.mark.parametrize("activation", ["gelu_tanh", "gelu"])
    def test_written(self, name, activation, timm, goldens, golden_index, tmp_path):
        checkpoint, entry = zoo.read(goldens / f"{name}.npz"), golden_index[name]
        grid = tuple(side // entry["patch_size"] for side in entry["image_size"])
        path, images = tmp_path / "model.safetensors", photos(entry["image_size"])
        said = zoo.ViTConfig.released(activation=activation)
        zoo.write(path, checkpoint.arrays, grid, naming="timm", semantics=said)
        expected, _ = timm(
            peer_models.load_timm, images, f"local-dir:{tmp_path}", pretrained=True
        )
        pooling = entry["classifier"]
        built = VisionTransformer(config_of(checkpoint), path, pooling=pooling)
        assert built.get_layer("encoder_block_0").activation == activation
        check(ours(built, images), expected)

    def test_a_written_hybrid(self, timm, tmp_path):
        config = dataclasses.replace(
            VARIANTS["R+ViT-Ti_16"],
            num_layers=2,
            resnet_epsilons="timm",
            activation="gelu",
        )
        model = VisionTransformer(config, image_size=64, classes=10)
        randomise(model)
        path, images = tmp_path / "model.safetensors", photos(64)
        keras_vit.save_released_weights(model, path, naming="timm")
        expected, _ = timm(
            peer_models.load_timm, images, f"local-dir:{tmp_path}", pretrained=True
        )
        check(ours(model, images), expected)

    @pytest.mark.slow
    @pytest.mark.parametrize("variant", TIMM_NAMES)
    def test_every_variant(self, variant, timm, tmp_path):
        path, images = tmp_path / "state.safetensors", photos(224)
        name = TIMM_NAMES[variant]
        sizes = {"depth": 2, "num_classes": 1000}
        expected = timm(peer_models.save_timm, path, images, name, **sizes)
        config = dataclasses.replace(VARIANTS[variant], num_layers=2)
        tolerance = RESNET_TOLERANCE if config.is_hybrid else TOLERANCE
        check(ours(VisionTransformer(config, path), images), expected, tolerance)


TRANSFORMERS_TINY = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 96,
    "patch_size": 8,
    "image_size": 32,
    "num_labels": 10,
}


class TestTransformers:
    """Checkpoints of Hugging Face transformers."""

    @pytest.fixture
    def save(self, transformers):
        def save(path, images, **kwargs):
            kwargs = {**TRANSFORMERS_TINY, **kwargs}
            return transformers(peer_models.save_transformers, path, images, **kwargs)

        return save

    @pytest.mark.parametrize(
        ("hidden_act", "activation"),
        [
            ("gelu", "gelu"),
            ("gelu_new", "gelu_tanh"),
            ("gelu_pytorch_tanh", "gelu_tanh"),
        ],
    )
    def test_a_saved_model(self, hidden_act, activation, save, tmp_path):
        images = photos(32)
        expected = save(tmp_path, images, hidden_act=hidden_act, layer_norm_eps=1e-3)
        checkpoint = zoo.read(tmp_path)
        assert (
            checkpoint.semantics.computed
            == zoo.ViTConfig.released(
                activation=activation, layer_norm_epsilon=1e-3
            ).computed
        )
        assert checkpoint.num_heads == 3
        check(ours(VisionTransformer(TINY, tmp_path), images), expected)

    @pytest.mark.parametrize("file", ["state.npz", "state.safetensors"])
    def test_arrays_alone(self, file, save, tmp_path):
        path, images = tmp_path / file, photos(32)
        expected = save(path, images)
        found = zoo.read(path, num_heads=3).semantics
        assert (
            found.computed
            == zoo.ViTConfig.released(
                activation="gelu", layer_norm_epsilon=1e-12
            ).computed
        )
        check(ours(VisionTransformer(TINY, path), images), expected)

    def test_an_image_processor_with_imagenets_inputs(self, save, tmp_path):
        images = photos(32)
        expected = save(tmp_path, images, inputs=IMAGENET)
        check(ours(VisionTransformer(TINY, tmp_path), images), expected)

    def test_a_grid_that_is_not_square(self, save, tmp_path):
        images = photos((32, 56))
        expected = save(tmp_path, images, image_size=[32, 56])
        built = VisionTransformer(TINY, tmp_path)
        assert built.input_shape == (None, 32, 56, 3)
        check(ours(built, images), expected)

    def test_the_pooler(self, save, tmp_path):
        images = photos(32)
        expected = save(tmp_path, images, kind="ViTModel")
        assert zoo.read(tmp_path).representation_size == 48
        built = VisionTransformer(
            TINY, tmp_path, include_top=False, representation_size=48
        )
        check(ours(built, images), expected)
        built = VisionTransformer(TINY, tmp_path, classes=5)
        assert built.output_shape == (None, 5)

    @pytest.mark.parametrize("name", ["token", "non_square"])
    def test_written(self, name, transformers, goldens, golden_index, tmp_path):
        checkpoint, entry = zoo.read(goldens / f"{name}.npz"), golden_index[name]
        grid = tuple(side // entry["patch_size"] for side in entry["image_size"])
        path, images = tmp_path / "model.safetensors", photos(entry["image_size"])
        zoo.write(path, checkpoint.arrays, grid, naming="transformers")
        expected = transformers(peer_models.load_transformers, tmp_path, images)
        built = VisionTransformer(config_of(checkpoint), path)
        check(ours(built, images), expected)

    @pytest.mark.slow
    @pytest.mark.parametrize("variant", peer_models.PLAIN)
    def test_every_variant(self, variant, save, tmp_path):
        config = dataclasses.replace(VARIANTS[variant], num_layers=2)
        images = photos(224)
        expected = save(
            tmp_path,
            images,
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_heads,
            intermediate_size=config.mlp_dim,
            patch_size=config.patch_size,
            image_size=224,
            num_labels=1000,
        )
        check(ours(VisionTransformer(config, tmp_path), images), expected)


class TestKerasHub:
    """Presets and weights of keras-hub."""

    @pytest.fixture
    def classifier(self, keras_hub):
        def make(preprocessor=None, **kwargs):
            backbone = keras_hub.models.ViTBackbone(
                image_shape=(32, 32, 3),
                patch_size=8,
                num_layers=2,
                num_heads=3,
                hidden_dim=48,
                mlp_dim=96,
            )
            model = keras_hub.models.ViTImageClassifier(
                backbone=backbone, num_classes=10, preprocessor=preprocessor, **kwargs
            )
            randomise(model)
            return model

        return make

    def test_a_preset(self, classifier, tmp_path):
        model, images = classifier(), photos(32)
        model.save_to_preset(tmp_path / "preset")
        built = VisionTransformer(TINY, tmp_path / "preset")
        check(ours(built, images), numpy(model(2 * images - 1)))

    def test_a_presets_image_converter(self, classifier, keras_hub, tmp_path):
        scale = [1 / (255 * std) for std in IMAGENET_STD]
        pairs = zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)
        offset = [-mean / std for mean, std in pairs]
        converter = keras_hub.layers.ViTImageConverter(
            image_size=(32, 32), scale=scale, offset=offset
        )
        preprocessor = keras_hub.models.ViTImageClassifierPreprocessor(converter)
        model, images = classifier(preprocessor=preprocessor), photos(32)
        model.save_to_preset(tmp_path / "preset")
        said = zoo.read(tmp_path / "preset").semantics
        np.testing.assert_allclose(said.input_mean, IMAGENET_MEAN, atol=1e-6)
        np.testing.assert_allclose(said.input_std, IMAGENET_STD, atol=1e-6)
        inputs = (images - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_STD)
        built = VisionTransformer(TINY, tmp_path / "preset")
        check(ours(built, images), numpy(model(inputs)))

    @pytest.mark.parametrize("interpolation", [None, "bilinear", "bicubic", "lanczos3"])
    def test_photos_are_fitted_as_a_presets_converter_does(
        self, classifier, keras_hub, tmp_path, interpolation
    ):
        how = {"interpolation": interpolation, "antialias": True}
        converter = keras_hub.layers.ViTImageConverter(
            image_size=(32, 32),
            scale=1 / 127.5,
            offset=-1.0,
            crop_to_aspect_ratio=False,
            **(how if interpolation else {}),
        )
        preprocessor = keras_hub.models.ViTImageClassifierPreprocessor(converter)
        classifier(preprocessor=preprocessor).save_to_preset(tmp_path / "preset")
        said = zoo.read(tmp_path / "preset").head.preparation
        photo = np.cumsum(np.arange(90 * 60 * 3) % 7, dtype="uint8").reshape(90, 60, 3)
        found = zoo.photos.prepare(photo, (32, 32), said)
        apart = np.abs(found - numpy(converter(photo[None]))[0]) * 127.5
        assert apart.max() <= 15
        assert apart.mean() <= 0.5

    def test_weights_with_a_head_of_two_layers(self, classifier, tmp_path):
        model, images = classifier(intermediate_dim=32), photos(32)
        path = tmp_path / "model.weights.h5"
        model.save_weights(path)
        built = VisionTransformer(TINY, path)
        assert built.get_layer("pre_logits").units == 32
        check(ours(built, images), numpy(model(2 * images - 1)))

    def test_a_backbone(self, classifier, tmp_path):
        model, images = classifier().backbone, photos(32)
        path = tmp_path / "backbone.weights.h5"
        model.save_weights(path)
        built = VisionTransformer(TINY, path, include_top=False, pooling=None)
        check(ours(built, images), numpy(model(2 * images - 1)))


class TestSemantics:
    """What happens where the file and the model compute different numbers."""

    @pytest.fixture
    def path(self, goldens, tmp_path):
        path = tmp_path / "exact.safetensors"
        said = zoo.ViTConfig.released(activation="gelu", layer_norm_epsilon=1e-5)
        zoo.write(path, zoo.read(goldens / "token.npz").arrays, semantics=said)
        return path

    @pytest.fixture
    def config(self, path):
        return config_of(zoo.read(path))

    def test_the_model_has_those_of_the_file(self, path, config):
        model = VisionTransformer(config, path)
        for index in range(config.num_layers):
            block = model.get_layer(f"encoder_block_{index}")
            assert (block.mlp.activation, block.mlp_norm.epsilon) == ("gelu", 1e-5)
        assert model.get_layer("encoder_norm").epsilon == 1e-5

    def test_they_are_saved(self, path, config, tmp_path):
        model = VisionTransformer(config, path)
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
        images = photos(32)
        np.testing.assert_array_equal(ours(loaded, images), ours(model, images))
        with pytest.raises(zoo.CheckpointError, match="an .npz cannot say activation"):
            keras_vit.save_released_weights(model, tmp_path / "own.npz")
        keras_vit.save_released_weights(model, tmp_path / "own.safetensors")
        again = VisionTransformer(config, tmp_path / "own.safetensors")
        np.testing.assert_array_equal(ours(again, images), ours(model, images))

    def test_a_config_that_asks_for_others(self, path, config):
        same = dataclasses.replace(config, activation="gelu")
        VisionTransformer(same, path)
        other = dataclasses.replace(config, activation="gelu_tanh")
        with pytest.raises(
            ValueError, match=r"activation 'gelu' .the ViTConfig has 'gelu_tanh'"
        ):
            VisionTransformer(other, path)

    def test_a_model_of_others(self, path, config):
        model = VisionTransformer(config, image_size=32, classes=10)
        with pytest.raises(ValueError, match=r"activation 'gelu' .the model has"):
            keras_vit.load_released_weights(model, path)
        other = dataclasses.replace(config, activation="gelu", layer_norm_epsilon=1e-5)
        model = VisionTransformer(other, image_size=32, classes=10)
        keras_vit.load_released_weights(model, path)
        expected = VisionTransformer(config, path)
        images = photos(32)
        np.testing.assert_array_equal(ours(model, images), ours(expected, images))

    def test_inputs_of_a_hybrid_cannot_change(self, goldens, golden_index):
        path = goldens / "hybrid_stem.npz"
        said = zoo.ViTConfig.released(input_mean=IMAGENET_MEAN, input_std=IMAGENET_STD)
        checkpoint = zoo.read(path, semantics=said)
        config = dataclasses.replace(
            config_of(checkpoint), resnet_stages=(), resnet_width=32
        )
        with pytest.raises(ValueError, match="0.485.*standardises its kernels"):
            VisionTransformer(config, checkpoint)

    @pytest.mark.parametrize(
        "name",
        ["activation", "layer_norm_epsilon", "resnet_padding", "resnet_epsilons"],
    )
    def test_values_that_are_unknown(self, name):
        with pytest.raises(ValueError, match=name):
            dataclasses.replace(TINY, **{name: "other"})


@pytest.fixture
def released(shared):
    return shared / "weights" / "ViT-Ti_16-augreg-imagenet21k+imagenet2012-224.npz"


def test_released_tiny_in_timm(released, timm, tmp_path):
    """timm's own loader and our written file make one timm model, and ours is it."""
    path, images = tmp_path / "model.safetensors", photos(224)
    name, tanh = "vit_tiny_patch16_224", {"act_layer": "gelu_tanh"}
    zoo.write(path, zoo.read(released), naming="timm")
    expected, own = timm(
        peer_models.load_timm_released, images, name, str(released), **tanh
    )
    logits, written = timm(
        peer_models.load_timm, images, name, checkpoint_path=str(path), **tanh
    )
    np.testing.assert_array_equal(logits, expected)
    assert own.keys() == written.keys()
    for key, array in own.items():
        np.testing.assert_array_equal(array, written[key], err_msg=key)
    check(ours(keras_vit.ViT_Ti16(released), images), expected)
    # As timm runs it by default, with the exact GELU.
    expected, state = timm(
        peer_models.load_timm, images, name, checkpoint_path=str(path)
    )
    # In a folder without the settings, which say the tanh form.
    alone = tmp_path / "alone"
    alone.mkdir()
    np.savez(alone / "state.npz", **state)
    check(ours(keras_vit.ViT_Ti16(alone / "state.npz"), images), expected)


def test_released_tiny_in_transformers(released, transformers, tmp_path):
    images = photos(224)
    zoo.write(tmp_path / "model.safetensors", zoo.read(released), naming="transformers")
    expected = transformers(peer_models.load_transformers, tmp_path, images)
    check(ours(keras_vit.ViT_Ti16(released), images), expected)
    check(ours(keras_vit.ViT_Ti16(tmp_path), images), expected)

"""Files of other libraries, made as these are compared: `make peers` installs them.

The goldens of `families` hold what needs no library.
"""

import dataclasses

import keras
import numpy as np
import peer_models
import pytest
from families import assert_close
from harness import numpy, randomize
from peer_models import IMAGENET, photos

import keras_vit
import zoo
from keras_vit import VARIANTS, VisionTransformer, ViTConfig

TOLERANCE = 1e-5
TINY = ViTConfig(hidden_size=48, num_layers=2, num_heads=3, mlp_dim=96, patch_size=8)
IMAGENET_MEAN, IMAGENET_STD = IMAGENET


def ours(model, images):
    return numpy(model(2 * images - 1))


def config_of(checkpoint):
    sizes = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "patch_size")
    return ViTConfig(**{size: getattr(checkpoint, size) for size in sizes})


# timm and transformers


@pytest.mark.parametrize(
    ("stages", "padding", "side"),
    [((), "same", 64), ((), "symmetric", 80), ((2, 1, 1), "same", 80)]
    + [((2, 1, 1), "symmetric", 64)],
)
def test_hybrids_of_timm(stages, padding, side, timm, tmp_path):
    path, images = tmp_path / "state.npz", photos(side)
    patch_size = 1 if stages else 4
    sizes = {"embed_dim": 48, "depth": 2, "num_heads": 3, "mlp_ratio": 2}
    sizes |= {"img_size": side, "patch_size": patch_size, "num_classes": 10}
    expected = timm(
        peer_models.save_timm_hybrid, path, images, stages, padding, **sizes
    )
    said = ViTConfig.released(
        activation="gelu", resnet_epsilons="timm", resnet_padding=padding
    )
    checkpoint = zoo.read(path, num_heads=3, semantics=said)
    if padding == "same":
        assert zoo.read(path, num_heads=3).semantics.computed == said.computed
    config = dataclasses.replace(TINY, patch_size=patch_size, resnet_stages=stages)
    built = VisionTransformer(config, checkpoint)
    assert_close(ours(built, images), expected, TOLERANCE)


@pytest.mark.parametrize(
    ("name", "naming", "activation"),
    [
        ("token", "timm", "gelu_tanh"),
        ("gap", "timm", "gelu"),
        ("non_square", "timm", "gelu_tanh"),
        ("token", "transformers", "gelu_tanh"),
        ("non_square", "transformers", "gelu_tanh"),
    ],
)
def test_released_arrays_are_written_for_it(
    name, naming, activation, timm, transformers, goldens, golden_index, tmp_path
):
    checkpoint, entry = zoo.read(goldens / f"{name}.npz"), golden_index[name]
    grid = tuple(side // entry["patch_size"] for side in entry["image_size"])
    path, images = tmp_path / "model.safetensors", photos(entry["image_size"])
    said = ViTConfig.released(activation=activation)
    zoo.write(path, checkpoint.arrays, grid, naming=naming, semantics=said)
    if naming == "timm":
        expected = timm(peer_models.load_timm_folder, tmp_path, images)
    else:
        found = transformers(peer_models.load_transformers, tmp_path, images)
        expected = found["logits"]
    built = VisionTransformer(config_of(checkpoint), path, pooling=entry["classifier"])
    assert built.get_layer("encoder_block_0").activation == activation
    assert_close(ours(built, images), expected, TOLERANCE)


def test_a_hybrid_is_written_for_timm(timm, tmp_path):
    config = dataclasses.replace(
        VARIANTS["R+ViT-Ti_16"],
        num_layers=2,
        resnet_epsilons="timm",
        activation="gelu",
    )
    model, images = VisionTransformer(config, image_size=64, classes=10), photos(64)
    randomize(model)
    path = tmp_path / "model.safetensors"
    keras_vit.save_released_weights(model, path, naming="timm")
    expected = timm(peer_models.load_timm_folder, tmp_path, images)
    assert_close(ours(model, images), expected, TOLERANCE)


def test_released_tiny_in_timm(shared, timm, tmp_path):
    """timm's own loader and our written file make one timm model, and ours is it."""
    file = "ViT-Ti_16-augreg-imagenet21k+imagenet2012-224.npz"
    released, path = shared / "weights" / file, tmp_path / "model.safetensors"
    images, name, tanh = photos(224), "vit_tiny_patch16_224", {"act_layer": "gelu_tanh"}
    zoo.write(path, zoo.read(released), naming="timm")
    expected, own = timm(peer_models.load_timm, images, name, released, **tanh)
    _, written = timm(peer_models.load_timm, images, name, path, **tanh)
    np.testing.assert_equal(written, own)
    assert_close(ours(keras_vit.ViT_Ti16(released), images), expected, TOLERANCE)


# keras-hub


@pytest.fixture
def keras_hub():
    return pytest.importorskip("keras_hub", reason="its numbers are compared")


@pytest.fixture
def classifier(keras_hub):
    def make(converter=None, **kwargs):
        backbone = keras_hub.models.ViTBackbone(
            image_shape=(32, 32, 3),
            patch_size=8,
            num_layers=2,
            num_heads=3,
            hidden_dim=48,
            mlp_dim=96,
        )
        if converter is not None:
            layer = keras_hub.layers.ViTImageConverter(image_size=(32, 32), **converter)
            kwargs["preprocessor"] = keras_hub.models.ViTImageClassifierPreprocessor(
                layer
            )
        model = keras_hub.models.ViTImageClassifier(
            backbone=backbone, num_classes=10, **kwargs
        )
        randomize(model)
        return model

    return make


def test_presets_of_keras_hub(classifier, tmp_path):
    scale = [1 / (255 * std) for std in IMAGENET_STD]
    pairs = zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)
    converter = {"scale": scale, "offset": [-mean / std for mean, std in pairs]}
    images = photos(32)
    for model, (mean, std) in (
        (classifier(), (peer_models.HALF, peer_models.HALF)),
        (classifier(converter), IMAGENET),
    ):
        model.save_to_preset(tmp_path / "preset")
        said = zoo.read(tmp_path / "preset").semantics
        np.testing.assert_allclose(said.input_mean, mean, atol=1e-6)
        np.testing.assert_allclose(said.input_std, std, atol=1e-6)
        built = VisionTransformer(TINY, tmp_path / "preset")
        expected = numpy(model((images - np.float32(mean)) / np.float32(std)))
        assert_close(ours(built, images), expected, TOLERANCE)


@pytest.mark.parametrize("interpolation", [None, "bilinear", "bicubic", "lanczos3"])
def test_photos_are_fitted_as_a_presets_converter_does(
    classifier, tmp_path, interpolation
):
    how = {"interpolation": interpolation, "antialias": True} if interpolation else {}
    how |= {"scale": 1 / 127.5, "offset": -1.0, "crop_to_aspect_ratio": False}
    model = classifier(how)
    model.save_to_preset(tmp_path / "preset")
    said = zoo.read(tmp_path / "preset").head.preparation
    photo = np.cumsum(np.arange(90 * 60 * 3) % 7, dtype="uint8").reshape(90, 60, 3)
    found = zoo.photos.prepare(photo, (32, 32), said)
    expected = numpy(model.preprocessor.image_converter(photo[None]))[0]
    apart = np.abs(found - expected) * 127.5
    assert apart.max() <= 15
    assert apart.mean() <= 0.5


@pytest.mark.parametrize("is_backbone", [True, False])
def test_weights_of_keras_hub(is_backbone, classifier, tmp_path):
    model, images = classifier(intermediate_dim=32), photos(32)
    options = {}
    if is_backbone:
        model, options = model.backbone, {"include_top": False, "pooling": None}
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    built = VisionTransformer(TINY, path, **options)
    assert is_backbone or built.get_layer("pre_logits").units == 32
    assert_close(ours(built, images), numpy(model(2 * images - 1)), TOLERANCE)


# Where the file and the model compute different numbers


@pytest.fixture
def path(goldens, tmp_path):
    path = tmp_path / "exact.safetensors"
    said = ViTConfig.released(activation="gelu", layer_norm_epsilon=1e-5)
    zoo.write(path, zoo.read(goldens / "token.npz").arrays, semantics=said)
    return path


@pytest.fixture
def config(path):
    return config_of(zoo.read(path))


def test_the_model_computes_as_the_file_says_and_keeps_it(path, config, tmp_path):
    model, images = VisionTransformer(config, path), photos(32)
    for index in range(config.num_layers):
        block = model.get_layer(f"encoder_block_{index}")
        assert (block.mlp.activation, block.mlp_norm.epsilon) == ("gelu", 1e-5)
    assert model.get_layer("encoder_norm").epsilon == 1e-5
    model.save(tmp_path / "model.keras")
    with pytest.raises(zoo.CheckpointError, match="an .npz cannot say activation"):
        keras_vit.save_released_weights(model, tmp_path / "own.npz")
    keras_vit.save_released_weights(model, tmp_path / "own.safetensors")
    for again in (
        keras.saving.load_model(tmp_path / "model.keras"),
        VisionTransformer(config, tmp_path / "own.safetensors"),
    ):
        np.testing.assert_array_equal(ours(again, images), ours(model, images))


def test_a_config_or_a_model_that_computes_otherwise_is_refused(path, config):
    VisionTransformer(dataclasses.replace(config, activation="gelu"), path)
    other = dataclasses.replace(config, activation="gelu_tanh")
    with pytest.raises(ValueError, match="'gelu' .the ViTConfig has 'gelu_tanh'"):
        VisionTransformer(other, path)
    model = VisionTransformer(config, image_size=32, classes=10)
    with pytest.raises(ValueError, match=r"activation 'gelu' .the model has"):
        keras_vit.load_released_weights(model, path)
    same = dataclasses.replace(config, activation="gelu", layer_norm_epsilon=1e-5)
    model, images = VisionTransformer(same, image_size=32, classes=10), photos(32)
    keras_vit.load_released_weights(model, path)
    expected = ours(VisionTransformer(config, path), images)
    np.testing.assert_array_equal(ours(model, images), expected)


def test_inputs_of_a_hybrid_cannot_change(goldens):
    said = ViTConfig.released(input_mean=IMAGENET_MEAN, input_std=IMAGENET_STD)
    checkpoint = zoo.read(goldens / "hybrid_stem.npz", semantics=said)
    config = dataclasses.replace(
        config_of(checkpoint), resnet_stages=(), resnet_width=32
    )
    with pytest.raises(ValueError, match="0.485.*standardises its kernels"):
        VisionTransformer(config, checkpoint)

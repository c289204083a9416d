"""Files of keras-hub, made as they are compared: `make peers` installs it."""

import numpy as np
import peer_models
import pytest
from families import assert_close
from harness import numpy, randomize
from peer_models import IMAGENET, photos

import zoo
from keras_vit import VisionTransformer, ViTConfig

TOLERANCE = 1e-5
TINY = ViTConfig(hidden_size=48, num_layers=2, num_heads=3, mlp_dim=96, patch_size=8)
IMAGENET_MEAN, IMAGENET_STD = IMAGENET


def ours(model, images):
    return numpy(model(2 * images - 1))


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

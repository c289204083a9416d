"""Probes as heads of networks."""

import keras
import numpy as np
import pytest
from evaluated import CONFIG, tiny

import keras_vit
from train.scoring import probes
from train.scoring.features import features_model
from train.scoring.probed_network import probed_network

NAMES = ("a", "b", "c")


def outputs_of(model, images):
    return keras.ops.convert_to_numpy(model(images))


def features_of(network, images, patches):
    return outputs_of(features_model(network, patches), images)


def images_of(network, count=30):
    shape = (count, *network.input_shape[1:])
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


@pytest.mark.parametrize("kind", ["lda", "mlp"])
@pytest.mark.parametrize("patches", [False, True])
@pytest.mark.parametrize("pooling", ["token", "map", "gap"])
def test_the_model_gives_the_logits_of_the_probe(
    kind, patches, pooling, tmp_path, monkeypatch
):
    monkeypatch.setattr(probes.probe_fits, "_MLP_STEPS", 20)
    network = keras_vit.VisionTransformer(
        CONFIG, image_size=32, classes=7, pooling=pooling
    )
    images = images_of(network)
    features = features_of(network, images, patches)
    assert features.shape[1] == (32 if patches and pooling != "gap" else 16)
    probe = probes.fit(kind, features, np.arange(30) % 3, 3)
    model = probed_network(network, probe, NAMES, "timm crop bicubic 0.9")
    expected = probe.logits(features)
    given = outputs_of(model, images)
    np.testing.assert_allclose(given, expected, rtol=1e-3, atol=1e-3)
    head = model.get_layer("head")
    assert (head.class_names, head.preparation) == (NAMES, "timm crop bicubic 0.9")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(outputs_of(loaded, images), given, atol=1e-5)


@pytest.mark.parametrize("patches", [False, True])
def test_a_linear_probe_is_a_model_that_can_be_published(patches, tmp_path):
    network = tiny(7)
    images = images_of(network)
    features = features_of(network, images, patches)
    probe = probes.fit("ridge", features, np.arange(30) % 3, 3)
    model = probed_network(network, probe, NAMES)
    keras_vit.save_released_weights(model, tmp_path / "weights.npz")
    loaded = keras_vit.load_model(tmp_path / "weights.npz")
    np.testing.assert_allclose(
        outputs_of(loaded, images), outputs_of(model, images), atol=1e-4
    )


def test_features_of_another_network_are_refused():
    probe = probes.fit("lda", np.eye(5), np.arange(5) % 3, 3)
    with pytest.raises(ValueError, match="is on 5 features, which the model"):
        probed_network(tiny(7), probe)

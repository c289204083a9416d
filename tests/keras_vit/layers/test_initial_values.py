"""Models with weights draw no random values, and nothing is left without a value."""

import keras
import numpy as np
import pytest
from harness import numpy
from small_models import HYBRID, PLAIN

import keras_vit
from keras_vit.layers import initial_values


@pytest.fixture
def file_of(tmp_path):
    def file_of(config, **kwargs):
        model = keras_vit.VisionTransformer(config, image_size=32, classes=3, **kwargs)
        model.get_layer("head").bias.assign_add([1.0, 2.0, 3.0])
        keras_vit.save_released_weights(model, tmp_path / "weights.npz")
        return tmp_path / "weights.npz"

    return file_of


@pytest.mark.parametrize(
    "config, saved, loaded",
    [
        (PLAIN, {}, {}),
        (PLAIN, {}, {"classes": 5, "image_size": (48, 64)}),
        (PLAIN, {}, {"include_top": False, "channels": 1}),
        (PLAIN, {}, {"pooling": "gap", "new_head": True}),
        (PLAIN, {}, {"pooling": None}),
        (PLAIN, {"representation_size": 16}, {}),
        (PLAIN, {"representation_size": 16}, {"classes": 5, "representation_size": 16}),
        (HYBRID, {}, {"stochastic_depth_rate": 0.1, "dropout_rate": 0.1}),
    ],
)
def test_every_value_comes_from_the_file(config, saved, loaded, file_of, monkeypatch):
    file = file_of(config, **saved)

    def not_a_number(shape, dtype=None):
        return keras.ops.full(shape, float("nan"), dtype)

    def drawn(self, shape, dtype=None):
        raise AssertionError(f"values of {shape} are drawn")

    monkeypatch.setattr(initial_values, "_unset", not_a_number)
    kinds = ["GlorotUniform", "RandomNormal"]
    if "representation_size" not in saved:  # a small layer of Keras's
        kinds.append("LecunNormal")
    for kind in kinds:
        monkeypatch.setattr(getattr(keras.initializers, kind), "__call__", drawn)
    model = keras_vit.VisionTransformer(config, file, **loaded)
    for variable in model.variables:
        assert np.isfinite(numpy(variable)).all(), variable.path


def test_a_copy_of_a_loaded_model_starts_at_random(file_of):
    model = keras_vit.VisionTransformer(PLAIN, file_of(PLAIN))
    copy = keras.models.clone_model(model)
    kernel = numpy(copy.get_layer("encoder_block_0").mlp.expand.kernel)
    limit = np.sqrt(6 / (24 + 40))
    assert 0.9 * limit < np.abs(kernel).max() <= limit
    assert np.std(kernel) == pytest.approx(limit / np.sqrt(3), rel=0.1)


def test_a_failed_load_does_not_leave_later_models_without_values(file_of):
    with pytest.raises(ValueError, match="another architecture"):
        keras_vit.VisionTransformer(HYBRID, file_of(PLAIN))
    layer = keras_vit.layers.MLP(40)
    layer.build((None, 7, 24))
    assert 0 < np.abs(numpy(layer.expand.kernel)).max() < 1

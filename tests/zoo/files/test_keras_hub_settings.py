"""Settings of keras-hub's presets: what a field never is names file and field."""

import json
import warnings

import pytest

import zoo
from zoo.files import keras_hub

SIZES = {"num_layers": 2, "mlp_dim": 96, "hidden_size": 48, "class_token": True}
BACKBONE = {"hidden_dim": 48, "image_shape": [32, 32, 3], "patch_size": 8}


def described(folder, config=BACKBONE, converter=None, task=None):
    files = {
        "config.json": {"class_name": "ViTBackbone", "config": config},
        "preprocessor.json": {"config": {"image_converter": {"config": converter}}},
        "task.json": {"config": task},
    }
    for name, settings in files.items():
        (folder / name).write_text(json.dumps(settings))
    return keras_hub.describe(folder, SIZES)


def test_a_preset_says_grid_and_inputs(tmp_path):
    found = described(tmp_path, converter={"scale": [0.01] * 3, "offset": -1})
    assert found.grid_size == (4, 4)
    assert found.config.input_mean == pytest.approx((1 / 2.55,) * 3)
    assert found.config.input_std == pytest.approx((1 / 2.55,) * 3)
    assert described(tmp_path).config.input_mean == (0.5, 0.5, 0.5)
    unscaled = described(tmp_path, BACKBONE | {"image_shape": None}, {"scale": None})
    assert unscaled.config.input_std == pytest.approx((1 / 255,) * 3)
    assert unscaled.grid_size is None


@pytest.mark.parametrize(
    ("settings", "file", "told"),
    [
        ({"config": [1]}, "config.json", r"config of \[1\]: write a table"),
        ({"config": {"backbone": 5}}, "config.json", "backbone of 5: write a table"),
        (
            {"config": BACKBONE | {"patch_size": "x"}},
            "config.json",
            "patch_size of 'x'",
        ),
        (
            {"config": BACKBONE | {"image_shape": 32}},
            "config.json",
            "image_shape of 32",
        ),
        (
            {"config": BACKBONE | {"layer_norm_epsilon": -1}},
            *("config.json", "layer_norm_epsilon of -1: write a number above 0"),
        ),
        ({"converter": {"scale": "x"}}, "preprocessor.json", "scale of 'x': write"),
        ({"converter": {"scale": 0}}, "preprocessor.json", "scale of 0: write"),
        ({"converter": {"scale": [1, 1e-300]}}, "preprocessor.json", "scale of"),
        (
            {"converter": {"scale": [1, 1, 1], "offset": [1, 1]}},
            *("preprocessor.json", r"offset=\[1, 1\] and scale=\[1, 1, 1\]"),
        ),
        ({"task": {"pooling": ["token"]}}, "task.json", "pooling of"),
    ],
)
def test_values_that_a_field_never_has_are_refused(tmp_path, settings, file, told):
    with pytest.raises(zoo.CheckpointError, match=told) as error:
        described(tmp_path, **settings)
    assert str(tmp_path / file) in str(error.value)


CONVERTER = {
    "name": "vit_image_converter",
    "trainable": True,
    "dtype": {"class_name": "DTypePolicy", "config": {"name": "float32"}},
    "image_size": [32, 32],
    "scale": 1 / 127.5,
    "offset": -1,
    "interpolation": "bilinear",
    "antialias": False,
    "crop_to_aspect_ratio": False,
    "pad_to_aspect_ratio": False,
    "bounding_box_format": "yxyx",
}


@pytest.mark.parametrize(
    ("settings", "preparation"),
    [
        ({}, "squash"),
        ({"antialias": True}, "transformers squash bilinear"),
        (
            {"antialias": True, "interpolation": "bicubic"},
            "transformers squash bicubic",
        ),
        (
            {"antialias": True, "interpolation": "lanczos3"},
            "transformers squash lanczos",
        ),
    ],
)
def test_a_presets_way_of_fitting_photos_is_read(tmp_path, settings, preparation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = described(tmp_path, converter=CONVERTER | settings)
    assert found.head.preparation == preparation


@pytest.mark.parametrize(
    "settings",
    [
        {"crop_to_aspect_ratio": True},
        {"pad_to_aspect_ratio": True},
        {"interpolation": "bicubic"},
        {"interpolation": "nearest"},
        {"antialias": True, "interpolation": "lanczos5"},
        {"image_size": None},
    ],
)
def test_photos_that_a_preset_fits_in_another_way_are_named(tmp_path, settings):
    with pytest.warns(UserWarning, match=r"preprocessor\.json fits photos .* squashed"):
        found = described(tmp_path, converter=CONVERTER | settings)
    assert found.head.preparation is None


def test_what_a_presets_converter_leaves_out_is_keras_hubs_default(tmp_path):
    converter = {"interpolation": "bilinear", "scale": 1}
    with pytest.warns(UserWarning, match="fits photos"):
        described(tmp_path, converter=converter)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"antialias": "yes"}, "antialias of 'yes': write true or false"),
        ({"interpolation": 3}, "interpolation of 3: write a text"),
        ({"variance": [1, 1, 1]}, r"not known: variance=\[1, 1, 1\]"),
    ],
)
def test_converters_that_are_not_known_are_refused(tmp_path, settings, told):
    with pytest.raises(zoo.CheckpointError, match=told):
        described(tmp_path, converter=CONVERTER | settings)

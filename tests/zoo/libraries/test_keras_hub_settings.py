"""Settings of keras-hub's presets: what a field never is names file and field."""

import json
import warnings

import numpy as np
import pytest

import zoo
from zoo.libraries import keras_hub
from zoo.libraries.comparison import Shown

SIZES = {"num_layers": 2, "mlp_dim": 96, "hidden_size": 48, "num_heads": 3}
SHOWN = Shown({"cls": (1, 1, 48)}, SIZES)
BACKBONE = {"hidden_dim": 48, "image_shape": [32, 32, 3], "patch_size": 8}


def described(folder, config=BACKBONE, converter=None, task=None):
    files = {
        "config.json": {"class_name": "ViTBackbone", "config": config},
        "preprocessor.json": {"config": {"image_converter": {"config": converter}}},
        "task.json": {"config": task},
    }
    for name, settings in files.items():
        (folder / name).write_text(json.dumps(settings))
    return keras_hub.KerasHub().describe(folder, SHOWN)


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


WIDE = {"antialias": True}


def test_a_preset_says_grid_and_inputs(tmp_path):
    said = {"scale": [0.01] * 3, "offset": -1}
    found = described(tmp_path, converter=CONVERTER | said)
    assert found.grid_size == (4, 4)
    assert found.config.input_mean == pytest.approx((1 / 2.55,) * 3)
    assert found.config.input_std == pytest.approx((1 / 2.55,) * 3)
    assert described(tmp_path).config.input_mean == (0.5, 0.5, 0.5)
    # Images are in [0, 255] without a scale.
    unscaled = {key: CONVERTER[key] for key in CONVERTER.keys() - {"scale", "offset"}}
    unscaled = described(tmp_path, BACKBONE | {"image_shape": None}, unscaled)
    assert unscaled.config.input_mean == (0, 0, 0)
    assert unscaled.config.input_std == pytest.approx((1 / 255,) * 3)
    assert unscaled.grid_size is None


@pytest.mark.parametrize(
    ("settings", "preparation"),
    [
        ({}, "squash"),
        (WIDE, "transformers squash bilinear"),
        (WIDE | {"interpolation": "bicubic"}, "transformers squash bicubic"),
        (WIDE | {"interpolation": "lanczos3"}, "transformers squash lanczos"),
        ({"crop_to_aspect_ratio": True}, None),
        ({"pad_to_aspect_ratio": True}, None),
        ({"interpolation": "bicubic"}, None),
        (WIDE | {"interpolation": "lanczos5"}, None),
        ({"image_size": None}, None),
        # keras-hub's default is to crop.
        ({"crop_to_aspect_ratio": ...}, None),
    ],
)
def test_a_presets_way_of_fitting_photos_is_read_or_named(
    tmp_path, settings, preparation
):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        said = CONVERTER | settings
        said = {key: value for key, value in said.items() if value is not ...}
        found = described(tmp_path, converter=said)
    assert found.head.preparation == preparation
    told = [str(one.message) for one in seen]
    assert bool(told) == (preparation is None)
    assert all("preprocessor.json fits photos" in one for one in told)


def test_the_norm_of_earlier_converters_is_read(tmp_path):
    """As keras-hub 0.19 to 0.21: (values * scale + offset - mean) / deviation."""
    said = {"scale": 1 / 51, "offset": -1, "norm_std": 0.5, "norm_mean": [0, 1, 2]}
    found = described(tmp_path, converter=CONVERTER | said)
    values = np.arange(0, 256, 5.0)[:, None]
    expected = (values / 51 - 1 - np.array([0, 1, 2])) / 0.5
    mean, std = found.config.input_mean, found.config.input_std
    np.testing.assert_allclose((values / 255 - mean) / std, expected, atol=1e-6)


def test_two_converters_of_a_preset_say_the_same(tmp_path):
    beside = tmp_path / "image_converter.json"
    said = {key: CONVERTER[key] for key in CONVERTER if key != "antialias"}
    beside.write_text(json.dumps({"config": said | {"name": "another"}}))
    found = described(tmp_path, converter=CONVERTER)
    assert found.config.input_mean == (0.5, 0.5, 0.5)
    beside.write_text(json.dumps({"config": said | {"scale": None}}))
    told = r"preprocessor.json and image_converter.json say .*, scale 0.0078\S* and 1.0"
    with pytest.raises(zoo.CheckpointError, match=told):
        described(tmp_path, converter=CONVERTER)
    # A preprocessor without a converter hides none.
    beside.write_text(json.dumps({"config": said | {"scale": 0.01, "offset": 0}}))
    assert described(tmp_path).config.input_std == pytest.approx((1 / 2.55,) * 3)


@pytest.mark.parametrize(
    ("part", "changes", "told"),
    [
        ("config", {"patch_size": "x"}, "patch_size of 'x'"),
        ("config", {"image_shape": 32}, "image_shape of 32"),
        ("config", {"layer_norm_epsilon": -1}, "epsilon of -1: write a number above 0"),
        ("config", {"backbone": 5}, "backbone of 5: write a table"),
        ("task", {"pooling": ["token"]}, "pooling of"),
        ("preprocessor", {"scale": [1, 1e-300]}, "scale of"),
        ("preprocessor", {"scale": [1] * 3, "offset": [1] * 2}, r"offset=\[1, 1\] and"),
        ("preprocessor", {"antialias": "yes"}, "of 'yes': write true or false"),
        ("preprocessor", {"interpolation": 3}, "interpolation of 3: write a text"),
        ("preprocessor", {"variance": [1]}, r"not known: variance=\[1\]"),
        ("preprocessor", {"norm_std": 0}, "norm_std of 0: write"),
    ],
)
def test_values_that_a_field_never_has_are_refused(tmp_path, part, changes, told):
    usual = {"config": BACKBONE, "task": {}, "preprocessor": CONVERTER}[part]
    argument = "converter" if part == "preprocessor" else part
    with pytest.raises(zoo.CheckpointError, match=told) as error:
        described(tmp_path, **{argument: usual | changes})
    assert str(tmp_path / f"{part}.json") in str(error.value)

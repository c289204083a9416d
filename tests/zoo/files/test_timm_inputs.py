"""How timm's settings bring photos to a model, and timm's defaults."""

import json
import pathlib
import shutil

import numpy as np
import peer_models
import pytest

import zoo
from zoo.photos import fitted

CASES = pathlib.Path(__file__).parents[2] / "cases"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
OWN = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
NAME = "vit_tiny_patch16_224"
# Settings, and what timm 1.0.31 makes of them: mean, deviation and preparation, which
# `test_timm_does_the_same` compares with itself. None: they say nothing of how photos
# come to the size, where timm crops 0.875.
AS_TIMM = {
    "a name alone": ({}, *IMAGENET, None),
    "nothing inside": ({"pretrained_cfg": {}}, *IMAGENET, None),
    "null": (
        {"pretrained_cfg": dict.fromkeys(("crop_pct", "crop_mode", "interpolation"))},
        *(*IMAGENET, None),
    ),
    "null for the table": ({"pretrained_cfg": None}, *IMAGENET, None),
    "an empty text": (
        {"pretrained_cfg": {"crop_mode": "center", "interpolation": ""}},
        *(*IMAGENET, "crop bicubic 0.875"),
    ),
    "inputs": (
        {"pretrained_cfg": OWN},
        *(OWN["mean"], OWN["std"], None),
    ),
    "a mean": (
        {"pretrained_cfg": {"mean": [0.5] * 3}},
        *([0.5] * 3, IMAGENET[1], None),
    ),
    "interpolation": (
        {"pretrained_cfg": {"interpolation": "bilinear"}},
        *(*IMAGENET, "crop bilinear 0.875"),
    ),
    "squash": (
        {"pretrained_cfg": {"crop_mode": "squash", "crop_pct": 1.0}},
        *(*IMAGENET, "squash bicubic"),
    ),
    "a squash of a part": (
        {"pretrained_cfg": {"crop_mode": "squash"}},
        *(*IMAGENET, "squash bicubic 0.875"),
    ),
    "at the top": (
        {"crop_pct": 0.9, "interpolation": "lanczos", **OWN},
        *(OWN["mean"], OWN["std"], "crop lanczos 0.9"),
    ),
}


@pytest.fixture
def folder(tmp_path):
    """Returns a function that writes a folder with settings of timm."""

    def make(settings):
        copy = tmp_path / f"model{len([*tmp_path.iterdir()])}"
        shutil.copytree(CASES / "timm_label_names", copy)
        config = json.loads((copy / "config.json").read_text())
        inner = {} if "pretrained_cfg" not in settings else {"pretrained_cfg": {}}
        own = {name: config[name] for name in ("architecture", "model_args")}
        (copy / "config.json").write_text(json.dumps(own | inner | settings))
        return copy

    return make


@pytest.mark.parametrize("name", AS_TIMM)
def test_what_settings_do_not_say_is_timms_default(folder, name):
    settings, mean, std, preparation = AS_TIMM[name]
    found = zoo.read(folder(settings))
    assert (found.semantics.input_mean, found.semantics.input_std) == (
        tuple(mean),
        tuple(std),
    )
    assert found.head.preparation == (preparation and f"timm {preparation}")


def test_timm_does_the_same(folder, request):
    run = request.getfixturevalue("timm")
    photo = np.random.default_rng(7).integers(0, 256, (90, 130, 3), "uint8")
    folders = {}
    for name, (settings, *_) in AS_TIMM.items():
        if settings == {"pretrained_cfg": None}:
            continue  # which timm cannot read
        folders[name] = folder(settings)
        if "pretrained_cfg" not in settings:
            # At the top timm knows its inputs alone.
            file = folders[name] / "config.json"
            config = json.loads(file.read_text())
            del config["model_args"]
            file.write_text(json.dumps(config))
    for name, (mean, std, values) in zip(
        folders,
        run(peer_models.inputs_of_timm, [*folders.values()], photo),
        strict=True,
    ):
        _, ours_mean, ours_std, preparation = AS_TIMM[name]
        assert (tuple(mean), tuple(std)) == (tuple(ours_mean), tuple(ours_std)), name
        preparation = f"timm {preparation or 'crop bicubic 0.875'}"
        image = fitted(photo, values.shape[:2], preparation) / 255
        image = (image - np.array(mean)) / np.array(std)
        np.testing.assert_allclose(values, image, atol=1e-5, err_msg=name)


def test_names_of_timm_files_without_settings_keep_the_published_inputs(folder):
    path = folder({})
    (path / "config.json").unlink()
    found = zoo.read(path / "model.safetensors", num_heads=3)
    assert found.semantics.input_mean == (0.5,) * 3 and found.head.preparation is None


@pytest.mark.parametrize(
    ("part", "field", "values"),
    [
        ("pretrained_cfg", "crop_pct", ("x", 2, 0, -1, 1e-9, True, [1])),
        ("pretrained_cfg", "crop_mode", ("border", 5, ["center"])),
        ("pretrained_cfg", "interpolation", ("random", 5, ["bicubic"])),
        ("pretrained_cfg", "mean", ("x", ["a"] * 3, [], True, [1e9] * 3, {"a": 1})),
        ("pretrained_cfg", "std", ("x", [0.5, 0.5, 0], 1e297, [1e-300] * 3, [0.5])),
        ("pretrained_cfg", "input_size", (32, [32, 32], [3, 32, 0], "x")),
        ("pretrained_cfg", "notes", (5, [5], {"a": 1})),
        ("pretrained_cfg", "label_names", (5, "cat", True)),
        ("model_args", "num_heads", ("3", 0, 10**400, [3], True)),
        ("model_args", "reg_tokens", ("1", -1, 4.9, True)),
        ("model_args", "img_size", ("x", [32, 0], [], 10**30)),
        ("model_args", "qkv_bias", ("yes", 1, [])),
        ("model_args", "act_layer", (["gelu"], 5)),
    ],
)
def test_values_that_a_field_of_timm_never_has_are_refused(folder, part, field, values):
    path = folder({"pretrained_cfg": OWN})
    config = json.loads((path / "config.json").read_text())
    for value in values:
        inner = {part: config[part] | {field: value}}
        (path / "config.json").write_text(json.dumps(config | inner))
        with pytest.raises(zoo.CheckpointError) as error:
            zoo.read(path)
        told = str(error.value)
        assert str(path / "config.json") in told and field in told, value
        assert "write" in told and len(told.splitlines()) <= 2, value


def test_notes_of_timm_may_be_one_text(folder):
    path = folder({"pretrained_cfg": {"notes": "natively QuickGELU"}})
    with pytest.warns(UserWarning, match="quick GELU"):
        zoo.read(path)

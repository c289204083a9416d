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
    "null for the table": ({"pretrained_cfg": None}, *IMAGENET, None),
    "at the top": (
        {"crop_pct": 0.9, "interpolation": "lanczos", **OWN},
        *(OWN["mean"], OWN["std"], "crop lanczos 0.9"),
    ),
    **{
        name: ({"pretrained_cfg": inside}, mean, std, preparation)
        for name, (inside, mean, std, preparation) in {
            "null": (
                dict.fromkeys(("crop_pct", "crop_mode", "interpolation")),
                *(*IMAGENET, None),
            ),
            "an empty text": (
                {"crop_mode": "center", "interpolation": ""},
                *(*IMAGENET, "crop bicubic 0.875"),
            ),
            "inputs": (OWN, OWN["mean"], OWN["std"], None),
            "a mean": ({"mean": [0.5] * 3}, [0.5] * 3, IMAGENET[1], None),
            "interpolation": (
                {"interpolation": "bilinear"},
                *(*IMAGENET, "crop bilinear 0.875"),
            ),
            "a part": ({"crop_pct": 0.9}, *IMAGENET, "crop bicubic 0.9"),
            "all": (
                {"crop_pct": 1.0, "interpolation": "bilinear"},
                *(*IMAGENET, "crop bilinear"),
            ),
            "squash": (
                {"crop_mode": "squash", "crop_pct": 1},
                *(*IMAGENET, "squash bicubic"),
            ),
            "a squash of a part": (
                {"crop_mode": "squash"},
                *(*IMAGENET, "squash bicubic 0.875"),
            ),
        }.items()
    },
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
def test_what_settings_do_not_say_is_timms_default(folder, name, tmp_path):
    settings, mean, std, preparation = AS_TIMM[name]
    found = zoo.read(folder(settings))
    inputs = (found.semantics.input_mean, found.semantics.input_std)
    assert inputs == (tuple(mean), tuple(std))
    assert found.head.preparation == (preparation and f"timm {preparation}")
    target = tmp_path / "written"
    target.mkdir()
    zoo.write(target / "model.safetensors", found, naming="timm")
    assert zoo.read(target).head == found.head
    if preparation is None:
        # What says nothing is squashed, which timm would not do by default.
        written = json.loads((target / "config.json").read_text())["pretrained_cfg"]
        squash = {"crop_pct": 1, "crop_mode": "squash", "interpolation": "bilinear"}
        assert squash.items() <= written.items()


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

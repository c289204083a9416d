"""How timm's settings bring photos to a model, and timm's defaults."""

import json
import typing

import numpy as np
import peer_models
import pytest

import zoo
from zoo.photos import fitted

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
OWN = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}


class Case(typing.NamedTuple):
    """Settings, and what timm 1.0.31 makes of them.

    Attributes:
        preparation: None where they say nothing of how photos come to the size, of
            which timm crops 0.875.
        inputs: mean and deviation.
        inside: whether the settings are in timm's table of them, or at the top.
    """

    settings: dict | None
    preparation: str | None = None
    inputs: tuple = IMAGENET
    inside: bool = True

    @property
    def written(self):
        return {"pretrained_cfg": self.settings} if self.inside else self.settings


TOP = {"crop_pct": 0.9, "interpolation": "lanczos", **OWN}
SOME_NULL = dict.fromkeys(("crop_pct", "crop_mode", "interpolation"))
# `test_timm_does_the_same` compares these with timm.
AS_TIMM = {
    "nothing inside": Case({}),
    "null for the table": Case(None),
    "null": Case(SOME_NULL),
    "an empty text": Case(
        {"crop_mode": "center", "interpolation": ""}, "crop bicubic 0.875"
    ),
    "inputs": Case(OWN, inputs=(OWN["mean"], OWN["std"])),
    "a mean": Case({"mean": [0.5] * 3}, inputs=([0.5] * 3, IMAGENET[1])),
    "interpolation": Case({"interpolation": "bilinear"}, "crop bilinear 0.875"),
    "a part": Case({"crop_pct": 0.9}, "crop bicubic 0.9"),
    "all": Case({"crop_pct": 1.0, "interpolation": "bilinear"}, "crop bilinear"),
    "squash": Case({"crop_mode": "squash", "crop_pct": 1}, "squash bicubic"),
    "a squash of a part": Case({"crop_mode": "squash"}, "squash bicubic 0.875"),
    # Keep these last: `test_timm_does_the_same` takes the arguments out for them.
    "a name alone": Case({}, inside=False),
    "at the top": Case(TOP, "crop lanczos 0.9", (OWN["mean"], OWN["std"]), False),
}


def folder_of(case, changed, **others):
    """A folder with the settings of a case."""
    fields = ("label_names", "num_classes", "num_features", "pretrained_cfg")
    settings = dict.fromkeys(fields, ...) | case.written | others
    return changed("timm_label_names", settings)


@pytest.mark.parametrize("name", AS_TIMM)
def test_what_settings_do_not_say_is_timms_default(name, changed, tmp_path):
    case = AS_TIMM[name]
    found = zoo.read(folder_of(case, changed))
    inputs = (found.semantics.input_mean, found.semantics.input_std)
    assert inputs == tuple(map(tuple, case.inputs))
    assert found.head.preparation == (case.preparation and f"timm {case.preparation}")
    zoo.write(tmp_path / "model.safetensors", found, naming="timm")
    assert zoo.read(tmp_path / "model.safetensors").head == found.head
    if case.preparation is None:
        # Without settings photos are squashed, which timm would not do by default.
        written = json.loads((tmp_path / "config.json").read_text())["pretrained_cfg"]
        squash = {"crop_pct": 1, "crop_mode": "squash", "interpolation": "bilinear"}
        assert squash.items() <= written.items()


def test_timm_does_the_same(changed, timm):
    photo = np.random.default_rng(7).integers(0, 256, (90, 130, 3), "uint8")
    for name, case in AS_TIMM.items():
        if case.settings is None:
            continue  # which timm cannot read
        arguments = {} if case.inside else {"model_args": ...}
        folder = folder_of(case, changed, **arguments)
        mean, std, values = timm(peer_models.inputs_of_timm, folder, photo)
        assert (tuple(mean), tuple(std)) == tuple(map(tuple, case.inputs)), name
        preparation = f"timm {case.preparation or 'crop bicubic 0.875'}"
        image = fitted(photo, values.shape[:2], preparation) / 255
        image = (image - np.array(mean)) / np.array(std)
        np.testing.assert_allclose(values, image, atol=1e-5, err_msg=name)


def test_names_of_timm_files_without_settings_keep_the_published_inputs(changed):
    path = changed("timm_label_names", {})
    (path / "config.json").unlink()
    found = zoo.read(path / "model.safetensors", num_heads=3)
    assert found.semantics.input_mean == (0.5,) * 3 and found.head.preparation is None

"""Settings of timm and transformers that would change what is computed."""

import json
import pathlib
import shutil
import warnings

import peer_models
import pytest

import zoo
from zoo.files import timm, transformers

FOLDER = pathlib.Path(__file__).parents[4] / "shared" / "goldens_families"
needs_goldens = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"{FOLDER} is not there, which has the files"
)
# The configurations of the types that are read.
CLASSES = {
    "ViTConfig": ("vit",),
    "DeiTConfig": ("deit",),
    "ViTMAEConfig": ("vit_mae",),
    "ViTMSNConfig": ("vit_msn",),
    "IJepaConfig": ("ijepa",),
    "Dinov2Config": ("dinov2",),
    "Dinov2WithRegistersConfig": ("dinov2_with_registers",),
    "Tipsv2VisionConfig": ("tipsv2_vision_model",),
    "Tipsv2Config": ("tipsv2",),
    "SiglipVisionConfig": ("siglip_vision_model",),
    "SiglipConfig": ("siglip",),
    "Siglip2VisionConfig": ("siglip2_vision_model",),
    "Siglip2Config": ("siglip2",),
    "CLIPVisionConfig": ("clip_vision_model",),
    "CLIPConfig": ("clip",),
    "MetaClip2VisionConfig": ("metaclip_2_vision_model",),
    "MetaClip2Config": ("metaclip_2",),
    "AltCLIPVisionConfig": ("altclip_vision_model",),
    "AltCLIPConfig": ("altclip",),
    "ChineseCLIPVisionConfig": ("chinese_clip_vision_model",),
    "ChineseCLIPConfig": ("chinese_clip",),
    "DINOv3ViTConfig": ("dinov3_vit",),
    "BeitConfig": ("beit",),
    "Data2VecVisionConfig": ("data2vec-vision",),
}
USES = {
    "read", "compared", "implied", "of the arrays", "where training starts",
    "of training", "of pre-training", "of a backbone's outputs", "of another tower",
    "of another head", "of another size", "of outputs", "of texts", "which outputs",
    "how it computes", "where it is from", "the name of a class", "about it",
}  # fmt: skip


def test_every_field_of_the_classes_is_accounted_for(request):
    read = {name for names in CLASSES.values() for name in names}
    assert transformers._TYPES.keys() == read
    tables = (transformers.FIELDS, *timm.FIELDS.values())
    assert {field.use for table in tables for field in table.values()} == USES
    run = request.getfixturevalue("transformers")
    fields = run(peer_models.fields_of_transformers, [*CLASSES, "PretrainedConfig"])
    for name, own in fields.items():
        assert set(own) <= transformers.FIELDS.keys(), name
    # All of these configurations end in what one of them has.
    assert set(fields["PretrainedConfig"]) <= transformers.FIELDS.keys()
    run = request.getfixturevalue("timm")
    assert set(run(peer_models.fields_of_timm)) <= timm.FIELDS["pretrained_cfg"].keys()


def changed(name, folder, changes, file="config.json", inside=None):
    shutil.copytree(FOLDER / name, folder, dirs_exist_ok=True)
    settings = json.loads((folder / file).read_text())
    place = settings
    for key in inside or ():
        place = place[key]
    place.update(changes)
    (folder / file).write_text(json.dumps(settings))
    return folder


@needs_goldens
def test_values_that_change_nothing_are_left_out(tmp_path):
    for name, changes in (
        ("dinov2_transformers", {"layerscale_value": 1e-5, "drop_path_rate": 0.3}),
        (
            "dinov3_transformers",
            {
                "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
                "rope_scaling": None,
                "pos_embed_jitter": None,
                "not_set": None,
            },
        ),
    ):
        found = zoo.read(changed(name, tmp_path / name, changes))
        expected = zoo.read(FOLDER / name)
        assert (found.config, found.pooling) == (expected.config, expected.pooling)


@needs_goldens
def test_notes_of_quick_gelu_are_passed_on(tmp_path):
    notes = ["natively QuickGELU, use quickgelu model variant for original results"]
    folder = changed(
        "clip_timm", tmp_path / "plain", {"notes": notes}, inside=["pretrained_cfg"]
    )
    with pytest.warns(UserWarning, match="trained with quick GELU, and timm's vit_"):
        found = zoo.read(folder)
    # It is timm's number all the same.
    assert found.config == zoo.read(FOLDER / "clip_timm").config
    quick = changed(
        "clip_quickgelu_timm",
        tmp_path / "quick",
        {"notes": notes},
        inside=["pretrained_cfg"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert zoo.read(quick).config.activation == "quick_gelu"
        own = zoo.ViTConfig(activation="quick_gelu")
        assert zoo.read(folder, semantics=own).config.activation == "quick_gelu"

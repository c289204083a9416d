"""Arrays under the settings of another network, with one missing, with one too many.

Each is refused by name, or computes what its settings say: the matrix of the small
models of each library.
"""

import json
import types

import numpy as np
import peer_goldens
import pytest
from peer_files import arrays_of, settings_of

import zoo
from zoo.libraries import reading

CASES = [
    name
    for name in peer_goldens.CASES
    if name.endswith(("_timm", "_transformers")) and not name.startswith("beit")
]
# Networks of which another name means the same numbers, or other ones with equal keys.
SAME_KEYS = (
    {"vit_base_patch16_224", "vit_small_patch8_224", "deit_small_patch16_224"},
    {"ViTModel", "ViTMAEModel", "ViTMAEForPreTraining"},
    {"Tipsv2Model", "Tipsv2VisionModel"},
    {"SiglipModel", "SiglipVisionModel"},
    {"CLIPModel", "CLIPVisionModelWithProjection"},
    # timm takes a plain network's file for its NaFlex, too.
    {"vit_medium_patch16_reg4_gap_256", "naflexvit_base_patch16_gap"},
    {
        "vit_base_patch16_siglip_224",
        "vit_so400m_patch16_siglip_256",
        "naflexvit_base_patch16_siglip",
    },
    {"vit_huge_patch14_gap_224", "vit_base_patch16_siglip_gap_224"},
    {"vit_base_patch16_clip_224", "vit_base_patch32_clip_quickgelu_224"},
)
# Masks, texts and pre-training have these names in their keys.
IDLE = ("mask_token", "decoder.", "text_", "logit_", "temperature")
OF_TEXTS = ("tipsv2", "siglip", "clip")


@pytest.fixture(scope="module")
def files():
    """{case: (arrays, settings)}."""
    found = {}
    for name in CASES:
        settings = settings_of(name)
        # A pooling beside the architecture says more than its name.
        settings.get("model_args", {}).pop("global_pool", None)
        found[name] = arrays_of(name), settings
    return found


@pytest.fixture
def refusal(tmp_path):
    """Reads arrays with settings; returns the error, None where there is none."""

    def read(arrays, settings):
        config = tmp_path / "config.json"
        # To write over a file would wait for the disk.
        config.unlink(missing_ok=True)
        config.write_text(json.dumps(settings))
        # An open file whose arrays are in memory.
        file = types.SimpleNamespace(
            path=str(tmp_path / "model.safetensors"),
            keys=[*arrays],
            check=arrays.__getitem__,
            metadata={},
        )
        library = reading.recognise(file)
        if library is None:
            return "the names of no library"
        try:
            parts, stated = reading.read(file, library)
            semantics, grid = stated.config, stated.grid_size
            zoo.Checkpoint(file.path, parts, grid, semantics, stated.pooling)
        except zoo.CheckpointError as error:
            return str(error)
        return None

    return read


def class_of(settings):
    return settings.get("architecture") or settings["architectures"][0]


def relabelled(settings, others):
    if "architecture" in settings:
        return settings | {"architecture": others["architecture"]}
    names = ("model_type", "architectures")
    found = settings | {name: others[name] for name in names}
    if "vision_config" in settings:
        tower = others.get("vision_config", others)["model_type"]
        vision = settings["vision_config"] | {"model_type": tower}
        found["vision_config"] = vision
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_settings_of_another_network_are_refused(name, files, refusal):
    arrays, settings = files[name]
    assert refusal(arrays, settings) is None
    for other, (_, others) in files.items():
        library = "architecture" in settings
        same = {class_of(settings), class_of(others)}
        if library != ("architecture" in others):
            assert refusal(arrays, others), other
        elif len(same) == 2 and not any(same <= group for group in SAME_KEYS):
            assert refusal(arrays, relabelled(settings, others)), class_of(others)


@pytest.mark.parametrize("name", CASES[::2])
def test_one_array_less_or_more_is_refused(name, files, refusal):
    arrays, settings = files[name]

    def matters(key):
        # The pooling of SigLIP lies beside its classifier, and is not used.
        unused = name == "siglip_classifier_transformers" and "head." in key
        idle = any(part in key for part in IDLE)
        return not (unused or idle or ".1." in key)

    for key in filter(matters, arrays):
        rest = {one: array for one, array in arrays.items() if one != key}
        assert refusal(rest, settings), key
    if name not in CASES[::8]:
        return  # more would take most of the time
    others = {key: array for more, _ in files.values() for key, array in more.items()}
    for key in sorted(filter(matters, others.keys() - arrays.keys()))[::2]:
        assert refusal(arrays | {key: others[key]}, settings), key
    for key in ("text_model.a", "decoder.a"):
        allowed = name.startswith(OF_TEXTS) if "text" in key else True
        if "architecture" in settings or not allowed:
            assert refusal(arrays | {key: np.ones(1, "float32")}, settings), key

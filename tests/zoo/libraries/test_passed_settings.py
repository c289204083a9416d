"""Settings that change nothing are passed over, and each field is accounted for."""

import shutil
import warnings

import peer_models
import pytest
from peer_files import folder_of, settings_of

import zoo

# transformers 4 wrote these fields for models of every type.
OF_VERSION_4 = {
    "_name_or_path": "somewhere/vit", "_num_labels": 3, "chunk_size_feed_forward": 0,
    "length_penalty": 1.0, "max_length": 20, "num_beams": 1, "pruned_heads": {},
    "return_dict": True, "tie_word_embeddings": True, "top_k": 50, "use_cache": True,
    "torch_dtype": "float32", "transformers_version": "4.40.0", "is_decoder": False,
    "add_cross_attention": False, "output_attentions": False, "torchscript": False,
    "early_stopping": False, "use_bfloat16": False, "bad_words_ids": None,
    "problem_type": None, "task_specific_params": None, "tokenizer_class": None,
}  # fmt: skip
OF_TRAINING = dict.fromkeys(
    (
        "drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate",
        "attn_drop_rate", "drop_path_rate", "rope_shift_coords", "rope_jitter_coords",
        "rope_rescale_coords",
    ),
    0.1,
)  # fmt: skip
VIT, TIMM, CLIP = "own_names_of_3", "four_channels", "clip_classifier"
ROPE = {"rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}}


@pytest.mark.parametrize(
    ("name", "changes", "table"),
    [
        (VIT, OF_VERSION_4, None),
        (VIT, {"num_labels": 3, "rope_shift": 0.1, "not_set": None}, None),
        (CLIP, {"text_config_dict": None, "direct_kd": False}, None),
        (CLIP, {"dropout": 0.0} | OF_VERSION_4, "vision_config"),
        (TIMM, OF_TRAINING | {"qk_norm": False, "proj_bias": True}, "model_args"),
        (TIMM, {"label_offset": 0, "paper_name": "ViT"}, "pretrained_cfg"),
        # Null changes nothing outside the table that is used.
        (TIMM, {"mean": None, "std": None}, None),
        (CLIP, {"qkv_bias": None, "layer_norm_eps": None}, None),
        ("timm_wrapper", {"torch_dtype": "float32", "use_cache": True}, None),
        ("dinov2_transformers", {"layerscale_value": 1, "drop_path_rate": 0.3}, None),
        ("dinov3_transformers", ROPE | {"rope_scaling": None, "not_set": None}, None),
        # Earlier versions wrote the table at the top.
        (TIMM, settings_of(TIMM)["pretrained_cfg"] | {"pretrained_cfg": ...}, None),
    ],
)
def test_a_field_that_changes_nothing_is_passed_over(name, changes, table, changed):
    found, expected = zoo.read(changed(name, changes, table)), zoo.read(folder_of(name))
    assert (found.config, found.head) == (expected.config, expected.head)
    assert (found.pooling, found.grid_size) == (expected.pooling, expected.grid_size)


def test_a_second_table_of_a_tower_says_the_same(changed, refused):
    tower = settings_of(CLIP)["vision_config"]
    names = ("hidden_size", "num_attention_heads", "patch_size")
    again = {name: tower[name] for name in names}
    folder = changed(CLIP, again, "vision_config_dict")
    assert zoo.read(folder).config == zoo.read(folder_of(CLIP)).config
    changed(CLIP, {"hidden_act": "gelu"}, "vision_config_dict")
    refused(folder, "vision_config say different things, hidden_act")


def test_settings_of_another_network_do_not_matter_beside_released_names(
    goldens, tmp_path
):
    shutil.copy(goldens / "token.npz", tmp_path / "model.npz")
    (tmp_path / "config.json").write_text('{"model_type": "sam"}')
    assert zoo.read(tmp_path).classes == 10


NOTES = ["natively QuickGELU, use quickgelu model variant for original results"]


@pytest.mark.parametrize("notes", [NOTES, NOTES[0]])
def test_notes_of_quick_gelu_are_passed_on(notes, changed):
    folder = changed("clip_timm", {"notes": notes}, "pretrained_cfg")
    told = "trained with quick GELU, and timm's vit_"
    with pytest.warns(UserWarning, match=told) as record:
        found = zoo.read(folder)
    assert record[0].filename == __file__
    # It is timm's number all the same.
    assert found.config == zoo.read(folder_of("clip_timm")).config
    quick = changed("clip_quickgelu_timm", {"notes": notes}, "pretrained_cfg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert zoo.read(quick).config.activation == "quick_gelu"
        own = zoo.ViTConfig(activation="quick_gelu")
        assert zoo.read(folder, semantics=own).config.activation == "quick_gelu"


def test_every_field_of_the_libraries_is_accounted_for(timm, transformers):
    types = [*zoo.libraries.transformers._TYPES]
    for kind, own in transformers(peer_models.fields_of_transformers, types).items():
        assert set(own) <= zoo.libraries.transformers.FIELDS.keys(), kind
    own = set(timm(peer_models.fields_of_timm))
    assert own <= zoo.libraries.timm.FIELDS["pretrained_cfg"].keys()

"""Fields of settings that nobody knows, and those that change nothing."""

import json
import pathlib
import shutil

import pytest

import zoo

TESTS = pathlib.Path(__file__).parents[2]
VIT = TESTS / "cases" / "own_names_of_3"
TIMM = TESTS / "goldens" / "peers" / "four_channels"
WRAPPED = TESTS / "goldens" / "peers" / "timm_wrapper"
CLIP = TESTS / "goldens" / "peers" / "clip_classifier"
# What transformers 4 wrote of every model.
OF_VERSION_4 = {
    "_name_or_path": "somewhere/vit", "_commit_hash": None, "_num_labels": 3,
    "add_cross_attention": False, "bad_words_ids": None, "begin_suppress_tokens": None,
    "bos_token_id": None, "chunk_size_feed_forward": 0,
    "cross_attention_hidden_size": None, "decoder_start_token_id": None,
    "diversity_penalty": 0.0, "do_sample": False, "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0, "eos_token_id": None,
    "exponential_decay_length_penalty": None, "finetuning_task": None,
    "forced_bos_token_id": None, "forced_eos_token_id": None,
    "gradient_checkpointing": False, "is_decoder": False, "is_encoder_decoder": False,
    "length_penalty": 1.0, "max_length": 20, "min_length": 0,
    "no_repeat_ngram_size": 0, "num_beam_groups": 1, "num_beams": 1,
    "num_return_sequences": 1, "output_attentions": False,
    "output_hidden_states": False, "output_scores": False, "pad_token_id": None,
    "prefix": None, "problem_type": None, "pruned_heads": {},
    "remove_invalid_values": False, "repetition_penalty": 1.0, "return_dict": True,
    "return_dict_in_generate": False, "sep_token_id": None, "suppress_tokens": None,
    "task_specific_params": None, "temperature": 1.0, "tf_legacy_loss": False,
    "tie_encoder_decoder": False, "tie_word_embeddings": True, "tokenizer_class": None,
    "top_k": 50, "top_p": 1.0, "torch_dtype": "float32", "torchscript": False,
    "transformers_version": "4.40.0", "typical_p": 1.0, "use_bfloat16": False,
    "use_cache": True, "xla_device": None,
}  # fmt: skip
OF_TRAINING = (
    "drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate",
    "attn_drop_rate", "drop_path_rate", "rope_shift_coords", "rope_jitter_coords",
    "rope_rescale_coords",
)  # fmt: skip


@pytest.fixture
def changed(tmp_path):
    """Returns a function that copies a folder, with other settings."""

    def make(folder, change):
        copy = tmp_path / "model"
        shutil.copytree(folder, copy)
        settings = json.loads((copy / "config.json").read_text())
        change(settings)
        (copy / "config.json").write_text(json.dumps(settings))
        return copy

    return make


def inside(name, fields):
    return lambda settings: settings[name].update(fields)


def at_the_top(fields):
    return lambda settings: settings.update(fields)


def refused(folder, *told):
    with pytest.raises(zoo.CheckpointError) as error:
        zoo.read(folder)
    text = str(error.value)
    assert len(text.splitlines()) <= 2
    for part in (str(folder / "config.json"), *told):
        assert part in text


@pytest.mark.parametrize(
    ("folder", "change"),
    [
        (VIT, at_the_top(OF_VERSION_4)),
        (VIT, at_the_top({"num_labels": 3, "rope_shift": 0.1, "not_set": None})),
        (CLIP, at_the_top({"text_config_dict": None, "direct_kd": False})),
        (CLIP, inside("vision_config", {"dropout": 0.0} | OF_VERSION_4)),
        (TIMM, inside("model_args", dict.fromkeys(OF_TRAINING, 0.1))),
        (TIMM, inside("model_args", {"qk_norm": False, "proj_bias": True})),
        (TIMM, inside("pretrained_cfg", {"label_offset": 0, "paper_name": "ViT"})),
        (WRAPPED, at_the_top({"torch_dtype": "float32", "use_cache": True})),
    ],
)
def test_a_field_that_changes_nothing_is_passed_over(folder, change, changed):
    found, expected = zoo.read(changed(folder, change)), zoo.read(folder)
    assert (found.config, found.head) == (expected.config, expected.head)
    assert found.grid_size == expected.grid_size


def test_settings_of_one_file_of_earlier_versions_are_read(changed):
    def flat(settings):
        settings.update(settings.pop("pretrained_cfg"))

    assert zoo.read(changed(TIMM, flat)).config == zoo.read(TIMM).config


def test_a_second_table_of_a_tower_says_the_same(changed, tmp_path):
    tower = json.loads((CLIP / "config.json").read_text())["vision_config"]
    names = ("hidden_size", "num_attention_heads", "patch_size")
    again = {"vision_config_dict": {name: tower[name] for name in names}}
    folder = changed(CLIP, at_the_top(again))
    assert zoo.read(folder).config == zoo.read(CLIP).config
    settings = json.loads((folder / "config.json").read_text())
    settings["vision_config_dict"]["hidden_act"] = "gelu"
    (folder / "config.json").write_text(json.dumps(settings))
    refused(folder, "different hidden_act")

"""Files of other libraries give their numbers, and are written back."""

import json
import shutil

import keras
import numpy as np
import peer_goldens
import peer_models
import pytest
from families import (
    FAMILIES,
    LARGER,
    TOKENS,
    arrays_of,
    assert_close,
    computed,
    each,
)
from harness import normal, randomize

import keras_vit
import zoo
from zoo.containers import safetensors
from zoo.network.released_names import BLOCK, RELATIVE_BIAS

# Files are read without masks, decoders and the towers of texts.
LEFT_OUT = ("mask_token", "decoder.", "text_", "logit_", "temperature")
# Classifiers read the mean of the tokens, and a pooling or a norm lies beside it.
UNUSED = {
    "siglip_classifier_transformers": "vision_model.head.",
    "clip_classifier": "vision_model.post_layernorm.",
    "metaclip_2_classifier": "vision_model.post_layernorm.",
}
# They are written as another class, or with biases that blocks share in each block.
WRITTEN_AS_ANOTHER = (
    "altclip_both", "naflex_gap_timm", "beit_shared_transformers",
    "beit_positions_transformers",
)  # fmt: skip
# Settings imply these fields for names of timm, which the written names do not.
NOT_IMPLIED = {"radio": {"position_resizing"}}


@each(larger=LARGER)
def test_numbers_are_those_of_the_library(family):
    for options, photos, answer in family.checks():
        model = family.load(**options)
        assert model.input_shape == (None, *photos.shape[1:])
        if "patch_size" in options:
            assert model.get_layer("embedding").patch_size == (*options["patch_size"],)
        assert_close(computed(model, photos), answer)


@each(larger=[name for name in LARGER if LARGER[name].library == "big_vision"])
def test_files_are_written_back_to_the_bit(family, tmp_path):
    checkpoint, path = zoo.read(family.path), tmp_path / "model.safetensors"
    if family.library == "big_vision":
        zoo.write(path.with_suffix(".npz"), checkpoint)
        again = zoo.read(path.with_suffix(".npz"))
        np.testing.assert_equal(dict(again.arrays), dict(checkpoint.arrays))
        return
    zoo.write(path, checkpoint, naming=family.library)
    if family.library == "transformers":
        assert is_of_two_towers(tmp_path) <= is_of_two_towers(family.path)
    ours = arrays_of(path)
    if family.name not in WRITTEN_AS_ANOTHER:
        assert_same_arrays(ours, arrays_of(family.path / path.name), family.name)
    # By its header, and by the settings alone, as files of the library are read.
    for again in (zoo.read(path), written_anew(path, ours)):
        other = again.config.differences(checkpoint.config)
        assert other.keys() <= NOT_IMPLIED.get(family.name, set())
        assert again.pooling == checkpoint.pooling
        assert again.grid_size == checkpoint.grid_size
        assert again.shapes == checkpoint.shapes


def is_of_two_towers(folder):
    """Returns whether settings of transformers have those for images in a table."""
    return "vision_config" in json.loads((folder / "config.json").read_text())


def assert_same_arrays(ours, theirs, name):
    """Ours have the names and numbers of all that theirs compute images with."""
    unused = UNUSED.get(name, "-")
    theirs = {
        key: array
        for key, array in theirs.items()
        if not any(part in key for part in LEFT_OUT) and unused not in key
    }
    # Without its decoder or texts, what is left is saved by another class.
    prefixes = ("", "vit.", "vision_encoder.", "vision_model.", "timm_model.")
    ours = {key: array for key, array in ours.items() if unused not in key}
    prefix = next(
        prefix for prefix in prefixes if {prefix + key for key in ours} <= theirs.keys()
    )
    assert {prefix + key for key in ours} == theirs.keys()
    for key, array in ours.items():
        np.testing.assert_array_equal(array, theirs[prefix + key], err_msg=key)


def written_anew(path, arrays):
    """Reads arrays by the settings beside them, without a header of ours."""
    safetensors.write(path, arrays)
    return zoo.read(path.parent)


def test_the_libraries_write_these_models(timm, transformers, tmp_path):
    timm(peer_goldens.main, tmp_path)
    assert {folder.name for folder in tmp_path.iterdir()} == FAMILIES.keys()
    for name, family in FAMILIES.items():
        found = np.load(tmp_path / name / "expected.npz")
        for part, answer in np.load(family.path / "expected.npz").items():
            np.testing.assert_allclose(found[part], answer, rtol=1e-6, atol=1e-7)


@each(sorted(FAMILIES.keys() - {"siglip2_naflex_transformers", "adapted_channels"}))
def test_the_library_computes_with_what_is_written(
    family, timm, transformers, tmp_path
):
    checkpoint = zoo.read(family.path)
    zoo.write(tmp_path / "model.safetensors", checkpoint, naming=family.library)
    _, photos, answer = family.checks()[0]
    if family.library == "timm":
        inputs = checkpoint.config.input_mean, checkpoint.config.input_std
        images = (photos / 255).astype("float32")
        assert_close(
            timm(peer_models.load_timm_folder, tmp_path, images, *inputs), answer
        )
    else:
        outputs = transformers(peer_models.load_transformers, tmp_path, photos / 255)
        tokens = outputs.get("last_hidden_state", np.zeros((2, 2, 1)))
        outputs |= {"class token": tokens[:, 0], "mean": tokens[:, 1:].mean(1)}
        masks = [outputs[name] for name in outputs if name.endswith("_queries_logits")]
        masks = [one.reshape(len(photos), -1) for one in masks]
        outputs["masks"] = np.concatenate([np.zeros((len(photos), 0)), *masks], axis=1)
        found = [one for one in outputs.values() if one.shape == answer.shape]
        assert (
            min(np.abs(one - answer).max() for one in found)
            < 2e-5 * np.abs(answer).max()
        )


def test_a_hybrids_first_kernel_is_adapted_to_other_channels():
    family = FAMILIES["hybrid_not_square"]
    model = family.load(channels=6)
    # Twice the channels at half the size each: standardised kernels keep their scale.
    kernel = zoo.read(family.path).arrays["conv_root/kernel"]
    found = keras.ops.convert_to_numpy(model.get_layer("conv_root").kernel)
    np.testing.assert_array_equal(found, np.concatenate([kernel, kernel], axis=2) / 2)


# Files that were changed

TABLE = "attn.relative_position_bias_table"


@pytest.fixture
def changed(tmp_path):
    """Returns a function that copies a golden with other settings and arrays."""

    def make(name, settings=lambda settings: None, arrays=lambda arrays: arrays):
        folder = tmp_path / name
        shutil.copytree(FAMILIES[name].path, folder, dirs_exist_ok=True)
        found = json.loads((folder / "config.json").read_text())
        settings(found)
        (folder / "config.json").write_text(json.dumps(found))
        path = folder / "model.safetensors"
        safetensors.write(path, arrays(arrays_of(path)))
        return folder

    return make


def renamed(change):
    """Changes the names of arrays; None leaves one out."""
    return lambda arrays: {
        change(key): array for key, array in arrays.items() if change(key) is not None
    }


def without(*parts):
    return renamed(lambda key: None if any(part in key for part in parts) else key)


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("deit3_timm", without(".ls1.", ".ls2."), "224, with layer_scale True .the ar"),
        ("deit3_timm", without(".0.ls2."), r"missing blocks\.0\.ls2\.gamma"),
        ("dinov2_transformers", without("layer_scale"), "'dinov2', with layer_scale"),
        (
            "dinov3_plus_timm",
            without("0.mlp.fc1_x.bias"),
            "blocks.0.mlp.fc1.bias needs 2",
        ),
        (
            "eva02_base_timm",
            without("0.attn.k_proj"),
            "missing a part of blocks.0.attn.qkv.w",
        ),
        ("beit_timm", without(f"0.{TABLE}"), rf"missing blocks\.0\.{TABLE}"),
        ("beit_timm", without(TABLE), "biases .those of each block. .the arrays have"),
        ("beit_timm", without(".gamma_"), "layer_scale True .the arrays have F"),
        ("beit_timm", without(".q_bias", ".v_bias"), "qkv_bias 'query and value' .the"),
        ("miil", renamed("a.vision.{}".format), "every key begins with .*a.vision"),
    ],
)
def test_another_network_is_refused_by_name(name, arrays, message, changed):
    with pytest.raises(zoo.CheckpointError, match=message):
        zoo.read(changed(name, arrays=arrays))


@pytest.mark.parametrize("own", [False, True])
def test_biases_that_all_blocks_share_are_in_each(own, changed):
    """As BEiT's fine-tuning has them; with those of a block they add up."""
    tables = arrays_of(FAMILIES["beit_timm"].path / "model.safetensors")
    tables = [tables[f"blocks.{block}.{TABLE}"] for block in range(2)]
    shared = normal(tables[0].shape)

    def arrays(rows=None):
        return lambda found: {
            "rel_pos_bias.relative_position_bias_table": shared[:rows],
            **(found if own else without(TABLE)(found)),
        }

    def said(settings):
        settings["model_args"] |= {"use_rel_pos_bias": own}
        settings["model_args"] |= {"use_shared_rel_pos_bias": True}

    with pytest.raises(zoo.CheckpointError, match="one table for all"):
        zoo.read(changed("beit_timm", arrays=arrays()))
    found = zoo.read(changed("beit_timm", said, arrays())).arrays
    for block, table in enumerate(tables):
        key = f"{BLOCK}_{block}/MultiHeadDotProductAttention_1/{RELATIVE_BIAS}"
        np.testing.assert_array_equal(found[key], shared + table if own else shared)
    if own:
        with pytest.raises(zoo.CheckpointError, match="unknown rel_pos_bias"):
            zoo.read(changed("beit_timm", said, arrays(-2)))


def test_nothing_is_assigned_from_another_family():
    model = FAMILIES["deit3_timm"].load(include_top=False)
    for name in ("dinov2_transformers", "dino_transformers", "deit_timm"):
        with pytest.raises(zoo.CheckpointError, match="another architecture"):
            keras_vit.load_released_weights(model, FAMILIES[name].path)


@pytest.mark.parametrize(
    "name", ["dinov3_timm", "eva02_base_timm", "sbb_reg4_gap_timm"]
)
def test_the_pooling_that_settings_leave_out_follows_from_the_name(name, changed):
    folder = changed(name, lambda settings: settings.update(global_pool=None))
    assert zoo.read(folder).pooling == zoo.read(FAMILIES[name].path).pooling


@pytest.mark.parametrize("name", ["miil", "radio", "hybrid_not_square"])
def test_the_input_size_of_timm_says_a_grid_that_is_not_square(name, changed):
    folder = changed(name, lambda settings: settings["model_args"].pop("img_size"))
    assert zoo.read(folder).grid_size == (4, 6)


def pool_nothing(settings):
    settings["global_pool"] = settings["model_args"]["global_pool"] = ""


def test_timms_head_on_every_token_is_refused(changed):
    def at_the_top(settings):
        pool_nothing(settings)
        del settings["model_args"]["global_pool"]

    for settings in (at_the_top, pool_nothing):
        with pytest.raises(zoo.CheckpointError, match="global_pool='' with a head"):
            zoo.read(changed("miil", settings))


def test_without_a_head_timm_may_leave_the_pooling_out(changed):
    folder = changed("miil", pool_nothing, without("head."))
    model = keras_vit.load_model(folder, **TOKENS)
    assert model.output_shape == (None, 25, 16)  # as timm: all tokens


def test_a_wrapped_model_of_timm_has_the_arguments_of_its_name(changed):
    folder = changed(
        "timm_wrapper_features", lambda settings: settings.update(model_args=None)
    )
    with pytest.raises(zoo.CheckpointError, match="3 attention heads"):
        zoo.read(folder)


@pytest.mark.parametrize(
    "key",
    [
        "module.{}", "_orig_mod.{}", "model.{}", "state_dict.{}", "net.{}",
        "module._orig_mod.{}", "_fsdp_wrapped_module.{}", "teacher.backbone.{}",
    ],
)  # fmt: skip
def test_what_trainers_put_before_every_key_is_left_out_with_one_line(key, changed):
    folder = changed("vit_msn", arrays=renamed(key.format))
    with pytest.warns(UserWarning, match="in its keys, which a trainer put") as seen:
        found = zoo.read(folder)
    (message,) = (str(one.message) for one in seen)
    assert "\n" not in message
    for part in key.split(".")[:-1]:
        assert f"'{part}.'" in message
    expected = zoo.read(FAMILIES["vit_msn"].path)
    assert (found.shapes, found.config) == (expected.shapes, expected.config)


def test_a_compiled_part_is_read_as_the_part(changed):
    compiled = renamed(lambda key: key.replace("layer.1.", "layer.1._orig_mod."))
    with pytest.warns(UserWarning, match="'_orig_mod.' in its keys"):
        found = zoo.read(changed("vit_msn", arrays=compiled))
    assert found.shapes == zoo.read(FAMILIES["vit_msn"].path).shapes


# transformers 5 has DINOv2 in memory with these names, and writes files with others.
IN_MEMORY = {
    "encoder.layer.": "layers.",
    ".attention.attention.query.": ".attention.q_proj.",
    ".attention.attention.key.": ".attention.k_proj.",
    ".attention.attention.value.": ".attention.v_proj.",
    ".attention.output.dense.": ".attention.o_proj.",
}


def test_a_state_of_transformers_5_is_read_as_its_file(changed):
    def as_in_memory(key):
        for of_file, of_memory in IN_MEMORY.items():
            key = key.replace(of_file, of_memory)
        return key

    found = zoo.read(changed("dinov2_transformers", arrays=renamed(as_in_memory)))
    expected = zoo.read(FAMILIES["dinov2_transformers"].path)
    assert found.shapes == expected.shapes
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)


@pytest.mark.parametrize(
    ("name", "epsilon"), [("deit_timm", 1e-6), ("dino_transformers", 1e-12)]
)
def test_arrays_alone_are_the_plain_network_of_the_library(name, epsilon, tmp_path):
    path = tmp_path / "state.npz"
    np.savez(path, **arrays_of(FAMILIES[name].path / "model.safetensors"))
    with pytest.raises(zoo.CheckpointError, match="heads: pass num_heads=N"):
        zoo.read(path)
    found = zoo.read(path, num_heads=2)
    assert found.config.activation == "gelu"
    assert found.config.layer_norm_epsilon == epsilon
    assert found.shapes == zoo.read(FAMILIES[name].path).shapes


def test_arrays_alone_of_a_hybrid_are_timms(tmp_path):
    family = FAMILIES["hybrid_not_square"]
    arrays = arrays_of(family.path / "model.safetensors")
    arrays["pos_embed"] = arrays["pos_embed"][:, :17]
    np.savez(tmp_path / "state.npz", **arrays)
    found = zoo.read(tmp_path / "state.npz", num_heads=2).semantics
    assert found.computed == zoo.read(family.path).semantics.computed


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("deit3_timm", "layer_scale"),
        ("dinov2_reg4_timm", "num_registers"),
        ("sbb_reg4_gap_timm", "norm_after_pooling"),
        ("clip_timm", "norm_before_blocks"),
        ("miil", "qkv_bias"),
        ("deit_distilled_timm", "distillation_token"),
    ],
)
def test_arrays_alone_do_not_tell_other_networks(name, reason, tmp_path):
    path = tmp_path / "state.npz"
    np.savez(path, **arrays_of(FAMILIES[name].path / "model.safetensors"))
    with pytest.raises(zoo.CheckpointError, match=reason):
        zoo.read(path, num_heads=2)


# Networks without a final norm


WITH_NORM = {"use_post_transformer_norm": True}


def test_networks_without_a_final_norm(tmp_path):
    """Of a small Perception Encoder, whose patches have no bias."""
    config = zoo.ViTConfig(
        **{"hidden_size": 24, "num_layers": 2, "num_heads": 2, "mlp_dim": 48},
        **{"patch_size": 8, "activation": "gelu", "layer_norm_epsilon": 1e-5},
        **{"norm_before_blocks": True, "rotary": "perception", "rotary_grid": (2, 2)},
        **{"final_norm": False, "layer_scale": 0.5, "position_resizing": "bicubic"},
    )
    headless = {"include_top": False, "pooling": "gap"}
    model = keras_vit.VisionTransformer(config, image_size=16, **headless)
    randomize(model)
    model.get_layer("embedding").bias.assign(np.zeros(24))
    path, released = tmp_path / "model.safetensors", tmp_path / "released.safetensors"
    keras_vit.save_released_weights(model, released)
    keras_vit.save_released_weights(model, path, naming="timm")
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["architecture"] == "vit_pe_spatial_gigantic_patch14_448"
    arrays = arrays_of(path)
    assert not {"norm.weight", "fc_norm.weight"} & arrays.keys()
    assert {"blocks.0.gamma_1", "blocks.0.attn.qkv.bias"} <= arrays.keys()
    safetensors.write(path, arrays)  # without the header that is ours
    images = normal((1, 16, 16, 3))
    for source in (released, path):
        again = keras_vit.load_model(source, include_top=False)
        np.testing.assert_allclose(again(images), model(images), rtol=1e-5, atol=1e-6)
    with pytest.raises(zoo.CheckpointError, match="cannot say .*final_norm=False"):
        keras_vit.save_released_weights(model, tmp_path / "model.npz")
    for parts, said, message in (
        (("weight", "bias"), {}, "final_norm False .the arrays have True"),
        (("weight",), {}, "missing norm.bias"),
        ((), WITH_NORM, "missing norm.weight"),
        ((), WITH_NORM | {"use_fc_norm": True}, "use_fc_norm beside"),
    ):
        norm = {f"norm.{part}": np.ones(24) for part in parts}
        safetensors.write(path, arrays | norm)
        asked = settings | {"model_args": settings["model_args"] | said}
        (tmp_path / "config.json").write_text(json.dumps(asked))
        with pytest.raises(zoo.CheckpointError, match=message):
            zoo.read(path)

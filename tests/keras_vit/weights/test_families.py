"""Files of other families: what their library computes, to 2e-5 of the largest value.

The cases are small random models in the files that timm, transformers and big_vision
write, with what these compute, every tensor random (`../shared/goldens_families`).
"""

import json
import pathlib
import shutil

import keras
import numpy as np
import peer_models
import pytest
from harness import normal

import keras_vit
import zoo
from keras_vit.explain import one_pass
from zoo.files import safetensors
from zoo.released_names import BLOCK, RELATIVE_BIAS

FOLDER = pathlib.Path(__file__).parents[4] / "shared" / "goldens_families"
INDEX = FOLDER / "index.json"
TOLERANCE = 2e-5
CASES = json.loads(INDEX.read_text())["cases"] if INDEX.is_file() else []
# What is left out of a file: masks, decoders and the towers of texts.
LEFT_OUT = ("mask_token", "decoder.", "text_", "logit_", "temperature")
# A classifier of SigLIP reads the mean, and the attention pooling lies beside it.
UNUSED = {"siglip_classifier_transformers": "vision_model.head."}
# Written as the network for images of one size that it is, since nothing in it tells.
WRITTEN_AS_ANOTHER = ("naflex_gap_timm",)
OPTIONS = {
    "tokens": {"include_top": False, "pooling": None},
    "features": {"include_top": False},
    "logits": {},
}

pytestmark = pytest.mark.skipif(
    not CASES, reason=f"{FOLDER} is not there, which has the files of other libraries"
)


def each(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["name"])


def path_of(case):
    folder = FOLDER / case["name"]
    return folder if folder.is_dir() else folder.with_suffix(".npz")


def expected_of(case):
    return np.load(FOLDER / f"{case['name']}.expected.npz")


def check(model, expected, what, part=""):
    images = expected[f"{part}images_uint8"].astype("float32") / 127.5 - 1
    found = keras.ops.convert_to_numpy(model(images))
    wanted = expected[part + what]
    assert found.shape == wanted.shape
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert error <= TOLERANCE, (what, part, error)


@each(CASES)
def test_numbers_are_those_of_the_library(case):
    expected = expected_of(case)
    for what, options in OPTIONS.items():
        if what not in expected:
            continue
        model = keras_vit.load_model(path_of(case), **options)
        check(model, expected, what)
        resized = keras_vit.at_image_size(model, case["resized_image_size"])
        check(resized, expected, what, "resized_")


@each([case for case in CASES if not case["name"].startswith("beit")])
def test_one_model_for_images_of_all_sizes(case):
    expected = expected_of(case)
    # What follows from all others.
    what = [what for what in OPTIONS if what in expected][-1]
    options = OPTIONS[what]
    model = keras_vit.load_model(path_of(case), image_size=(None, None), **options)
    assert model.input_shape == (None, None, None, 3)
    predictor = keras_vit.Predictor(model)
    fixed = keras_vit.load_model(path_of(case), **options)
    resized = keras_vit.at_image_size(fixed, case["resized_image_size"])
    for part, one in (("", fixed), ("resized_", resized)):
        check(model, expected, what, part)
        images = expected[f"{part}images_uint8"].astype("float32") / 127.5 - 1
        wanted = keras.ops.convert_to_numpy(one(images))
        again = keras_vit.at_image_size(model, images.shape[1:3])(images)
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(again), wanted)
        for found in (keras.ops.convert_to_numpy(model(images)), predictor(images)):
            assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()


@each([case for case in CASES if "other_patch" in case])
def test_a_patch_size_chosen_when_loading(case):
    expected, other = expected_of(case), case["other_patch"]
    for what, options in OPTIONS.items():
        model = keras_vit.load_model(path_of(case), **options, **other)
        assert model.get_layer("embedding").patch_size == tuple(other["patch_size"])
        check(model, expected, what, "patch_")


def arrays_of(path):
    file = safetensors.Safetensors(path)
    return {key: np.asarray(file.check(key)) for key in file.keys}


WRITTEN_BACK = [
    case
    for case in CASES
    if path_of(case).is_dir() and case["name"] not in WRITTEN_AS_ANOTHER
]


@each(WRITTEN_BACK)
def test_files_are_written_back_to_the_bit(case, tmp_path):
    checkpoint, path = zoo.read(path_of(case)), tmp_path / "model.safetensors"
    zoo.write(path, checkpoint, naming=case["library"])
    theirs = {
        key: array
        for key, array in arrays_of(path_of(case) / path.name).items()
        if not any(part in key for part in LEFT_OUT)
        and not key.startswith(UNUSED.get(case["name"], "-"))
    }
    ours = arrays_of(path)
    # Without its decoder or texts, what is left is saved by another class.
    prefixes = ("", "vit.", "vision_encoder.", "vision_model.")
    prefix = next(
        prefix for prefix in prefixes if {prefix + key for key in ours} <= theirs.keys()
    )
    assert {prefix + key for key in ours} == theirs.keys()
    for key, array in ours.items():
        np.testing.assert_array_equal(array, theirs[prefix + key], err_msg=key)
    # By its header, and by the settings alone, as files of the library are read.
    for again in (path, tmp_path):
        found = zoo.read(again)
        assert (found.config, found.pooling) == (checkpoint.config, checkpoint.pooling)
        assert found.grid_size == checkpoint.grid_size
        assert found.shapes == checkpoint.shapes
        safetensors.write(path, ours)


@each([case for case in CASES if case["library"] == "timm"])
def test_timm_computes_with_what_is_written(case, timm, tmp_path):
    zoo.write(tmp_path / "model.safetensors", zoo.read(path_of(case)), naming="timm")
    expected = expected_of(case)
    images, as_they_are = expected["images"], {"mean": [0.0] * 3, "std": [1.0] * 3}
    images = images.transpose(0, 2, 3, 1)
    found = timm(peer_models.load_timm_folder, tmp_path, images, **as_they_are)
    wanted = expected["logits" if "logits" in expected else "features"]
    assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


BEITS = {
    "in each block": {"use_relative_position_bias": True},
    "shared": {"use_shared_relative_position_bias": True},
    "both": {
        "use_relative_position_bias": True,
        "use_shared_relative_position_bias": True,
    },
    "with learned positions": {
        "use_relative_position_bias": True,
        "use_absolute_position_embeddings": True,
    },
    "class token, no LayerScale": {
        "use_relative_position_bias": True,
        "use_mean_pooling": False,
        "layer_scale_init_value": 0.0,
    },
}


@pytest.mark.parametrize("kind", BEITS)
def test_beits_of_transformers(kind, transformers, tmp_path):
    """At two sizes; what is written for it computes the same there."""
    theirs, ours = (tmp_path / name for name in ("theirs", "ours"))
    ours.mkdir()
    images = {size: normal((1, *size, 3)) for size in ((32, 32), (40, 56))}
    expected = transformers(
        peer_models.save_beit, theirs, list(images.values()), **BEITS[kind]
    )
    model = keras_vit.load_model(theirs)
    for size, wanted in zip(images, expected, strict=True):
        for same in (
            keras_vit.at_image_size(model, size),
            keras_vit.load_model(theirs, image_size=size),
        ):
            found = keras.ops.convert_to_numpy(same(images[size]))
            assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()
    path = keras_vit.save_released_weights(
        model, ours / "model.safetensors", naming="transformers"
    )
    assert zoo.read(path).pooling == zoo.read(theirs).pooling
    again = transformers(peer_models.run_beit, ours, list(images.values()))
    for found, wanted in zip(again, expected, strict=True):
        assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


@each([case for case in CASES if case["library"] == "big_vision"])
def test_files_of_big_vision_are_written_as_released(case, tmp_path):
    checkpoint, path = zoo.read(path_of(case)), tmp_path / "model.npz"
    zoo.write(path, checkpoint)
    found = zoo.read(path).arrays
    assert found.keys() == checkpoint.arrays.keys()
    for key in found:
        np.testing.assert_array_equal(found[key], checkpoint.arrays[key])


def named(name):
    return next(case for case in CASES if case["name"] == name)


def changed(tmp_path, name, config=None, without=(), rename=None):
    """A copy of a case with other settings or arrays."""
    source = path_of(named(name))
    arrays = arrays_of(source / "model.safetensors")
    arrays = {
        (rename or {}).get(key, key): array
        for key, array in arrays.items()
        if not any(part in key for part in without)
    }
    safetensors.write(tmp_path / "model.safetensors", arrays)
    settings = json.loads((source / "config.json").read_text()) | (config or {})
    (tmp_path / "config.json").write_text(json.dumps(settings))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "deit3_timm",
            {"without": (".ls1.", ".ls2.")},
            r"deit3_base_patch16_224, with layer_scale True .the arrays have False",
        ),
        ("deit3_timm", {"without": (".0.ls2.",)}, r"missing blocks\.0\.ls2\.gamma"),
        (
            "dinov2_transformers",
            {"without": ("layer_scale",)},
            "'dinov2', with layer_scale True .the arrays have False",
        ),
        (
            "dinov2_transformers",
            {"rename": {"layernorm.weight": "norm.weight"}},
            r"unknown norm\.weight",
        ),
        ("dinov3_plus_timm", {"without": ("0.mlp.fc1_x.bias",)}, "0.mlp.fc1_g.bias"),
        (
            "eva02_base_timm",
            {"without": ("0.attn.k_proj",)},
            "unknown blocks.0.attn.q_",
        ),
        (
            "beit_timm",
            {"without": ("0.attn.relative_position_bias_table",)},
            r"missing blocks\.0\.attn\.relative_position_bias_table",
        ),
        (
            "beit_timm",
            {"without": ("relative_position_bias_table",)},
            "biases .those of each block. .the arrays have .none",
        ),
        ("beit_timm", {"without": (".gamma_",)}, "layer_scale True .the arrays have F"),
        (
            "beit_timm",
            {"without": (".q_bias", ".v_bias")},
            "qkv_bias 'query and value' .the arrays have False",
        ),
    ],
)
def test_another_network_is_refused_by_name(name, change, message, tmp_path):
    with pytest.raises(zoo.CheckpointError, match=message):
        zoo.read(changed(tmp_path, name, **change))


@pytest.mark.parametrize("own", [False, True])
def test_biases_that_all_blocks_share_are_in_each(own, tmp_path):
    """As BEiT's fine-tuning has them; with those of a block they add up."""
    folder = changed(tmp_path, "beit_timm")
    path = folder / "model.safetensors"
    arrays, name = arrays_of(path), "attn.relative_position_bias_table"
    tables = [arrays[f"blocks.{block}.{name}"] for block in range(2)]
    if not own:
        arrays = {key: array for key, array in arrays.items() if name not in key}
    shared = normal(tables[0].shape)
    safetensors.write(
        path, arrays | {"rel_pos_bias.relative_position_bias_table": shared}
    )
    with pytest.raises(zoo.CheckpointError, match="one table for all"):
        zoo.read(folder)
    said = {"use_rel_pos_bias": own, "use_shared_rel_pos_bias": True}
    settings = json.loads((folder / "config.json").read_text())
    settings["model_args"] |= said
    (folder / "config.json").write_text(json.dumps(settings))
    found = zoo.read(folder).arrays
    for block, table in enumerate(tables):
        name = f"{BLOCK}_{block}/MultiHeadDotProductAttention_1/{RELATIVE_BIAS}"
        np.testing.assert_array_equal(found[name], shared + table if own else shared)
    if own:
        shared = {"rel_pos_bias.relative_position_bias_table": shared[:-2]}
        safetensors.write(path, arrays | shared)
        with pytest.raises(zoo.CheckpointError, match="unknown rel_pos_bias"):
            zoo.read(folder)


def test_nothing_is_assigned_from_another_family():
    model = keras_vit.load_model(path_of(named("deit3_timm")), include_top=False)
    before = [np.asarray(weight) for weight in model.weights]
    for name in ("dinov2_transformers", "dino_transformers", "deit_timm"):
        with pytest.raises(
            zoo.CheckpointError, match="another architecture.*positions"
        ):
            keras_vit.load_released_weights(model, path_of(named(name)))
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(np.asarray(weight), value)


def test_what_explain_shows_is_without_registers():
    case = named("dinov2_reg4_transformers")
    model, expected = keras_vit.load_model(path_of(case), include_top=False), None
    expected = expected_of(case)
    images = expected["images_uint8"].astype("float32") / 127.5 - 1
    maps = keras_vit.explain.attention_maps(model, images)
    np.testing.assert_allclose(maps, expected["attention"], atol=2e-5)
    shown = keras_vit.explain.patch_map(maps, (4, 4), num_registers=4)
    wanted = expected["attention"][..., 0, 5:].reshape(2, 2, 3, 4, 4)
    np.testing.assert_allclose(shown, wanted, atol=2e-5)
    with pytest.raises(ValueError, match="num_registers where there are some"):
        keras_vit.explain.patch_map(maps, (4, 4))
    features = keras_vit.explain.token_features(model, images)
    tokens = expected["tokens"]
    np.testing.assert_allclose(features.class_token, tokens[:, 0], atol=1e-4)
    wanted = tokens[:, 5:].reshape(2, 4, 4, -1)
    np.testing.assert_allclose(features.patches, wanted, atol=1e-4)
    received = one_pass.inspect(model, images).received
    assert received.shape == (2, 2, 4, 4)
    quantized = keras_vit.quantize_weights(model)
    assert np.abs(np.asarray(quantized(images)) - expected["features"]).max() < 0.1


@pytest.mark.parametrize(
    "name",
    [
        "dinov2_reg4_classifier_transformers",
        "deit_distilled_timm",
        "so150m2_reg1_gap_timm",
        "eva02_base_timm",
        "pe_core_timm",
        "beit_timm",
        "beit_transformers",
    ],
)
def test_a_model_keeps_what_it_computes_in_files(name, tmp_path):
    case = named(name)
    model, expected = keras_vit.load_model(path_of(case)), expected_of(case)
    path = tmp_path / "model.safetensors"
    keras_vit.save_released_weights(model, path)
    check(keras_vit.load_model(path), expected, "logits")
    resized = keras_vit.at_image_size(
        keras_vit.load_model(path), case["resized_image_size"]
    )
    check(resized, expected, "logits", "resized_")
    model.save(tmp_path / "model.keras")
    again = keras_vit.at_image_size(
        keras.saving.load_model(tmp_path / "model.keras"),
        case["resized_image_size"],
    )
    check(again, expected, "logits", "resized_")
    with pytest.raises(zoo.CheckpointError, match="an .npz cannot say|would be read"):
        keras_vit.save_released_weights(model, tmp_path / "model.npz")


def test_what_the_settings_leave_out_follows_from_the_name(tmp_path):
    for name in ("dinov3_timm", "eva02_base_timm", "sbb_reg4_gap_timm"):
        folder = with_settings(name, None, {"global_pool": None}, tmp_path / name)
        assert zoo.read(folder).pooling == zoo.read(path_of(named(name))).pooling


def without_norm(tmp_path, layer_scale=False):
    """Writes a small Perception Encoder without a final norm, as timm does."""
    config = zoo.ViTConfig(
        **{"hidden_size": 24, "num_layers": 2, "num_heads": 2, "mlp_dim": 48},
        **{"patch_size": 8, "activation": "gelu", "layer_norm_epsilon": 1e-5},
        **{"norm_before_blocks": True, "rotary": "perception", "rotary_grid": (2, 2)},
        **{"final_norm": False, "layer_scale": layer_scale},
        position_resizing="bicubic",
    )
    model = keras_vit.VisionTransformer(
        config, image_size=16, include_top=False, pooling="gap"
    )
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    # Perception Encoder's patches have no bias.
    model.get_layer("embedding").bias.assign(np.zeros(24))
    path = tmp_path / "model.safetensors"
    keras_vit.save_released_weights(model, path, naming="timm")
    return model, path


@pytest.mark.parametrize("layer_scale", [False, True])
def test_networks_without_a_final_norm(layer_scale, tmp_path):
    model, path = without_norm(tmp_path, layer_scale)
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["architecture"] == "vit_pe_spatial_gigantic_patch14_448"
    arrays = arrays_of(path)
    assert not {"norm.weight", "fc_norm.weight"} & arrays.keys()
    assert ("blocks.0.gamma_1" in arrays) == layer_scale
    assert "blocks.0.attn.qkv.bias" in arrays
    images = np.random.default_rng(1).uniform(-1, 1, (1, 16, 16, 3))
    released = tmp_path / "released.safetensors"
    keras_vit.save_released_weights(model, released)
    safetensors.write(path, arrays)  # without the header that is ours
    for source in (released, path):
        again = keras_vit.load_model(source, include_top=False)
        np.testing.assert_allclose(again(images), model(images), rtol=1e-5)
    with pytest.raises(zoo.CheckpointError, match="cannot say .*final_norm=False"):
        keras_vit.save_released_weights(model, tmp_path / "model.npz")


def test_a_final_norm_is_there_or_not_as_the_settings_say(tmp_path):
    _, path = without_norm(tmp_path)
    arrays = arrays_of(path)
    norm = {f"norm.{part}": np.ones(24) for part in ("weight", "bias")}
    for wrong, message in (
        (norm, "final_norm False .the arrays have True"),
        ({"norm.weight": np.ones(24)}, "missing norm.bias"),
    ):
        safetensors.write(path, arrays | wrong)
        with pytest.raises(zoo.CheckpointError, match=message):
            zoo.read(path)
    safetensors.write(path, arrays)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["model_args"] |= {"use_post_transformer_norm": True}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(zoo.CheckpointError, match="missing norm.weight"):
        zoo.read(path)
    settings["model_args"] |= {"use_fc_norm": True}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(zoo.CheckpointError, match="use_fc_norm beside"):
        zoo.read(path)


def with_settings(name, part, changes, folder):
    """Copies a case with other settings."""
    shutil.copytree(path_of(named(name)), folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (config if part is None else config[part]).update(changes)
    (folder / "config.json").write_text(json.dumps(config))
    return folder

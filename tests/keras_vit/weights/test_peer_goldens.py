"""The same networks under other types, names and fields: what their library computes.

The models are those of `peer_goldens`, which timm and transformers have made.
"""

import json
import pathlib
import shutil
import warnings

import keras
import numpy as np
import peer_goldens
import peer_models
import pytest

import keras_vit
import zoo
from zoo.files import safetensors

FOLDER = pathlib.Path(__file__).parents[2] / "goldens" / "peers"
SHARED = pathlib.Path(__file__).parents[4] / "shared" / "cases" / "checkpoints"
TOLERANCE = 2e-5
TRANSFORMERS = tuple(peer_goldens.TRANSFORMERS)
TIMM = (*peer_goldens.TIMM, *peer_goldens.WRAPPED)
needs_cases = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"{SHARED} is not there, which has the files"
)


def computed(model, photos):
    return keras.ops.convert_to_numpy(model(photos.astype("float32") / 127.5 - 1))


def check(found, wanted):
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


def test_the_libraries_write_these_models(timm, transformers, tmp_path):
    timm(peer_goldens.main, tmp_path)
    names = sorted(folder.name for folder in tmp_path.iterdir())
    assert names == sorted(folder.name for folder in FOLDER.iterdir())
    for name in names:
        found, kept = (np.load(f / name / "expected.npz") for f in (tmp_path, FOLDER))
        for key in kept:
            np.testing.assert_allclose(found[key], kept[key], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", (*TRANSFORMERS, *TIMM))
def test_numbers_are_those_of_the_library(name):
    expected = np.load(FOLDER / name / "expected.npz")
    photos = expected["photos"]
    has_head = zoo.read(FOLDER / name).classes is not None
    options = {"include_top": has_head, "image_size": photos.shape[1:3]}
    model = keras_vit.load_model(FOLDER / name, **options)
    check(computed(model, photos), expected["answer"])


@pytest.mark.parametrize("name", (*TRANSFORMERS, *TIMM))
def test_they_are_written_back_and_read_by_their_settings_alone(name, tmp_path):
    checkpoint, path = zoo.read(FOLDER / name), tmp_path / "model.safetensors"
    naming = "transformers" if name in TRANSFORMERS else "timm"
    zoo.write(path, checkpoint, naming=naming)
    file = safetensors.Safetensors(path)
    arrays = {key: np.asarray(file.check(key)) for key in file.keys}
    del file
    safetensors.write(path, arrays)  # without the header of ours
    found = zoo.read(tmp_path)
    other = found.config.differences(checkpoint.config)
    # Of timm's names, those of RADIO alone imply its rule of resizing.
    assert other.keys() == ({"position_resizing"} if name == "radio" else set())
    assert found.pooling == checkpoint.pooling
    assert found.grid_size == checkpoint.grid_size
    assert found.shapes == checkpoint.shapes
    for key in checkpoint.arrays:
        np.testing.assert_array_equal(found.arrays[key], checkpoint.arrays[key], key)


@pytest.mark.parametrize("name", TIMM)
def test_timm_computes_with_what_is_written(name, timm, tmp_path):
    expected = np.load(FOLDER / name / "expected.npz")
    checkpoint = zoo.read(FOLDER / name)
    zoo.write(tmp_path / "model.safetensors", checkpoint, naming="timm")
    inputs = checkpoint.config.input_mean, checkpoint.config.input_std
    photos = (expected["photos"] / 255).astype("float32")
    check(
        timm(peer_models.load_timm_folder, tmp_path, photos, *inputs),
        expected["answer"],
    )


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_computes_with_what_is_written(name, transformers, tmp_path):
    expected = np.load(FOLDER / name / "expected.npz")
    path = tmp_path / "model.safetensors"
    zoo.write(path, zoo.read(FOLDER / name), naming="transformers")
    found = transformers(
        peer_models.load_transformers_class, tmp_path, expected["photos"] / 255
    )
    tokens = found.get("last_hidden_state")
    what = {"vit_msn": "token", "data2vec": "mean"}.get(name)
    if what == "token":
        check(tokens[:, 0], expected["answer"])
    elif what == "mean":
        check(tokens[:, 1:].mean(1), expected["answer"])
    else:
        outputs = ("logits", "image_embeds", "pooler_output")
        check(next(found[o] for o in outputs if o in found), expected["answer"])


@pytest.mark.parametrize("channels", peer_goldens.ADAPTED["adapted_channels"][1])
def test_weights_of_three_channels_are_adapted_as_timm_does(channels):
    expected = np.load(FOLDER / "adapted_channels" / "expected.npz")
    photos = expected[f"photos_{channels}"]
    model = keras_vit.load_model(FOLDER / "adapted_channels", channels=channels)
    assert model.input_shape[-1] == channels
    check(computed(model, photos), expected[f"answer_{channels}"])


def test_a_hybrids_first_kernel_is_adapted_to_other_channels():
    path = FOLDER / "hybrid_not_square"
    model = keras_vit.load_model(path, channels=6)
    photos = np.load(path / "expected.npz")["photos"]
    # Twice the channels at half the size each: standardised kernels keep their scale.
    kernel = zoo.read(path).arrays["conv_root/kernel"]
    found = keras.ops.convert_to_numpy(model.get_layer("conv_root").kernel)
    np.testing.assert_array_equal(found, np.concatenate([kernel, kernel], axis=2) / 2)
    assert computed(model, np.concatenate([photos, photos], axis=-1)).shape == (2, 5)


@needs_cases
@pytest.mark.parametrize(
    "name",
    [
        "data2vec", "dinov3_other_theta", "dinov3_without_registers", "metaclip_2",
        "prefix_of_a_trainer", "timm_wrapper", "vit_msn", "vit_pooler",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*a trainer put there")
def test_files_of_public_reports_give_their_librarys_numbers(name):
    expected = np.load(SHARED / name / "expected.npz")
    what = "logits" if "logits" in expected else "features"
    model = keras_vit.load_model(SHARED / name, include_top=what == "logits")
    check(computed(model, expected["photos"]), expected[what])


@needs_cases
def test_a_pooler_is_computed_with_the_representation_size_of_its_file():
    expected = np.load(SHARED / "vit_pooler" / "expected.npz")
    size = zoo.read(SHARED / "vit_pooler").representation_size
    model = keras_vit.load_model(
        SHARED / "vit_pooler", include_top=False, representation_size=size
    )
    check(computed(model, expected["photos"]), expected["pooled"])


@needs_cases
def test_tokens_of_clip_before_its_last_norm_are_the_librarys():
    folder = SHARED.parents[1] / "goldens_families"
    expected = np.load(folder / "clip_transformers.expected.npz")
    model = keras_vit.load_model(folder / "clip_transformers", include_top=False)
    check(computed(model, expected["images_uint8"]), expected["features"])
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").input)
    check(computed(tokens, expected["images_uint8"]), expected["tokens_before_norm"])


def test_the_input_size_of_timm_says_a_grid_that_is_not_square(tmp_path):
    for name in ("miil", "radio", "hybrid_not_square"):
        folder = shutil.copytree(FOLDER / name, tmp_path / name)
        config = json.loads((folder / "config.json").read_text())
        del config["model_args"]["img_size"]
        (folder / "config.json").write_text(json.dumps(config))
        assert config["pretrained_cfg"]["input_size"] == [3, 16, 24]
        assert zoo.read(folder).grid_size == (4, 6)


@pytest.mark.parametrize("place", ["top", "arguments"])
def test_timms_head_on_every_token_is_refused(place, tmp_path):
    shutil.copytree(FOLDER / "miil", tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    if place == "top":
        del config["model_args"]["global_pool"]
        config["global_pool"] = ""
    else:
        config["model_args"]["global_pool"] = ""
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(zoo.CheckpointError, match="global_pool='' with a head"):
        zoo.read(tmp_path)


def test_without_a_head_timm_may_leave_the_pooling_out(tmp_path):
    checkpoint = zoo.read(FOLDER / "miil").without_head()
    zoo.write(tmp_path / "model.safetensors", checkpoint, naming="timm")
    file = safetensors.Safetensors(tmp_path / "model.safetensors")
    arrays = {key: np.asarray(file.check(key)) for key in file.keys}
    del file
    safetensors.write(tmp_path / "model.safetensors", arrays)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model_args"]["global_pool"] = config["global_pool"] = ""
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = {"include_top": False, "pooling": None}
    model = keras_vit.load_model(tmp_path, **options)
    assert model.output_shape == (None, 25, 16)  # as timm: all tokens


def test_a_base_of_rotary_positions_holds_at_every_size_and_when_saved(tmp_path):
    expected = np.load(FOLDER / "dinov3_theta" / "expected.npz")
    photos, options = expected["photos"], {"include_top": False}
    any_size = keras_vit.load_model(
        FOLDER / "dinov3_theta", image_size=(None, None), **options
    )
    check(computed(any_size, photos), expected["answer"])
    predictor = keras_vit.Predictor(any_size, engine="onnxruntime")
    check(predictor(photos.astype("float32") / 127.5 - 1), expected["answer"])
    keras_vit.at_image_size(any_size, photos.shape[1:3]).save(tmp_path / "a.keras")
    again = keras.saving.load_model(tmp_path / "a.keras")
    check(computed(again, photos), expected["answer"])
    assert again.get_layer("encoder_block_0").positions.base == 30.0
    path = keras_vit.save_released_weights(again, tmp_path / "model.safetensors")
    assert zoo.read(path).config.rotary_base == 30.0


def with_prefix(prefix, folder):
    """Returns the MSN golden with a prefix before every key, in a folder."""
    file = safetensors.Safetensors(FOLDER / "vit_msn" / "model.safetensors")
    folder.mkdir()
    arrays = {prefix + key: np.asarray(file.check(key)) for key in file.keys}
    safetensors.write(folder / "model.safetensors", arrays)
    for name in ("config.json", "preprocessor_config.json"):
        shutil.copy(FOLDER / "vit_msn" / name, folder)
    return folder


@pytest.mark.parametrize(
    "prefix",
    [
        "module.", "_orig_mod.", "model.", "state_dict.", "module._orig_mod.", "net.",
        "_fsdp_wrapped_module.", "model.module.", "teacher.backbone.",
    ],
)  # fmt: skip
def test_what_trainers_put_before_every_key_is_left_out_with_one_line(prefix, tmp_path):
    folder = with_prefix(prefix, tmp_path / "a")
    with pytest.warns(UserWarning, match="in its keys, which a trainer put") as seen:
        found = zoo.read(folder)
    assert len(seen) == 1
    for part in prefix.rstrip(".").split("."):
        assert f"'{part}.'" in str(seen[0].message)
    assert len(str(seen[0].message).splitlines()) == 1
    expected = zoo.read(FOLDER / "vit_msn")
    assert found.shapes == expected.shapes
    assert found.config == expected.config


def test_a_compiled_part_is_read_as_the_part(tmp_path):
    folder = with_prefix("", tmp_path / "a")
    path = folder / "model.safetensors"
    file = safetensors.Safetensors(path)
    arrays = {
        key.replace("layer.1.", "layer.1._orig_mod."): np.asarray(file.check(key))
        for key in file.keys
    }
    del file
    assert any("_orig_mod" in key for key in arrays)
    safetensors.write(path, arrays)
    with pytest.warns(UserWarning, match="'_orig_mod.' in its keys"):
        found = zoo.read(folder)
    assert found.shapes == zoo.read(FOLDER / "vit_msn").shapes


def test_an_unknown_prefix_of_every_key_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    file = safetensors.Safetensors(FOLDER / "miil" / "model.safetensors")
    arrays = {f"a.vision.{key}": np.asarray(file.check(key)) for key in file.keys}
    safetensors.write(path, arrays)
    with pytest.raises(zoo.CheckpointError, match="every key begins with .*a.vision"):
        zoo.read(path)


def test_without_a_trainers_prefix_nothing_is_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in TRANSFORMERS:
            zoo.read(FOLDER / name)


def test_a_wrapped_model_of_timm_without_arguments_is_read(tmp_path):
    shutil.copytree(FOLDER / "timm_wrapper_features", tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    arguments, config["model_args"] = config["model_args"], None
    (tmp_path / "config.json").write_text(json.dumps(config))
    heads = arguments["num_heads"]
    with pytest.raises(zoo.CheckpointError, match="3 attention heads"):
        zoo.read(tmp_path)  # those of the name
    assert heads != 3

import dataclasses
import json
import pathlib

import numpy as np
import pytest

import zoo
from zoo import released_names
from zoo.files import names, reading, safetensors, timm
from zoo.files.comparison import Shown
from zoo.released_names import BLOCK

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
SHARED = pathlib.Path(__file__).parents[4] / "shared"
INDEX = json.loads((GOLDENS / "index.json").read_text())
MODELS = [name for name, entry in INDEX.items() if "hidden_size" in entry]
PLAIN = ("token", "gap", "non_square")


def golden(name="token"):
    return zoo.read(GOLDENS / f"{name}.npz")


def grid(name):
    return (4, 7) if name == "non_square" else None


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def write(folder, name="token", naming="timm", **kwargs):
    path = folder / "model.safetensors"
    zoo.write(path, golden(name).arrays, grid(name), naming=naming, **kwargs)
    return path


def header(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    table = json.loads(content[8 : 8 + length])
    # Checksums would see every change first.
    for name in ("keras_vit_crc32", "keras_vit_header_crc32"):
        table["__metadata__"].pop(name, None)
    return table, content[8 + length :]


def with_header(path, table, data):
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


class TestNames:
    """The table of names."""

    @pytest.mark.parametrize("column", names.Row._fields)
    def test_no_name_is_there_twice(self, column):
        if column == "axes":
            return
        found = [getattr(row, column) for row in names.TABLE if getattr(row, column)]
        assert len(found) == len(set(found))

    def test_every_released_array_is_there(self):
        for name in MODELS:
            for released in golden(name).arrays:
                assert names.foreign_name("timm", released), released

    def test_arrays_of_another_feature_are_rows_of_a_table(self, monkeypatch):
        shapes = golden().shapes
        names = [f"{BLOCK}_{block}/Gate_0/scale" for block in range(3)]
        scales = dict.fromkeys(names, (48,))
        assert released_names.measure(shapes | scales)[1][0] == f"unknown {names[0]}"
        rows = {"Gate_0/scale": ("hidden_size",)}
        table = released_names.OPTIONAL_BLOCK_ARRAYS
        monkeypatch.setitem(table, "gate", rows)
        assert released_names.measure(shapes)[1] == []
        assert released_names.measure(shapes | scales)[1] == []
        assert released_names.features(scales) == {"gate"}
        del scales[names[1]]
        assert released_names.measure(shapes | scales)[1] == [f"missing {names[1]}"]

    @pytest.mark.parametrize("number", ["01", "-1", "x", ""])
    def test_other_numbers_are_unknown(self, number):
        arrays = {f"blocks.{number}.norm1.weight": np.zeros(3, "float32")}
        assert names.to_released("timm", arrays, 1)[1][0].startswith("unknown blocks")


class TestRoundTrips:
    """What is written is read back to the last bit."""

    @pytest.mark.parametrize(
        ("name", "naming"),
        [(name, "released") for name in MODELS]
        + [(name, "timm") for name in PLAIN]
        + [(name, "transformers") for name in PLAIN],
    )
    def test_safetensors(self, name, naming, tmp_path):
        said = zoo.ViTConfig.released(
            activation="gelu", layer_norm_epsilon=1e-6, input_mean=(0.1, 0.2, 0.3)
        )
        path = write(tmp_path, name, naming, semantics=said)
        again = zoo.read(path)
        assert_same(again.arrays, golden(name).arrays)
        assert again.semantics == said
        assert again.num_heads == golden(name).num_heads
        assert again.grid_size == golden(name).grid_size or again.grid_size == (4, 7)
        zoo.write(tmp_path / "back.safetensors", again)
        assert_same(zoo.read(tmp_path / "back.safetensors").arrays, golden(name).arrays)

    @pytest.mark.parametrize("name", MODELS)
    def test_every_golden_through_timms_names(self, name):
        checkpoint = golden(name)
        theirs = names.from_released("timm", checkpoint.arrays, checkpoint.num_heads)
        found, problems = names.to_released("timm", theirs, checkpoint.num_heads)
        assert not problems
        found = {key: np.asarray(part) for key, part in found.items()}
        assert_same(found, dict(checkpoint.arrays))

    def test_the_pooler_of_transformers(self, tmp_path):
        arrays = dict(golden("pre_logits").arrays)
        with pytest.raises(zoo.CheckpointError, match="pre_logits before its head"):
            zoo.write(tmp_path / "model.safetensors", arrays, naming="transformers")
        del arrays["head/kernel"], arrays["head/bias"]
        path = tmp_path / "model.safetensors"
        zoo.write(path, arrays, naming="transformers")
        assert "pooler.dense.weight" in header(path)[0]
        assert_same(zoo.read(path).arrays, arrays)
        with pytest.raises(zoo.CheckpointError, match="timm has no model with pre_log"):
            zoo.write(path, arrays, naming="timm")

    @pytest.mark.parametrize(
        "network",
        [
            {"rotary": "dinov3"},
            {"rotary": "eva", "rotary_grid": (2, 2)},
            {"layer_norm_epsilon": 1e-12},
        ],
    )
    def test_a_network_that_timm_has_not_is_not_written(self, network, tmp_path):
        said = zoo.ViTConfig.released(activation="gelu")
        said = dataclasses.replace(said, **network)
        told = f"no network like this: .*{[*network][0]} .*, not"
        with pytest.raises(zoo.CheckpointError, match=told):
            write(tmp_path, "token", "timm", semantics=said)

    def test_without_our_header_the_settings_say_the_same(self, tmp_path):
        for naming in reading.WRITTEN:
            said = zoo.ViTConfig.released(
                activation="gelu_tanh", input_std=(0.1, 0.2, 0.3)
            )
            path = write(tmp_path, "token", naming, semantics=said)
            table, data = header(path)
            table["__metadata__"] = {"format": "pt"}
            again = zoo.read(with_header(path, table, data))
            assert again.num_heads == 3
            assert again.grid_size == (4, 4)
            assert again.semantics.computed == said.computed
            assert_same(again.arrays, golden().arrays)

    def test_real_weights(self, tmp_path):
        name = "ViT-Ti_16-augreg-imagenet21k+imagenet2012-224.npz"
        path = SHARED / "weights" / name
        if not path.exists():
            pytest.skip(f"needs the real weights {path}")
        released = zoo.read(path)
        for naming in reading.WRITTEN:
            zoo.write(tmp_path / "model.safetensors", released, naming=naming)
            assert_same(zoo.read(tmp_path).arrays, released.arrays)


class TestWriting:
    """What cannot be said is refused."""

    @pytest.mark.parametrize(
        ("name", "naming", "semantics", "message"),
        [
            ("hybrid_stem", "transformers", {}, "no hybrid"),
            ("hybrid_stem", "timm", {}, "no hybrid with stages"),
            ("token", "timm", {"layer_norm_epsilon": 1e-12}, "layer_norm_epsilon"),
            ("token", "flax", {}, "unknown naming 'flax'"),
        ],
    )
    def test_other_models(self, name, naming, semantics, message, tmp_path):
        with pytest.raises(zoo.CheckpointError, match=message):
            write(tmp_path, name, naming, semantics=zoo.ViTConfig.released(**semantics))
        assert list(tmp_path.iterdir()) == []

    def test_other_names(self, tmp_path):
        for naming, file in (("timm", "a.safetensors"), ("transformers", "a.npz")):
            with pytest.raises(zoo.CheckpointError, match="must be model.safetensors"):
                zoo.write(tmp_path / file, golden(), naming=naming)

    def test_an_npz_says_nothing_but_arrays(self, tmp_path):
        said = zoo.ViTConfig.released(activation="gelu")
        with pytest.raises(zoo.CheckpointError, match="activation='gelu'.*safetensors"):
            zoo.write(tmp_path / "a.npz", golden().arrays, semantics=said)

    def test_a_failing_write_leaves_the_old_files(self, tmp_path, monkeypatch):
        path = write(tmp_path)
        before = {file: file.read_bytes() for file in tmp_path.iterdir()}

        def full(path, *_):
            pathlib.Path(path).write_text("half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(safetensors, "write", full)
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path, naming="transformers")
        assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
        assert path in before


class TestSafetensors:
    """The container."""

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
    def test_what_the_library_writes(self, dtype, tmp_path):
        library = pytest.importorskip("safetensors.numpy")
        ml_dtypes = pytest.importorskip("ml_dtypes")
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        arrays = dict(golden().arrays)
        arrays["head/bias"] = arrays["head/bias"].astype(kind)
        path = tmp_path / "a.safetensors"
        library.save_file(arrays, path)
        if dtype == "float64":
            with pytest.raises(zoo.CheckpointError, match="head/bias has dtype"):
                zoo.read(path)
            return
        found = zoo.read(path).arrays
        np.testing.assert_array_equal(
            found["head/bias"], arrays["head/bias"].astype("float32")
        )
        np.testing.assert_array_equal(found["cls"], arrays["cls"])

    def test_what_the_library_reads(self, tmp_path):
        library = pytest.importorskip("safetensors")
        path = write(tmp_path, naming="released")
        with library.safe_open(path, "numpy") as file:
            assert set(file.keys()) == golden().arrays.keys()
            for name, array in golden().arrays.items():
                np.testing.assert_array_equal(file.get_tensor(name), array)
            assert file.metadata()["format"] == "pt"

    def test_arrays_are_read_when_they_are_asked_for(self, tmp_path):
        path = write(tmp_path)
        checkpoint = zoo.read(path)
        assert checkpoint.shapes == golden().shapes
        path.write_bytes(b"other")
        with pytest.raises(zoo.CheckpointError, match="changed while"):
            checkpoint.arrays["cls"]


class TestSettings:
    """The files beside the arrays."""

    def settings(self, tmp_path, naming, change):
        """Our header taken away and a setting changed."""
        path = write(tmp_path, "token", naming)
        table, data = header(path)
        del table["__metadata__"]
        with_header(path, table, data)
        config = json.loads((tmp_path / "config.json").read_text())
        for name, value in change.items():
            if isinstance(value, dict):
                config[name] |= value
            else:
                config[name] = value
        (tmp_path / "config.json").write_text(json.dumps(config))
        return path

    @pytest.mark.parametrize(
        ("naming", "change", "message"),
        [
            ("transformers", {"model_type": "dinov2"}, "type 'dinov2'"),
            ("transformers", {"hidden_act": "relu"}, "hidden_act 'relu'"),
            ("transformers", {"hidden_size": 64}, r"64 .the arrays have 48"),
            (
                "transformers",
                {"num_attention_heads": 5},
                "hidden size 48, which is not a multiple of the 5 attention heads that "
                "its header or settings say",
            ),
            ("transformers", {"num_attention_heads": "3"}, "write a whole number"),
            ("transformers", {"layer_norm_eps": -1}, "write a number above 0"),
            ("transformers", {"image_size": 224}, r"grid of .28, 28. patches"),
            ("timm", {"architecture": "deit3_base_patch16_224"}, "deit3_base"),
            ("timm", {"num_features": 64}, r"64 .the arrays have 48"),
            ("timm", {"model_args": {"act_layer": "relu"}}, "act_layer='relu'"),
            ("timm", {"model_args": {"norm_layer": "rmsnorm"}}, "norm_layer"),
            ("timm", {"model_args": {"global_pool": "avg"}}, "norm_after_pooling True"),
            ("timm", {"model_args": {"global_pool": "max"}}, "global_pool='max'"),
            ("timm", {"model_args": []}, "write a table"),
        ],
    )
    def test_that_ask_for_something_else(self, naming, change, message, tmp_path):
        path = self.settings(tmp_path, naming, change)
        with pytest.raises(zoo.CheckpointError, match=message):
            zoo.read(path)

    def test_that_are_no_json(self, tmp_path):
        path = self.settings(tmp_path, "timm", {})
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(zoo.CheckpointError, match="config.json cannot be read"):
            zoo.read(path)

    def test_that_are_of_something_else_are_left_alone(self, tmp_path):
        path = self.settings(tmp_path, "timm", {})
        (tmp_path / "config.json").write_text('{"recipe": 1}')
        found = zoo.read(path, num_heads=3).semantics
        assert found.computed == zoo.ViTConfig.released(activation="gelu").computed
        assert found.position_resizing == "bicubic"

    def test_heads_that_nothing_tells(self, tmp_path):
        path = self.settings(tmp_path, "timm", {})
        (tmp_path / "config.json").unlink()
        with pytest.raises(zoo.CheckpointError, match="heads: pass num_heads=N, or"):
            zoo.read(path)
        assert zoo.read(path, num_heads=3).num_heads == 3
        with pytest.raises(
            zoo.CheckpointError, match="size 48, .* 5 .* num_heads says"
        ):
            zoo.read(path, num_heads=5)

    @pytest.mark.parametrize(
        ("architecture", "heads"),
        [("vit_base_patch16_gap_224", 16), ("vit_base_patch16_224", 12)],
    )
    def test_heads_that_only_the_name_tells(self, tmp_path, architecture, heads):
        config = {"architecture": architecture}
        (tmp_path / "config.json").write_text(json.dumps(config))
        base = zoo.VARIANTS["ViT-B_16"]
        features = {"positions", "query_and_value_bias", "key_bias"}
        features |= set() if "gap" in architecture else {"class_token"}
        layout = released_names.layout(12, None, features)
        sizes = {"hidden_size": 768, "patch_height": 16, "patch_width": 16}
        said = timm.Timm().describe(tmp_path, Shown(layout, sizes))
        assert (said.config.num_heads or base.num_heads) == heads

    def test_semantics_in_place_of_what_is_said(self, tmp_path):
        path = self.settings(tmp_path, "timm", {})
        found = zoo.read(path, semantics=zoo.ViTConfig.released()).semantics
        assert found.computed == zoo.ViTConfig.released().computed

    def test_positions_without_the_class_tokens(self, tmp_path):
        path = self.settings(tmp_path, "timm", {})
        theirs = names.from_released("timm", golden().arrays, 3)
        theirs["pos_embed"] = theirs["pos_embed"][:, 1:]
        safetensors.write(path, theirs)
        config = json.loads((tmp_path / "config.json").read_text())
        config["model_args"]["no_embed_class"] = True
        (tmp_path / "config.json").write_text(json.dumps(config))
        checkpoint = zoo.read(path)
        assert checkpoint.config.tokens_with_positions == "patches"
        assert checkpoint.grid_size == (4, 4)
        table = checkpoint.arrays["Transformer/posembed_input/pos_embedding"]
        np.testing.assert_array_equal(table, theirs["pos_embed"])
        with pytest.raises(zoo.CheckpointError, match="tokens_with_positions='patches"):
            zoo.write(
                tmp_path / "a.npz", checkpoint, semantics=zoo.ViTConfig.released()
            )
        (tmp_path / "config.json").unlink()
        with pytest.raises(zoo.CheckpointError, match="16 positions are a square grid"):
            zoo.read(path, num_heads=3)

    def test_folders(self, tmp_path):
        with pytest.raises(zoo.CheckpointError, match="a folder with 0 of model.safe"):
            zoo.read(tmp_path)
        write(tmp_path)
        assert_same(zoo.read(tmp_path).arrays, golden().arrays)


class TestProblems:
    """Arrays are called as their library calls them."""

    def test_missing_unknown_and_misshapen(self, tmp_path):
        theirs = names.from_released("timm", golden().arrays, 3)
        del theirs["blocks.1.attn.qkv.bias"]
        theirs["blocks.2.attn.qkv.bias"] = np.float32(0)
        theirs["extra"] = np.zeros(3, "float32")
        theirs["norm.weight"] = np.zeros((2, 48), "float32")
        path = tmp_path / "a.npz"
        np.savez(path, **theirs)
        with pytest.raises(zoo.CheckpointError) as error:
            zoo.read(path)
        message = str(error.value)
        assert "under the names of timm" in message
        assert message.count("missing blocks.1.attn.qkv.bias") == 1
        assert "unknown extra" in message
        assert "blocks.2.attn.qkv.bias has shape ()" in message
        assert "(2, 48)" in message


class TestOtherNetworks:
    """Those that are alike are called by what they have and ours have not."""

    @pytest.mark.parametrize(
        ("library", "key", "reason"),
        [
            ("timm", "blocks.0.attn.q_norm.weight", "normalises queries and keys"),
            ("timm", "blocks.0.attn.rel_pos.bias", "positions are not learned"),
            ("transformers", "decode_head.classifier.weight", "segments images"),
        ],
    )
    def test_are_refused(self, library, key, reason, tmp_path):
        known = {
            "timm": "patch_embed.proj.weight",
            "transformers": "embeddings.patch_embeddings.projection.weight",
        }
        array = np.zeros(3, "float32")
        np.savez(tmp_path / "a.npz", **{known[library]: array, key: array})
        with pytest.raises(zoo.CheckpointError, match=reason) as error:
            zoo.read(tmp_path / "a.npz")
        assert f"the names of {library}" in str(error.value)
        # What follows from it would only hide it.
        assert "missing" not in str(error.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_are_not_written(value, tmp_path):
    arrays = dict(golden().arrays)
    arrays["cls"] = np.full((1, 1, 48), value, "float32")
    with pytest.raises(zoo.CheckpointError, match="cls holds NaN or infinity"):
        zoo.write(tmp_path / "a.npz", arrays)
    assert list(tmp_path.iterdir()) == []


def test_nan_in_the_last_of_many_blocks_is_found(tmp_path):
    numbers = np.zeros(100_000)
    numbers[-1] = np.nan
    safetensors.write(tmp_path / "a.safetensors", {"a": numbers})
    file = safetensors.Safetensors(tmp_path / "a.safetensors")
    with pytest.raises(zoo.CheckpointError, match="NaN or infinity under 'a'"):
        file.check("a")


@pytest.mark.parametrize(
    "change",
    [
        {"activation": "relu"},
        {"layer_norm_epsilon": 0.0},
        {"layer_norm_epsilon": True},
        {"input_mean": 0.5},
        {"input_mean": ()},
        {"input_std": (0.5, 0.5, 0.0)},
        {"input_std": (0.5, 0.5)},
        {"resnet_padding": "valid"},
        {"resnet_epsilons": "torch"},
    ],
)
def test_semantics_that_are_not(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        zoo.ViTConfig.released(**change)

import json
import pathlib

import numpy as np
import pytest
from peer_files import assert_same, folder_of

import zoo
from zoo.containers import safetensors

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
INDEX = json.loads((GOLDENS / "index.json").read_text())
MODELS = [name for name, entry in INDEX.items() if "hidden_size" in entry]
POSITION = "Transformer/posembed_input/pos_embedding"
BLOCK = "Transformer/encoderblock_1"
ATTENTION = f"{BLOCK}/MultiHeadDotProductAttention_1"


def load(name):
    with np.load(GOLDENS / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def save(path, arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_those_of_the_configuration(name):
    entry, found = INDEX[name], zoo.read(GOLDENS / f"{name}.npz")
    sizes = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "classes")
    for size in (*sizes, "representation_size", "resnet_width"):
        assert getattr(found, size) == entry[size]
    assert found.patch_size == (entry["patch_size"],) * 2
    assert found.class_token == (entry["classifier"] == "token")
    stages = entry["resnet_stages"]
    assert found.resnet_stages == (None if stages is None else tuple(stages))


@pytest.mark.parametrize("name", ["dialect_linen", "dialect_opt_target"])
def test_dialects_hold_the_same_arrays(name):
    assert_same(zoo.read(GOLDENS / f"{name}.npz").arrays, load("token"))


def test_top_level_position_embedding():
    got = dict(zoo.read(GOLDENS / "dialect_top_level_position.npz").arrays)
    expected = load("token")
    # Only the sum of the class token and its position is determined.
    for arrays in (got, expected):
        arrays["cls"] = arrays["cls"] + arrays[POSITION][:, :1]
        arrays[POSITION] = arrays[POSITION][:, 1:]
    assert_same(got, expected)


def test_top_level_position_embedding_without_class_token(tmp_path):
    arrays, expected = load("gap"), load("gap")
    arrays["pos_embedding"] = arrays.pop(POSITION)
    assert_same(zoo.read(save(tmp_path / "a.npz", arrays)).arrays, expected)


def test_biases_of_offsets_tell_a_square_grid():
    found = zoo.read(folder_of("beit_timm"))
    again = zoo.Checkpoint("", found.arrays, None, found.config, found.pooling)
    assert (again.grid_size, again.num_positions) == ((4, 4), 16)


def test_image_tower_of_a_two_tower_model(tmp_path):
    arrays = {f"params/img/{key}": value for key, value in load("token").items()}
    texts = ("params/txt/head/kernel", "params/t", "params/b", "opt/0/count")
    arrays |= dict.fromkeys(texts, np.float32(10))
    path = save(tmp_path / "a.npz", arrays)
    assert_same(zoo.read(path).arrays, load("token"))
    arrays["params/temperature"] = np.float32(1)
    with pytest.raises(zoo.CheckpointError, match="unknown params/temperature"):
        zoo.read(save(path, arrays))


@pytest.mark.parametrize("prefix", ["", "params/"])
def test_stacked_blocks(tmp_path, prefix):
    arrays = {prefix + key: array for key, array in load("dialect_linen").items()}
    block = f"{prefix}Transformer/encoderblock"
    for first in [key for key in arrays if f"{block}_0/" in key]:
        keys = [first.replace("block_0", f"block_{number}") for number in range(3)]
        stacked = np.stack([arrays.pop(key) for key in keys])
        arrays[first.replace("block_0", "block")] = stacked
    path = save(tmp_path / "a.npz", arrays)
    assert_same(zoo.read(path).arrays, load("token"))
    bias = f"{block}/LayerNorm_0/bias"
    arrays[bias] = arrays[bias][:2]
    with pytest.raises(zoo.CheckpointError, match="missing.*_2/LayerNorm_0/bias"):
        zoo.read(save(path, arrays))


# Changes of goldens, and what is told of them: arrays whose names begin so are taken
# out (None), have another shape or other numbers.
STAGES = "hybrid_three_stages"
WRONG = [
    ("token", {f"{ATTENTION}/query/bias": None}, f"missing {ATTENTION}/query/bias"),
    ("token", {f"{BLOCK}/LayerNorm_2/scale": None}, f"missing {BLOCK}/LayerNorm_2/sca"),
    ("token", {"Transformer/encoder_norm/bias": None}, "missing Transformer/encoder_n"),
    ("token", {POSITION: None}, f"missing {POSITION}"),
    ("token", {"embedding/kernel": None}, "missing embedding/kernel"),
    ("token", {"head/bias": None}, "missing head/bias"),
    ("pre_logits", {"pre_logits/kernel": None}, "missing pre_logits/kernel"),
    ("hybrid_stem", {"gn_root/scale": None}, "missing gn_root/scale"),
    (STAGES, {"block1/unit2/gn3/bias": None}, "missing block1/unit2/gn"),
    (STAGES, {"block3/unit1/conv_proj": None}, "missing block3/unit1/conv_proj"),
    ("token", {"extra": (48,)}, "unknown extra"),
    ("token", {f"{BLOCK}/LayerNorm_3/scale": (48,)}, f"unknown {BLOCK}/LayerNorm_3"),
    ("token", {f"{BLOCK[:-1]}01/LayerNorm_0/scale": (48,)}, "unknown Transformer/enc"),
    ("token", {"params/cls": (1, 1, 48)}, "unknown cls"),
    ("token", {"cls": (1, 1, 47)}, "cls has shape"),
    ("token", {POSITION: (17, 48)}, f"{POSITION} has shape"),
    ("token", {f"{ATTENTION}/out/kernel": (3, 15, 48)}, "out/kernel has shape"),
    ("pre_logits", {"head/kernel": (48, 21)}, "head/kernel has shape"),
    ("hybrid_stem", {"embedding/kernel": (8, 8, 3, 48)}, "embedding/kernel has shape"),
    (STAGES, {"block2/unit1/conv3/kernel": (1, 1, 64, 255)}, "kernel has shape"),
    (STAGES, {"embedding/kernel": (1, 1, 256, 48)}, "has shape"),
    ("token", {f"{BLOCK}/": None}, "numbered 0, 2: encoderblock 1 is missing"),
    ("token", {"Transformer/encoderblock_0/": None}, "encoderblock 0 is missing"),
    ("token", {"Transformer/encoderblock": None}, "_0/LayerNorm_0/scale"),
    (STAGES, {"block2/": None}, "numbered 1, 3: block 2 is missing"),
    (STAGES, {"block1/unit1/": None}, "numbered 2: unit 1 is missing"),
    ("token", {POSITION: (1, 1, 48)}, "no rows for patches"),
    (
        "token",
        {f"{BLOCK}/LayerNorm_1/{part}": (48,) for part in ("scale", "bias")},
        f"two arrays for {BLOCK}/LayerNorm_2",
    ),
]


@pytest.mark.parametrize(("name", "change", "told"), WRONG)
def test_what_is_wrong_with_arrays_is_told_by_their_names(tmp_path, name, change, told):
    arrays = load(name)
    for key, value in change.items():
        if value is None:
            arrays = {one: arrays[one] for one in arrays if not one.startswith(key)}
        else:
            arrays[key] = np.zeros(value, "float32")
    with pytest.raises(zoo.CheckpointError) as error:
        zoo.read(save(tmp_path / "a.npz", arrays))
    assert told in str(error.value)
    assert str(tmp_path / "a.npz") in str(error.value)


def test_no_head_is_legal_and_a_zero_head_is_told(tmp_path):
    arrays = load("token")
    arrays["head/kernel"] *= 0
    assert not zoo.read(save(tmp_path / "a.npz", arrays)).zero_head  # bias left
    arrays["head/bias"] *= 0
    assert zoo.read(save(tmp_path / "a.npz", arrays)).zero_head
    del arrays["head/kernel"], arrays["head/bias"]
    checkpoint = zoo.read(save(tmp_path / "a.npz", arrays))
    assert checkpoint.classes is None
    assert not checkpoint.zero_head


@pytest.mark.parametrize("name", MODELS)
def test_writing_gives_the_released_file_back(tmp_path, name):
    checkpoint, path = zoo.read(GOLDENS / f"{name}.npz"), tmp_path / "a.npz"
    grid = (4, 7) if name == "non_square" else None
    zoo.write(path, checkpoint.arrays, grid)
    written = dict(np.load(path))
    if grid:
        stored = written.pop("Transformer/posembed_input/grid_size")
        assert (stored.dtype, tuple(stored)) == (np.int32, grid)
        assert zoo.read(path).grid_size == grid
    assert_same(written, load(name))
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


def test_writing_a_grid_that_only_looks_square(tmp_path):
    arrays, path = zoo.read(GOLDENS / "token.npz").arrays, tmp_path / "a.npz"
    zoo.write(path, arrays, (2, 8))
    assert zoo.read(path).grid_size == (2, 8)
    zoo.write(path, arrays, (4, 4))
    assert len(np.load(path).files) == len(arrays)


@pytest.mark.parametrize(
    ("name", "more", "grid", "told"),
    [
        ("a.npz", {}, None, "28 positions.*grid_size"),
        ("a.npz", {}, (4, 6), r"\(4, 6\).*28 positions"),
        ("a.npz", {"mine": np.ones(48, "float32")}, (4, 7), "unknown mine"),
        ("a.npz", {"head/bias": np.ones(10)}, (4, 7), "head/bias has dtype"),
        ("a.npz", {"cls": np.full((1, 1, 48), np.nan, "f4")}, (4, 7), "cls holds NaN"),
        ("a.npz", {"cls": np.full((1, 1, 48), np.inf, "f4")}, (4, 7), "cls holds NaN"),
        ("a.h5", {}, (4, 7), r"\.npz"),
    ],
)
def test_writing_refuses_and_leaves_the_old_file(tmp_path, name, more, grid, told):
    (tmp_path / "a.npz").write_text("old")
    arrays = dict(zoo.read(GOLDENS / "non_square.npz").arrays) | more
    with pytest.raises(zoo.CheckpointError, match=told):
        zoo.write(tmp_path / name, arrays, grid)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("name", "naming", "writer"),
    [
        ("a.npz", "released", (np, "savez")),
        ("model.safetensors", "timm", (safetensors, "write")),
    ],
)
def test_a_failing_write_leaves_the_old_files(
    tmp_path, monkeypatch, name, naming, writer
):
    def full(file, *_, **arrays):
        pathlib.Path(file).write_text("half")
        raise OSError(28, "No space left on device")

    arrays = zoo.read(GOLDENS / "token.npz").arrays
    zoo.write(tmp_path / name, arrays, naming=naming)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr(*writer, full)
    with pytest.raises(OSError, match="No space left"):
        zoo.write(tmp_path / name, arrays, naming=naming)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_where_nothing_is_there_is_no_checkpoint_file(tmp_path):
    for path in (tmp_path / "a.npz", tmp_path):
        with pytest.raises(zoo.CheckpointError, match="no checkpoint file"):
            zoo.read(path)

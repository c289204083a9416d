"""What is done to files of every kind to do harm, and how their reading is watched.

`FUZZ_EXAMPLES=20000 pytest tests/zoo/containers/test_faults.py` looks for half an hour.
"""

import os
import pathlib
import tracemalloc

import hypothesis
import numpy as np
from hypothesis import strategies as st

import zoo
from zoo.network import ViTConfig, released_names

EXAMPLES = os.environ.get("FUZZ_EXAMPLES")
# The same examples each time, about a second of them, unless more are asked for.
fuzz = hypothesis.settings(
    max_examples=int(EXAMPLES or 60),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
MARKS = [b"\0" * 4, b"\xff" * 4, b"\xff" * 8, b"PK\x01\x02", b"PK\x06\x06"]
BYTES = st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(MARKS))
KINDS = st.sampled_from(["write", "write", "insert", "delete", "cut"])
EDIT = st.tuples(KINDS, st.integers(0, 2**20), BYTES)
EDITS = st.lists(EDIT, min_size=1, max_size=4)
WORDS = st.sampled_from(["F32", "BF16", "<f2", "|V2", "|O", "|V0", "\ud800"])
NUMBERS = st.one_of(st.integers(-2, 2**70), st.floats(), st.booleans(), st.none())
# Values of a field in a header.
VALUES = st.recursive(
    st.one_of(WORDS, NUMBERS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(WORDS, inner, max_size=3),
    ),
    max_leaves=6,
)


def model(size=4):
    """The arrays of the smallest model that there is."""
    numbers = np.random.default_rng(0)
    optional = {"class_token", "positions", "head"}
    optional |= released_names.required(ViTConfig())
    sizes = {"hidden_size": size, "num_heads": 2, "head_size": size // 2, "mlp_dim": 8}
    sizes |= {"patch_height": 2, "patch_width": 2, "channels": 3}
    sizes |= {"positions": 5, "classes": 2}
    shapes = {
        name: [released_names.value(side, sizes) for side in shape]
        for name, shape in released_names.layout(1, None, optional).items()
    }
    return {
        name: numbers.normal(size=shape).astype("float32")
        for name, shape in shapes.items()
    }


def edit(data, where, edits):
    """Applies edits at chosen offsets."""
    data = bytearray(data)
    for kind, number, new in edits:
        at = where[number % len(where)]
        if kind == "write":
            data[at : at + len(new)] = new
        elif kind == "insert":
            data[at:at] = new
        elif kind == "delete":
            del data[at : at + len(new)]
        else:
            del data[at:]
    return bytes(data)


def read(path):
    """Reads every array; returns the message of the refusal, None without."""
    try:
        checkpoint = zoo.read(path)
        for name, shape in checkpoint.shapes.items():
            found = checkpoint.arrays[name]
            assert found.dtype == np.float32
            assert found.shape == shape
    except zoo.CheckpointError as error:
        return str(error)
    return None


def read_in_little_memory(path):
    """Reads as `read` does."""
    tracemalloc.start()
    try:
        message = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # zipfile takes 2 KB a member, JSON 30 MB at most.
    assert peak < 8 * pathlib.Path(path).stat().st_size + 2**25
    return message


def check_refused(content, name, tmp_path, monkeypatch):
    """A file is refused by its name, in few words and little memory, without harm."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    path = pathlib.Path(name)
    path.write_bytes(content)
    message = read_in_little_memory(path)
    assert message is not None
    assert name in message
    assert len(message) <= 2000
    assert message.replace("\n", "").isprintable()
    assert sorted(tmp_path.rglob("*")) == [here, here / name]
    return message

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

EXAMPLES = os.environ.get("FUZZ_EXAMPLES")
# The same examples each time, about a second of them, unless more are asked for.
fuzz = hypothesis.settings(
    max_examples=int(EXAMPLES or 60),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
BYTES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from(
        [b"\0" * 4, b"\xff" * 4, b"\xff" * 8, b"PK\x01\x02", b"PK\x06\x06"]
    ),
)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "insert", "delete", "cut"]),
        st.integers(0, 2**20),
        BYTES,
    ),
    min_size=1,
    max_size=4,
)


def model(size=4):
    """The arrays of the smallest model that there is."""
    numbers = np.random.default_rng(0)
    block = "Transformer/encoderblock_0"
    attention = f"{block}/MultiHeadDotProductAttention_1"
    shapes = {
        "cls": (1, 1, size),
        "embedding/kernel": (2, 2, 3, size),
        "embedding/bias": (size,),
        "Transformer/posembed_input/pos_embedding": (1, 5, size),
        "Transformer/encoder_norm/scale": (size,),
        "Transformer/encoder_norm/bias": (size,),
        "head/kernel": (size, 2),
        "head/bias": (2,),
    }
    for norm in ("LayerNorm_0", "LayerNorm_2"):
        shapes |= {f"{block}/{norm}/{name}": (size,) for name in ("scale", "bias")}
    for name in ("query", "key", "value"):
        shapes[f"{attention}/{name}/kernel"] = (size, 2, size // 2)
        shapes[f"{attention}/{name}/bias"] = (2, size // 2)
    shapes[f"{attention}/out/kernel"] = (2, size // 2, size)
    shapes[f"{attention}/out/bias"] = (size,)
    for name, sides in (("Dense_0", (size, 8)), ("Dense_1", (8, size))):
        shapes[f"{block}/MlpBlock_3/{name}/kernel"] = sides
        shapes[f"{block}/MlpBlock_3/{name}/bias"] = sides[1:]
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
    """A file is refused by its name, in few words and little memory, without harm.

    Args:
        content: bytes of the file.
        name: str, its name.
        tmp_path: an empty folder.
        monkeypatch: pytest's.

    Returns:
        str, the message.
    """
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

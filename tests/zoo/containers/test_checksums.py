"""A flipped bit in a file that this package wrote is seen, or changes nothing."""

import json
import random
import zlib

import numpy as np
import pytest
from hostile import model
from safetensors_files import joined

import zoo
from zoo.containers.safetensors import Safetensors


def described(path):
    """All that a file says, or None where it is refused."""
    try:
        found = zoo.read(path)
        arrays = {name: array.tobytes() for name, array in found.arrays.items()}
    except zoo.CheckpointError:
        return None
    return arrays, found.shapes, found.semantics, found.num_heads, found.grid_size


def seen_flips(path, region=slice(None), count=50):
    """Flips bits one at a time; returns how many were seen, others change nothing."""
    whole, before, rng = path.read_bytes(), described(path), random.Random(0)
    assert before is not None
    seen = 0
    for bit in rng.sample(range(8 * len(whole))[region], count):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.unlink()
        path.write_bytes(damaged)
        after = described(path)
        assert after in (None, before), f"bit {bit} of {path.name}"
        seen += after is None
    path.write_bytes(whole)
    return seen


@pytest.fixture
def path(tmp_path):
    """A file of ours."""
    zoo.write(tmp_path / "model.safetensors", model())
    return tmp_path / "model.safetensors"


def test_flipped_bits_are_seen(path):
    data = 32 * sum(array.size for array in model().values())
    # In the arrays each one is, in the header each that means anything.
    assert seen_flips(path, slice(-data, None)) == 50
    assert seen_flips(path, slice(0, -data)) > 46
    npz = path.with_name("model.npz")
    zoo.write(npz, model())
    assert seen_flips(npz) > 25


def header(path):
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def with_header(path, table, data):
    path.write_bytes(joined(json.dumps(table), data))


def test_the_metadata_are_text_and_the_checksums_those_of_the_bytes(path):
    table, data = header(path)
    metadata = table.pop("__metadata__")
    assert all(isinstance(value, str) for value in metadata.values())
    assert metadata["format"] == "pt"
    checksums = json.loads(metadata["keras_vit_crc32"])
    assert checksums.keys() == table.keys() == model().keys()
    for name, array in model().items():
        assert checksums[name] == f"{zlib.crc32(array.tobytes()):08x}"
        start, end = table[name]["data_offsets"]
        assert data[start:end] == array.tobytes()


OURS, HEADER, CONFIG = "keras_vit_crc32", "keras_vit_header_crc32", "keras_vit"
# Changes to the metadata, and what is said of the file; None: it is read as before.
METADATA = {
    "without checksums": ({OURS: None, HEADER: None}, None),
    "as other programs write it": (
        {OURS: None, HEADER: None, CONFIG: None, "format": None},
        None,
    ),
    "with a note": ({"note": "x"}, None),
    "with other settings": ({CONFIG: "{}"}, "its header has another CRC-32"),
    **{
        f"with {text[:20]!r} for checksums": ({HEADER: None, OURS: text}, "damaged")
        for text in ("{}", "7", "", "[" * 10**5, '{"cls": "00000000"}')
    },
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata_of_others_are_theirs_and_ours_are_checked(case, path):
    changes, message = METADATA[case]
    before = described(path)
    table, data = header(path)
    metadata = table.pop("__metadata__") | changes
    if kept := {key: text for key, text in metadata.items() if text is not None}:
        table["__metadata__"] = kept
    with_header(path, table, data)
    if message is None:
        assert described(path) == before
        return
    with pytest.raises(zoo.CheckpointError, match=message):
        zoo.read(path)


def test_a_program_that_changes_arrays_and_keeps_the_metadata(path):
    table, data = header(path)
    with_header(path, table, data[:-4] + bytes(4))
    with pytest.raises(zoo.CheckpointError, match="CRC-32 .*leave the metadata out"):
        zoo.read(path)


def test_a_part_of_a_file_may_keep_the_metadata_of_the_whole(path):
    """As programs do that split a file into shards."""
    table, data = header(path)
    (start, _), last = max((table[name]["data_offsets"], name) for name in model())
    del table[last]
    data = data[:start]
    with_header(path, table, data)
    part = Safetensors(path)
    assert {*part.keys} == model().keys() - {last}
    for name in part.keys:
        np.testing.assert_array_equal(part.check(name), model()[name])
    with_header(path, table, data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
    damaged = Safetensors(path)
    with pytest.raises(zoo.CheckpointError, match="was changed by another program"):
        for name in part.keys:
            damaged.check(name)
    # An array that the whole did not have is none of its own.
    table["another"] = table.pop("cls")
    with_header(path, table, data)
    with pytest.raises(zoo.CheckpointError, match="its list of checksums has another"):
        Safetensors(path)

"""The small models of libraries, and the goldens, that tests read and change."""

import json
import pathlib

import numpy as np

import zoo
from zoo.containers import safetensors

TESTS = pathlib.Path(__file__).parents[1]
PLACES = (TESTS / "cases", TESTS / "goldens" / "peers")


def golden(name="token"):
    """Reads a golden in the released naming."""
    return zoo.read(TESTS / "goldens" / f"{name}.npz")


def assert_same(found, expected):
    """Two mappings have the same names, and float32 arrays equal to the bit."""
    found = dict(found)
    np.testing.assert_equal(found, dict(expected))
    assert {array.dtype.name for array in found.values()} == {"float32"}


def folder_of(name):
    """Returns the folder of a small model of a library."""
    return next(place / name for place in PLACES if (place / name).is_dir())


def arrays_of(name):
    """Returns the arrays of a small model by their names in its file."""
    file = safetensors.Safetensors(folder_of(name) / "model.safetensors")
    return {key: np.asarray(file.check(key)) for key in file.keys}


def settings_of(name, file="config.json"):
    """Returns the settings of a small model."""
    return json.loads((folder_of(name) / file).read_text())

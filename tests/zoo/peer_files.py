"""The small models of libraries that tests of settings change."""

import json
import pathlib

import numpy as np

from zoo.containers import safetensors

TESTS = pathlib.Path(__file__).parents[1]
PLACES = (TESTS / "cases", TESTS / "goldens" / "peers")


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

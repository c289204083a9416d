"""A library of checkpoints is a class: what it declares is all that reading needs."""

import json
import re

import numpy as np
import pytest

import zoo
from zoo.containers import safetensors
from zoo.libraries import reading, timm
from zoo.libraries.description import Description
from zoo.libraries.library import Library


class Toy(Library):
    """timm's names in capitals, and settings of two fields."""

    name = "toy"
    beside = ("toy.json",)
    keys = re.compile(r"^BLOCKS\.")
    reasons = {"^BITTER": "it is bitter"}

    def column(self, keys):
        return "timm"

    def select(self, keys):
        return {key: key.lower() for key in keys}

    def describe(self, folder, shown):
        file = folder / self.beside[0]
        said = json.loads(file.read_text())
        shown.check(file, "a toy", {"layer_scale": said["scale"]})
        return Description(zoo.ViTConfig.released(num_heads=said["heads"]))


def test_one_class_is_a_new_library(tmp_path, monkeypatch):
    monkeypatch.setitem(reading.LIBRARIES, "toy", Toy())
    golden = zoo.read("tests/goldens/token.npz")
    arrays, _ = timm.Timm().written(golden)
    arrays = {key.upper(): array for key, array in arrays.items()}
    file, settings = tmp_path / "model.safetensors", tmp_path / "toy.json"
    safetensors.write(file, arrays)
    settings.write_text('{"heads": 3, "scale": false}')
    found = zoo.read(file)
    assert found.config == golden.config
    for name, array in golden.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    settings.write_text('{"heads": 3, "scale": true}')
    told = "toy.json describes a toy, with layer_scale True .the arrays have False"
    with pytest.raises(zoo.CheckpointError, match=told):
        zoo.read(file)
    safetensors.write(file, arrays | {"BITTER.END": np.ones(1)})
    with pytest.raises(zoo.CheckpointError, match="under the names of toy:\n  it is"):
        zoo.read(file)

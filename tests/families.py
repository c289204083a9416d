"""Small models of every family in their libraries' files, and what these compute.

Ours are those of `peer_goldens`; developers and CI have larger ones beside the
repository, with every output.
"""

import functools
import json
import pathlib
import typing

import keras
import numpy as np
import peer_goldens
import pytest

import keras_vit
import zoo
from zoo.containers import safetensors

TESTS = pathlib.Path(__file__).parent
FOLDER = TESTS / "goldens" / "peers"
SHARED = TESTS.parents[1] / "shared" / "goldens_families"
# Tolerance, relative to the largest value.
TOLERANCE = 2e-5
TOKENS = {"include_top": False, "pooling": None}
OUTPUTS = {"tokens": TOKENS, "features": {"include_top": False}, "logits": {}}


class Check(typing.NamedTuple):
    """How a file is loaded, photos (uint8), and what the library computes of them."""

    options: dict
    photos: np.ndarray
    answer: np.ndarray


class Family(typing.NamedTuple):
    """A model in the files of its library."""

    name: str
    path: pathlib.Path
    library: str
    checks: typing.Callable[[], list[Check]]

    def load(self, **options):
        """Returns the model."""
        return keras_vit.load_model(self.path, **options)


def _checks(name):
    """Returns the checks of a golden of ours."""
    case, found = peer_goldens.CASES[name], []
    has_head = zoo.read(FOLDER / name).classes is not None
    with np.load(FOLDER / name / "expected.npz") as answers:
        for part, options in case.parts.items():
            answer, size = answers[part], case.image_size(options)
            photos = peer_goldens.photos(*size, case.channels(options))
            output = TOKENS if answer.ndim == 3 else {"include_top": has_head}
            options = output | {"image_size": size} | options
            found.append(Check(options, photos, answer))
    return found


def _larger_checks(case):
    """Returns the checks of a golden beside the repository that ours leave out.

    Ours have the last output, which follows from all else, and other sizes.
    """
    *first, last = (output for output in OUTPUTS if output in case["outputs"])
    pairs = [("", output) for output in first]
    if case["name"] not in FAMILIES:
        pairs += [(part, last) for part in ("", "resized_", "patch_")]
    found = []
    with np.load(SHARED / f"{case['name']}.expected.npz") as arrays:
        for part, output in pairs:
            if part + output in arrays:
                photos = arrays[f"{part}images_uint8"]
                options = OUTPUTS[output] | {"image_size": photos.shape[1:3]}
                options |= case.get("other_patch", {}) if part == "patch_" else {}
                found.append(Check(options, photos, arrays[part + output]))
    return found


FAMILIES = {
    name: Family(name, FOLDER / name, case.library, functools.partial(_checks, name))
    for name, case in peer_goldens.CASES.items()
}
_INDEX = SHARED / "index.json"
_LARGER = json.loads(_INDEX.read_text())["cases"] if _INDEX.is_file() else []
LARGER = {
    case["name"]: Family(
        case["name"],
        SHARED / f"{case['name']}{'.npz' if case['library'] == 'big_vision' else ''}",
        case["library"],
        functools.partial(_larger_checks, case),
    )
    for case in _LARGER
    if case["name"] not in FAMILIES or len(case["outputs"]) > 1
}


def each(names=FAMILIES, larger=()):
    """Runs a test for goldens of ours, and for larger ones where these are."""
    ours = [pytest.param(FAMILIES[name], id=name) for name in names]
    others = [pytest.param(LARGER[name], id=f"larger {name}") for name in larger]
    return pytest.mark.parametrize("family", ours + others)


def computed(model, photos):
    """Returns what a model or `Predictor` computes of photos (uint8).

    Several outputs are a row for each photo, one behind the other.
    """
    found = model(photos.astype("float32") / 127.5 - 1)
    if not isinstance(found, dict):
        return keras.ops.convert_to_numpy(found)
    parts = map(keras.ops.convert_to_numpy, found.values())
    return np.concatenate([one.reshape(len(photos), -1) for one in parts], axis=1)


def assert_close(found, answer, tolerance=TOLERANCE):
    """The largest difference is a small part of the largest value."""
    assert found.shape == answer.shape
    error = np.abs(found - answer).max() / np.abs(answer).max()
    assert error <= tolerance, error


def arrays_of(path):
    """Returns the arrays of a safetensors file by their names in it."""
    file = safetensors.Safetensors(path)
    return {key: np.asarray(file.check(key)) for key in file.keys}

"""What all tests share: quiet backends, the goldens, the shared folder."""

import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest  # noqa: E402

TESTS = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def goldens():
    """The folder of small checkpoints in the released naming."""
    return TESTS / "goldens"


@pytest.fixture(scope="session")
def golden_index(goldens):
    """The configurations of the goldens by name."""
    return json.loads((goldens / "index.json").read_text())


@pytest.fixture(scope="session")
def shared():
    """The developers' shared folder: real photos, weights and data sets."""
    folder = TESTS.parent.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: only developers and CI have it")
    return folder

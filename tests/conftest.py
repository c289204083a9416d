"""What all tests share: quiet backends, the goldens, the shared folder."""

import concurrent.futures
import importlib.util
import json
import multiprocessing
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest  # noqa: E402
from fork_server import ForkServer  # noqa: E402

TESTS = pathlib.Path(__file__).parent
# Fixtures of tests that need the packages of `make peers`.
PEERS = {"process", "timm", "transformers", "keras_hub"}


def pytest_collection_modifyitems(items):
    """Marks the tests of these fixtures."""
    for item in items:
        if PEERS & {*item.fixturenames}:
            item.add_marker(pytest.mark.peers)


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


@pytest.fixture(scope="session")
def forks():
    """Commands as forks of one process: each alone would import TensorFlow anew."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": str(TESTS.parent),
    }
    server = ForkServer(environment)
    yield server
    server.close()


@pytest.fixture(scope="module")
def process():
    """A function that calls others in a process without TensorFlow."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        yield lambda *call, **options: pool.submit(*call, **options).result()


def skip_without(*names):
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed, whose numbers are compared")


@pytest.fixture
def timm(process):
    """Runs functions of `peer_models` where timm is."""
    skip_without("torch", "timm")
    return process


@pytest.fixture
def transformers(process):
    """Runs functions of `peer_models` where transformers is."""
    skip_without("torch", "transformers")
    return process

"""What the tests of training share."""

import os
import pathlib

import pytest
from fork_server import ForkServer

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Commands as forks of one process: each alone would import TensorFlow anew."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": str(ROOT),
    }
    server = ForkServer(tmp_path_factory.mktemp("forks"), environment)
    yield server
    server.close()

"""Models of other libraries, which run in a process of their own."""

import importlib.util

import peer_models
import pytest


@pytest.fixture(scope="module")
def process():
    """A process without TensorFlow."""
    peer = peer_models.Peer()
    yield peer
    peer.close()


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

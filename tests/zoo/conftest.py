"""What the tests of downloads share."""

import made_index
import pytest
import servers
from serving import serving_files, use_mirror

from zoo.store import transport


@pytest.fixture
def server():
    with servers.failing() as server:
        yield server


@pytest.fixture
def offer(server):
    """Puts a file on the server and returns its URL."""

    def put(*replies, name="a.npz", **file):
        server.files[f"/{name}"] = servers.File(**file, replies=list(replies))
        return f"{server.url}/{name}"

    return put


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of its own for a test, and no setting of the machine's."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("KERAS_VIT_CACHE", str(folder))
    for name in ("KERAS_VIT_OFFLINE", "KERAS_VIT_MIRROR", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # No server of a busy machine is too slow by accident.
    monkeypatch.setattr(transport, "TIMEOUTS", (600, 600))
    monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 600)
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(transport, "RETRY_AFTER_SECONDS", 0.001)
    return folder


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A server of released files, with a made index in its `folder`; an empty cache."""
    folder = tmp_path / "server" / "vit_models"
    made_index.write(folder / "augreg" / "index.csv", made_index.rows())
    with serving_files(folder.parent) as server:
        use_mirror(monkeypatch, server.url, tmp_path / "cache")
        server.folder = folder
        yield server


@pytest.fixture(scope="session")
def trained():
    """Decodes bytes as evaluation does, in a graph."""
    return in_graph("decode_image")


@pytest.fixture(scope="session")
def served():
    """Decodes bytes as exports do."""
    return in_graph("decode_in_graph")


def in_graph(name):
    tf = pytest.importorskip("tensorflow")
    decoding = pytest.importorskip("train.data.transforms.decoding")
    signature = [tf.TensorSpec((), tf.string)]
    decode = tf.function(getattr(decoding, name), input_signature=signature)
    return lambda encoded: decode(tf.constant(encoded)).numpy()

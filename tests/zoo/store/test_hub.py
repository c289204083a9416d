"""The Hugging Face hub, as a server on this machine plays it."""

import errno
import json
import pathlib
import sys

import hub_server
import numpy as np
import pytest
from hub_server import TOKEN, Repository

import zoo
from zoo.containers import safetensors
from zoo.store import hub

constants = pytest.importorskip("huggingface_hub.constants")
pytestmark = pytest.mark.usefixtures("cache")

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
HANDLE = "hf://somebody/vit"
NPZ = {name: (GOLDENS / f"{name}.npz").read_bytes() for name in ("token", "gap")}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Where downloads are kept: nothing yet."""
    home = tmp_path / "home"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return home


@pytest.fixture
def server(home, monkeypatch):
    """A hub without repositories."""
    with hub_server.running() as server:
        connect(monkeypatch, server.url)
        yield server


def connect(monkeypatch, url):
    template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)


@pytest.fixture(params=["KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE"])
def go_offline(request):
    """Sets one of the two variables; the library reads its own when it is imported."""
    if request.param.startswith("HF"):
        return lambda patch: patch.setattr(constants, request.param, True)
    return lambda patch: patch.setenv(request.param, "1")


@pytest.fixture
def model(tmp_path):
    """The files of a model for transformers, none of which says everything."""
    folder = tmp_path / "saved"
    folder.mkdir()
    path = folder / "model.safetensors"
    said = zoo.ViTConfig.released(activation="gelu", input_mean=(0.1, 0.2, 0.3))
    arrays = zoo.read(GOLDENS / "token.npz")
    zoo.write(path, arrays, naming="transformers", semantics=said)
    # Without what we say in it ourselves.
    file = safetensors.Safetensors(path)
    arrays = {key: np.array(file.check(key)) for key in file.keys}
    safetensors.write(path, arrays)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def serve(server):
    """Puts files into a repository, and returns it."""

    def put(files, **access):
        server.repositories["somebody/vit"] = Repository({"main": files}, **access)
        return server.repositories["somebody/vit"]

    return put


def assert_golden(folder, name="token"):
    arrays, expected = zoo.read(folder).arrays, zoo.read(GOLDENS / f"{name}.npz").arrays
    assert arrays.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(arrays[key], array)


# Downloads

OTHERS = ("README.md", "pytorch_model.bin", "model.keras", "saved_model/a.pb")


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_only_what_is_read_comes_and_only_once(server, serve, model):
    serve(model | dict.fromkeys(OTHERS, b"never read"))
    folder = hub.fetch(HANDLE)
    assert names(folder) == sorted(model)
    assert_golden(folder)
    assert zoo.read(folder).semantics.input_mean == (0.1, 0.2, 0.3)
    asked = server.requests
    assert not any(other in path for path in asked for other in OTHERS)
    # Again, it asks only whether there is something new.
    server.requests.clear()
    assert hub.fetch(HANDLE) == folder
    assert not any("/resolve/" in path for path in server.requests)


def test_shards_come_with_their_index(serve, model, tmp_path):
    keys = safetensors.Safetensors(tmp_path / "saved" / "model.safetensors").keys
    content = model.pop("model.safetensors")
    shard = "model-00001-of-00001.safetensors"
    places = dict.fromkeys(keys, shard)
    index = json.dumps({"weight_map": places}).encode()
    model |= {shard: content, "model.safetensors.index.json": index}
    serve(model | {"pytorch_model-00001-of-00001.bin": b"never read"})
    folder = hub.fetch(HANDLE)
    assert names(folder) == sorted(model)
    assert_golden(folder)


def test_a_revision_is_a_branch_or_a_commit_and_branches_move(serve, model):
    repository = serve(model)
    # What we publish is an npz and its card.
    published = {"model.npz": NPZ["gap"], "model.json": b"{}"}
    repository.revisions["v2.0"] = published | {"model.keras": b"never read"}
    assert_golden(hub.fetch(HANDLE))
    for revision in ("v2.0", repository.commit("v2.0")):
        assert_golden(hub.fetch(f"{HANDLE}@{revision}"), "gap")
    repository.revisions["main"] = repository.revisions["v2.0"]
    assert_golden(hub.fetch(HANDLE), "gap")
    assert names(hub.fetch(HANDLE)) == sorted(published)
    with pytest.raises(zoo.StoreError, match=r"hf://somebody/vit@v3: it has no suc"):
        hub.fetch(f"{HANDLE}@v3")


def test_private_ones_want_the_token(serve, model, monkeypatch):
    serve(model, private=True)
    with pytest.raises(zoo.StoreError, match="or it is private: check.*HF_TOKEN"):
        hub.fetch(HANDLE)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert_golden(hub.fetch(HANDLE))


def test_offline_the_last_download_is_taken(
    server, serve, model, home, go_offline, monkeypatch
):
    serve(model)
    with monkeypatch.context() as patch:
        go_offline(patch)
        with pytest.raises(zoo.StoreError, match="OFFLINE is set: unset it"):
            hub.fetch(HANDLE)
    assert server.requests == []
    assert hub.cached(HANDLE) is None
    folder = hub.fetch(HANDLE)
    assert hub.cached(HANDLE) == folder
    # Of a home called otherwise, the library remembers nothing but what is on the disk.
    moved = home.rename(home.with_name("moved"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(moved))
    server.requests.clear()
    go_offline(monkeypatch)
    assert hub.fetch(HANDLE) == moved / folder.relative_to(home)
    assert server.requests == []


@pytest.mark.parametrize("gone", ["model.safetensors", "preprocessor_config.json"])
def test_offline_and_not_whole(gone, serve, model, monkeypatch):
    """Without its settings a model would be taken for another."""
    serve(model)
    (hub.fetch(HANDLE) / gone).unlink()
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(zoo.StoreError, match="was not downloaded whole before"):
        hub.fetch(HANDLE)


def test_without_a_network_the_last_download_is_taken(serve, model, monkeypatch):
    serve(model)
    with monkeypatch.context() as patch:
        connect(patch, "http://127.0.0.1:9")
        with pytest.raises(zoo.StoreError, match="Connect.*Check the network"):
            hub.fetch(HANDLE)
    folder = hub.fetch(HANDLE)
    connect(monkeypatch, "http://127.0.0.1:9")
    assert hub.fetch(HANDLE) == folder


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["pytorch_model.bin", "config.json"], "only pytorch_model.bin, and a pick"),
        (["model.pt", "a.ckpt"], "has only a.ckpt, model.pt.*save_pretrained"),
        ([], "it has no files"),
        (["sub/model.safetensors"], "has none of .*: it has sub/model.safetensors"),
    ],
)
def test_nothing_that_is_read(files, message, server, serve):
    serve(dict.fromkeys(files, b"{}"))
    with pytest.raises(zoo.StoreError, match=message):
        hub.fetch(HANDLE)
    assert not any(".bin" in path for path in server.requests)


def test_refusals_of_the_hub(server, serve, model):
    with pytest.raises(zoo.StoreError, match="hf://a/b: there is no http.*/a/b, or"):
        hub.fetch("hf://a/b")
    serve(model, gated=True)
    with pytest.raises(zoo.StoreError, match="gated: ask for access at http.*/vit"):
        hub.fetch(HANDLE)
    server.broken = 500
    with pytest.raises(zoo.StoreError, match="refused it .*500.*try again later"):
        hub.fetch(HANDLE)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space"), "disk is full: free.*, or set HF_HOME"),
        (OSError(errno.EDQUOT, "Quota"), "disk is full"),
        (PermissionError(errno.EACCES, "Denied", "a"), "set HF_HOME to a folder that"),
        (RuntimeError("Xet broke\n off"), "RuntimeError: Xet broke off. Check the net"),
    ],
)
def test_a_download_that_fails(error, message, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(zoo.StoreError, match=f"download {HANDLE}: .*{message}"):
        hub.fetch(HANDLE)


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(zoo.StoreError, match="pip install --upgrade huggingface_hub"):
        hub.fetch(HANDLE)


# Uploads


@pytest.fixture
def push(server, tmp_path, monkeypatch):
    """Pushes a folder with a model; gives the URL and what the library was handed."""
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "model.npz").touch()
    uploaded = {}

    def push(name="somebody/vit", token=TOKEN, folder="published", **settings):
        monkeypatch.setenv("HF_TOKEN", token)
        return hub.push(folder, name, **settings), uploaded

    def upload(_, **arguments):
        uploaded.update(arguments)

    monkeypatch.setattr("huggingface_hub.HfApi.upload_folder", upload)
    monkeypatch.chdir(tmp_path)
    return push


@pytest.mark.parametrize("private", [False, True])
def test_a_folder_is_pushed_to_a_repository_new_or_not(server, push, private):
    url, uploaded = push(message="The first", private=private)
    assert url == f"{server.url}/somebody/vit" == push(message="The first")[0]
    assert server.repositories["somebody/vit"].private is private
    assert uploaded == {
        "repo_id": "somebody/vit",
        "folder_path": pathlib.Path("published"),
        "commit_message": "The first",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"token": ""}, "nobody is logged in.*auth login.*HF_T"),
        ({"token": "hf_of_another"}, "token may not do that.*HF_TOKEN"),
        ({"name": "else/vit"}, "to else/vit: the token may not.*right"),
        ({"folder": "gone"}, "no folder .*gone: check the path"),
        ({"folder": "."}, "has none of model.safetensors"),
    ],
)
def test_a_push_that_is_refused(server, push, settings, message):
    with pytest.raises(zoo.StoreError, match=message):
        push(**settings)
    assert server.repositories == {}


# Handles


@pytest.mark.parametrize(
    "name",
    [
        *("", "vit", "/vit", "google/", "google//vit", "google/vit/file", "../vit"),
        *("google/a..b", ".hidden/vit", "google/vit.", "google/vit\n", "google/ViT-é"),
    ],
)
def test_names_that_are_none(name):
    with pytest.raises(zoo.StoreError, match="expected org/name, as in hf://google"):
        hub.fetch(f"hf://{name}")
    with pytest.raises(zoo.StoreError, match="expected org/name"):
        hub.push(GOLDENS, name)


@pytest.mark.parametrize("revision", ["", "..", "../../x", "a//b", "/a", "a b", "a@b"])
def test_revisions_that_are_none(revision):
    with pytest.raises(zoo.StoreError, match="is not a branch, tag or commit"):
        hub.fetch(f"{HANDLE}@{revision}")


def test_handles():
    assert hub.is_handle("hf://google/vit") and hub.is_handle("hf://")
    for source in ("google/vit", "https://huggingface.co/google/vit", GOLDENS):
        assert not hub.is_handle(source)

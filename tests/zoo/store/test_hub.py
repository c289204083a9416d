"""The Hugging Face hub, as a server on this machine plays it.

`huggingface_hub` reads its environment when it is imported: calls are made in processes
that all tests share, one for each environment, forked from one that has imported what
takes long.
"""

import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys

import hub_server
import numpy as np
import pytest

import zoo
from zoo.store import hub

pytest.importorskip("huggingface_hub", reason="it speaks to the hub")

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
HANDLE = "hf://somebody/vit"
# A process of its own, which keeps nothing in memory of what the others fetched.
OWN = {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
WORKER = """
import contextlib, json, os, socket, sys
for client in ("httpx", "httpx2"):
    with contextlib.suppress(ImportError):
        __import__(client)
import zoo
from zoo.store import hub
assert "huggingface_hub" not in sys.modules

def answer(questions):
    for line in questions:
        _, name, args, kwargs, environment = json.loads(line)
        for variable in ("HF_TOKEN", "KERAS_VIT_OFFLINE"):
            os.environ.pop(variable, None)
        os.environ.update(environment)
        try:
            answer = ["RESULT", str(getattr(hub, name)(*args, **kwargs))]
        except zoo.StoreError as error:
            answer = ["ERROR", str(error)]
        print("ANSWER", json.dumps(answer), flush=True)

children = {}
for line in sys.stdin:
    fixed, *_ = json.loads(line)
    place = str(fixed)
    if place not in children:
        children[place], questions = socket.socketpair()
        if not os.fork():
            children.pop(place).close()
            os.environ.update(fixed)
            answer(questions.makefile())
            os._exit(0)
        questions.close()
    children[place].sendall(line.encode())
for child in children.values():
    child.close()
with contextlib.suppress(ChildProcessError):
    while True:
        os.wait()
"""


@pytest.fixture(scope="module")
def hub_of_all():
    with hub_server.running() as running:
        yield running


@pytest.fixture
def server(hub_of_all):
    """A hub without repositories."""
    for held in ("repositories", "large", "requests", "messages"):
        getattr(hub_of_all, held).clear()
    hub_of_all.broken = None
    return hub_of_all


@pytest.fixture(scope="module")
def home_of_all(tmp_path_factory):
    return tmp_path_factory.mktemp("hub") / "home"


@pytest.fixture
def home(home_of_all):
    """Where downloads are kept: nothing yet."""
    if home_of_all.is_file():
        home_of_all.unlink()
    shutil.rmtree(home_of_all, ignore_errors=True)
    return home_of_all


@pytest.fixture(scope="module")
def worker(hub_of_all, home_of_all):
    """The process whose forks call the functions."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGINGFACE", "KERAS_VIT"))
        and not name.lower().endswith("_proxy")
    }

    inherited |= {
        "HF_HOME": str(home_of_all),
        "HF_ENDPOINT": hub_of_all.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }

    with subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env=inherited,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield process


@pytest.fixture
def call(worker, server, home):
    """Calls a function of zoo.store.hub; gives its result, or raises its error."""

    def call(name, *args, environment=(), **kwargs):
        environment = dict(environment)
        # These are read at each call.
        variables = environment.keys() - {"HF_TOKEN", "KERAS_VIT_OFFLINE"}
        fixed = {variable: environment[variable] for variable in sorted(variables)}
        question = (fixed, name, args, kwargs, environment)
        print(json.dumps(question), file=worker.stdin, flush=True)
        for line in worker.stdout:
            if line.startswith("ANSWER "):
                kind, text = json.loads(line.removeprefix("ANSWER "))
                if kind == "ERROR":
                    raise zoo.StoreError(text)
                return text
        raise AssertionError("the worker ended")

    return call


@pytest.fixture
def model(tmp_path):
    """The files of a model for transformers, none of which says everything."""
    folder = tmp_path / "saved"
    folder.mkdir()
    checkpoint = zoo.read(GOLDENS / "token.npz")
    said = zoo.ViTConfig.released(activation="gelu", input_mean=(0.1, 0.2, 0.3))
    path = folder / "model.safetensors"
    zoo.write(path, checkpoint, naming="transformers", semantics=said)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    del header["__metadata__"]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def serve(server, files, name="somebody/vit", **kwargs):
    server.repositories[name] = hub_server.Repository({"main": files}, **kwargs)
    return server.repositories[name]


def names(folder):
    return sorted(file.name for file in pathlib.Path(folder).iterdir())


def assert_golden(folder, name="token"):
    found, expected = zoo.read(folder).arrays, zoo.read(GOLDENS / f"{name}.npz").arrays
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array)


class TestFetch:
    """A repository becomes a folder that `zoo.read` reads."""

    def test_only_what_is_read_comes(self, server, call, model):
        others = ("README.md", "pytorch_model.bin", "model.keras", "saved_model/a.pb")
        serve(server, model | dict.fromkeys(others, b"never read"))
        folder = call("fetch", HANDLE)
        assert names(folder) == sorted(model)
        assert_golden(folder)
        assert zoo.read(folder).semantics.input_mean == (0.1, 0.2, 0.3)
        asked = [path for _, path in server.requests]
        assert not any(other in path for path in asked for other in others)
        # Again, it asks only whether there is something new.
        server.requests.clear()
        assert call("fetch", HANDLE) == folder
        assert not any("/resolve/" in path for _, path in server.requests)

    def test_what_we_publish(self, server, call, tmp_path):
        content = (GOLDENS / "token.npz").read_bytes()
        files = {"model.npz": content, "model.json": b"{}", "model.keras": b"not read"}
        serve(server, files)
        folder = call("fetch", HANDLE)
        assert names(folder) == ["model.json", "model.npz"]
        assert_golden(folder)

    def test_shards(self, server, call, model):
        content = model.pop("model.safetensors")
        shard = "model-00001-of-00001.safetensors"
        length = int.from_bytes(content[:8], "little")
        keys = json.loads(content[8 : 8 + length])
        index = json.dumps({"weight_map": dict.fromkeys(keys, shard)}).encode()
        model |= {shard: content, "model.safetensors.index.json": index}
        serve(server, model | {"pytorch_model-00001-of-00001.bin": b"never read"})
        folder = call("fetch", HANDLE)
        assert names(folder) == sorted(model)
        assert_golden(folder)

    def test_revisions(self, server, call, model):
        repository = serve(server, model)
        arrays = {"model.npz": (GOLDENS / "gap.npz").read_bytes()}
        repository.revisions["v2.0"] = arrays
        assert_golden(call("fetch", f"{HANDLE}@v2.0"), "gap")
        assert_golden(call("fetch", HANDLE))
        commit = repository.commit("v2.0")
        assert_golden(call("fetch", f"{HANDLE}@{commit}"), "gap")
        with pytest.raises(
            zoo.StoreError, match=r"hf://somebody/vit@v3: it has no suc"
        ):
            call("fetch", f"{HANDLE}@v3")

    def test_a_branch_that_moved(self, server, call, model):
        repository = serve(server, model)
        assert_golden(call("fetch", HANDLE))
        repository.revisions["main"] = {"model.npz": (GOLDENS / "gap.npz").read_bytes()}
        assert_golden(call("fetch", HANDLE), "gap")

    def test_private_ones_want_the_token(self, server, call, model):
        serve(server, model, private=True)
        with pytest.raises(zoo.StoreError, match="or it is private: check.*HF_TOKEN"):
            call("fetch", HANDLE)
        assert_golden(call("fetch", HANDLE, environment={"HF_TOKEN": hub_server.TOKEN}))

    def test_that_is_not_there(self, call):
        with pytest.raises(
            zoo.StoreError, match="hf://a/b: there is no http.*/a/b, or"
        ):
            call("fetch", "hf://a/b")

    def test_gated(self, server, call, model):
        serve(server, model, gated=True)
        with pytest.raises(zoo.StoreError, match="gated: ask for access at http.*/vit"):
            call("fetch", HANDLE)

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            (
                ["pytorch_model.bin", "config.json"],
                "only pytorch_model.bin, and a pick",
            ),
            (["model.pt", "a.ckpt"], "has only a.ckpt, model.pt.*save_pretrained"),
            (["README.md"], "has none of model.safetensors, .*: it has README.md"),
            ([], "it has no files"),
            (["sub/model.safetensors"], "has none of .*: it has sub/model.safetensors"),
        ],
    )
    def test_nothing_that_is_read(self, files, message, server, call):
        serve(server, dict.fromkeys(files, b"{}"))
        with pytest.raises(zoo.StoreError, match=message):
            call("fetch", HANDLE)
        assert not any(".bin" in path for _, path in server.requests)

    @pytest.mark.parametrize(
        "environment", [{"KERAS_VIT_OFFLINE": "1"}, {"HF_HUB_OFFLINE": "1"}]
    )
    def test_offline(self, environment, server, call, model):
        # Another commit than in the other tests, which the process still knows.
        serve(server, model | {"README.md": repr(environment).encode()})
        with pytest.raises(zoo.StoreError, match="OFFLINE is set: unset it"):
            call("fetch", HANDLE, environment=environment)
        assert server.requests == []
        folder = call("fetch", HANDLE)
        server.requests.clear()
        again = {**OWN, **environment}
        assert call("fetch", HANDLE, environment=again) == folder
        assert server.requests == []

    @pytest.mark.parametrize("gone", ["model.safetensors", "preprocessor_config.json"])
    def test_offline_and_not_whole(self, gone, server, call, model):
        """Without its settings a model would be taken for another."""
        serve(server, model)
        pathlib.Path(call("fetch", HANDLE), gone).unlink()
        with pytest.raises(zoo.StoreError, match="was not downloaded whole before"):
            call("fetch", HANDLE, environment={"KERAS_VIT_OFFLINE": "1"})

    def test_no_network(self, server, call, model):
        serve(server, model | {"README.md": b"no network"})
        unreachable = {"HF_ENDPOINT": "http://127.0.0.1:9"}
        with pytest.raises(zoo.StoreError, match="Connect.*Check the network"):
            call("fetch", HANDLE, environment=unreachable)
        folder = call("fetch", HANDLE)
        assert call("fetch", HANDLE, environment=unreachable) == folder

    def test_a_hub_out_of_order(self, server, call):
        server.broken = 500
        with pytest.raises(zoo.StoreError, match="refused it .*500.*try again later"):
            call("fetch", HANDLE)

    def test_a_cache_that_cannot_be_written(self, server, call, model, home):
        serve(server, model)
        home.write_text("not a folder")
        with pytest.raises(zoo.StoreError, match="set HF_HOME to a folder that can be"):
            call("fetch", HANDLE)


class TestPush:
    """A folder becomes a repository."""

    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "published"
        (folder / "saved_model").mkdir(parents=True)
        (folder / "model.npz").write_bytes((GOLDENS / "token.npz").read_bytes())
        (folder / "model.json").write_text("{}")
        (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Vit\n")
        (folder / "saved_model" / "a.pb").write_bytes(b"graph")
        return folder

    @pytest.fixture
    def push(self, call, folder):
        def push(name="somebody/vit", token=hub_server.TOKEN, **kwargs):
            environment = {"HF_TOKEN": token} if token else {}
            path = str(kwargs.pop("folder", folder))
            return call("push", path, name, environment=environment, **kwargs)

        return push

    def test_and_back(self, server, call, push):
        assert push(message="The first") == f"{server.url}/somebody/vit"
        repository = server.repositories["somebody/vit"]
        assert not repository.private
        assert server.messages == ["The first"]
        assert sorted(repository.revisions["main"]) == [
            "README.md",
            "model.json",
            "model.npz",
            "saved_model/a.pb",
        ]
        assert ("POST", "/somebody/vit.git/info/lfs/objects/batch") in server.requests
        assert_golden(call("fetch", HANDLE))

    def test_again(self, server, push, folder):
        push(private=True)
        assert server.repositories["somebody/vit"].private
        (folder / "model.json").write_text('{"new": 1}')
        push()
        repository = server.repositories["somebody/vit"]
        assert repository.revisions["main"]["model.json"] == b'{"new": 1}'
        assert len(server.messages) == 2

    def test_without_a_token(self, server, push):
        with pytest.raises(
            zoo.StoreError, match="nobody is logged in.*auth login.*HF_T"
        ):
            push(token=None)
        assert server.requests == []

    def test_with_another_token(self, push):
        with pytest.raises(zoo.StoreError, match="token may not do that.*HF_TOKEN"):
            push(token="hf_of_another")

    def test_to_somebody_else(self, push):
        with pytest.raises(
            zoo.StoreError, match="to else/vit: the token may not.*right"
        ):
            push("else/vit")

    def test_what_is_no_model(self, server, push, tmp_path):
        with pytest.raises(zoo.StoreError, match="no folder .*gone: check the path"):
            push(folder=tmp_path / "gone")
        (tmp_path / "notes.txt").write_text("not a model")
        with pytest.raises(zoo.StoreError, match="has none of model.safetensors"):
            push(folder=tmp_path)
        assert server.requests == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "vit",
        "/vit",
        "google/",
        "google//vit",
        "google/vit/file",
        "../vit",
        "google/..",
        "google/a..b",
        ".hidden/vit",
        "google/vit.",
        "goo gle/vit",
        "google\\vit",
        "google/vit?x=1",
        "google/vit\n",
        "google/ViT-é",
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
    assert hub.is_handle("hf://google/vit")
    assert hub.is_handle("hf://")
    for source in ("google/vit", "https://huggingface.co/google/vit", GOLDENS):
        assert not hub.is_handle(source)


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

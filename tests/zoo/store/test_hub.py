"""The Hugging Face hub, as a server on this machine plays it."""

import errno
import hashlib
import json
import pathlib
import sys
import urllib.parse
from unittest import mock

import pytest
from peer_files import folder_of
from serving import Quiet, serving

import zoo
from zoo.store import hub

constants = pytest.importorskip("huggingface_hub.constants")
errors = pytest.importorskip("huggingface_hub.errors")
pytestmark = pytest.mark.usefixtures("cache")

TOKEN = "hf_of_somebody"
BESIDE = ("config.json", "preprocessor_config.json")
MODEL = {
    name: (folder_of("dino_transformers") / name).read_bytes()
    for name in ("model.safetensors", *BESIDE)
}
HANDLE = "hf://somebody/vit"
OTHERS = ("README.md", "pytorch_model.bin", "model.keras", "saved_model/a.pb")


class Hub(Quiet):
    """Answers what the library asks for to read somebody's models."""

    def do_HEAD(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        self.server.requests.append(path)
        answer = self.server.answers.get(path, {})
        status = 200 if path in self.server.answers else 404
        code = "RevisionNotFound" if "somebody/vit" in path else "RepoNotFound"
        where, *refusal = self.server.refusal or ("", status, code)
        if where in path and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, code = refusal
        commit = path.partition("/resolve/")[2].partition("/")[0]
        self.answer(status, answer, {"X-Error-Code": code, "X-Repo-Commit": commit})

    do_GET = do_HEAD

    def answer(self, status, content, headers):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(status)
        headers |= {"Content-Length": len(content), "ETag": f'"{digest(content)}"'}
        for name, text in headers.items():
            self.send_header(name, str(text))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def digest(content):
    return hashlib.sha1(content).hexdigest()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A hub without repositories, of which nothing was downloaded."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serving(Hub, answers={}, refusal=None, requests=[]) as server:
        connect(monkeypatch, server.url)
        yield server


def connect(monkeypatch, url):
    template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)


@pytest.fixture
def serve(server):
    """Puts files into a revision of a repository, and returns its commit."""

    def put(files=MODEL, revision="main"):
        commit, api = digest(repr(files).encode()), "/api/models/somebody/vit"
        siblings = [{"rfilename": name} for name in files]
        model = {"id": "somebody/vit", "sha": commit, "siblings": siblings, "tags": []}
        server.answers |= {f"{api}/revision/{at}": model for at in (revision, commit)}
        server.answers[f"{api}/tree/{commit}"] = [
            {"type": "file", "path": name, "size": len(file), "oid": digest(file)}
            for name, file in files.items()
        ]
        folder = f"/somebody/vit/resolve/{commit}"
        server.answers |= {f"{folder}/{name}": file for name, file in files.items()}
        return commit

    return put


def assert_whole(folder, files=MODEL):
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == files


def test_only_what_is_read_comes_and_only_once(server, serve):
    serve(MODEL | dict.fromkeys(OTHERS, b"never read"))
    folder = hub.fetch(HANDLE)
    assert_whole(folder)
    assert not any(o in path for path in server.requests for o in OTHERS)
    # Again, it asks only whether there is something new.
    server.requests.clear()
    assert hub.fetch(HANDLE) == folder
    assert not any("/resolve/" in path for path in server.requests)


def test_a_revision_is_a_branch_or_a_commit_and_branches_move(serve):
    serve()
    # We publish an npz and its card.
    published = {"model.npz": b"arrays", "model.json": b"{}"}
    commit = serve(published | {"model.keras": b"never read"}, "v2.0")
    assert_whole(hub.fetch(HANDLE))
    for revision in ("v2.0", commit):
        assert_whole(hub.fetch(f"{HANDLE}@{revision}"), published)
    serve(published)
    assert_whole(hub.fetch(HANDLE), published)
    with pytest.raises(zoo.StoreError, match=r"hf://somebody/vit@v3: it has no suc"):
        hub.fetch(f"{HANDLE}@v3")


@pytest.mark.parametrize(
    "go_offline",
    [
        lambda patch: patch.setenv("KERAS_VIT_OFFLINE", "1"),
        # The library reads its variable when it is imported.
        lambda patch: patch.setattr(constants, "HF_HUB_OFFLINE", True),
    ],
)
def test_offline_the_last_download_is_taken(
    server, serve, tmp_path, go_offline, monkeypatch
):
    serve()
    with monkeypatch.context() as patch:
        go_offline(patch)
        with pytest.raises(zoo.StoreError, match="OFFLINE is set: unset it"):
            hub.fetch(HANDLE)
    assert server.requests == []
    assert hub.cached(HANDLE) is None
    folder = hub.fetch(HANDLE)
    assert hub.cached(HANDLE) == folder
    # In a home of another name the library knows only what is on the disk.
    moved = (tmp_path / "home").rename(tmp_path / "moved")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(moved))
    server.requests.clear()
    go_offline(monkeypatch)
    assert hub.fetch(HANDLE) == moved / folder.relative_to(tmp_path / "home")
    assert server.requests == []


@pytest.mark.parametrize("gone", ["model.safetensors", "preprocessor_config.json"])
def test_without_a_network_the_last_download_is_taken_if_it_is_whole(
    gone, serve, monkeypatch
):
    serve()
    with monkeypatch.context() as patch:
        connect(patch, "http://127.0.0.1:9")
        with pytest.raises(zoo.StoreError, match="Connect.*Check the network"):
            hub.fetch(HANDLE)
    folder = hub.fetch(HANDLE)
    connect(monkeypatch, "http://127.0.0.1:9")
    assert hub.fetch(HANDLE) == folder
    # Without its settings a model would be taken for another.
    (folder / gone).unlink()
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(zoo.StoreError, match="was not downloaded whole before"):
        hub.fetch(HANDLE)


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


def test_refusals_of_the_hub(server, serve, monkeypatch):
    with pytest.raises(zoo.StoreError, match="hf://a/b: there is no http.*/a/b, or"):
        hub.fetch("hf://a/b")
    serve()
    server.refusal = ("/resolve/", 401, "GatedRepo")
    with pytest.raises(zoo.StoreError, match="gated: ask for access at http.*/vit"):
        hub.fetch(HANDLE)
    server.refusal = ("/", 500, None)
    with pytest.raises(zoo.StoreError, match="refused it .*500.*try again later"):
        hub.fetch(HANDLE)
    server.refusal = ("/", 401, "RepoNotFound")
    with pytest.raises(zoo.StoreError, match="or it is private: check.*HF_TOKEN"):
        hub.fetch(HANDLE)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert_whole(hub.fetch(HANDLE))


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
    broken = mock.Mock(side_effect=error)
    monkeypatch.setattr("huggingface_hub.snapshot_download", broken)
    with pytest.raises(zoo.StoreError, match=f"download {HANDLE}: .*{message}"):
        hub.fetch(HANDLE)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(zoo.StoreError, match="pip install --upgrade huggingface_hub"):
        hub.fetch(HANDLE)


@pytest.fixture
def api(tmp_path, monkeypatch):
    """What is called in place of the library to upload, and a folder with a model."""
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "model.npz").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    api = mock.Mock()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: api)
    return api


def test_a_folder_is_pushed_to_a_repository_new_or_not(api):
    api.create_repo.return_value = url = "https://hub/somebody/vit"
    assert hub.push("published", "somebody/vit", message="One", private=True) == url
    api.create_repo.assert_called_once_with("somebody/vit", private=True, exist_ok=True)
    api.upload_folder.assert_called_once_with(
        repo_id="somebody/vit",
        folder_path=pathlib.Path("published"),
        commit_message="One",
    )
    hub.push("published", "somebody/vit")
    assert not api.create_repo.call_args.kwargs["private"]


@pytest.mark.parametrize(
    ("token", "folder", "status", "message"),
    [
        ("", "published", None, "nobody is logged in.*auth login.*HF_T"),
        (TOKEN, "published", 401, "token may not do that.*HF_TOKEN"),
        (TOKEN, "published", 403, "to somebody/vit: the token may not.*No right"),
        (TOKEN, "published", 500, "hub refused it .*: try again later"),
        (TOKEN, "gone", None, "no folder .*gone: check the path"),
        (TOKEN, ".", None, "has none of model.safetensors"),
    ],
)
def test_a_push_that_is_refused(api, monkeypatch, token, folder, status, message):
    monkeypatch.setenv("HF_TOKEN", token)
    refusal = mock.Mock(status_code=status)
    api.create_repo.side_effect = errors.HfHubHTTPError("No right", response=refusal)
    with pytest.raises(zoo.StoreError, match=message):
        hub.push(folder, "somebody/vit")
    api.upload_folder.assert_not_called()


@pytest.mark.parametrize(
    "name",
    [
        *("", "vit", "/vit", "google/", "google//vit", "google/vit/file", "../vit"),
        *("google/a..b", ".hidden/vit", "google/vit.", "google/vit\n", "google/ViT-é"),
        *("google/..", "goo gle/vit", "google\\vit", "google/vit?x=1"),
    ],
)
def test_names_that_are_none(name):
    assert hub.is_handle(f"hf://{name}")
    with pytest.raises(zoo.StoreError, match="expected org/name, as in hf://google"):
        hub.fetch(f"hf://{name}")
    with pytest.raises(zoo.StoreError, match="expected org/name"):
        hub.push(pathlib.Path(), name)


def test_shards_come_with_their_index():
    index, shards = "model.safetensors.index.json", "model-*-of-*.safetensors"
    assert hub._choose([index, "pytorch_model-00001.bin"], "") == [index, shards]


def test_revisions_that_are_none():
    for revision in ("", "..", "../../x", "a//b", "/a", "a b", "a@b"):
        with pytest.raises(zoo.StoreError, match="is not a branch, tag or commit"):
            hub.fetch(f"{HANDLE}@{revision}")
    for source in ("google/vit", "https://huggingface.co/google/vit", pathlib.Path()):
        assert not hub.is_handle(source)

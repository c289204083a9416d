import base64
import errno
import gzip
import hashlib
import http.server
import io
import json
import pathlib
import re
import threading
import types

import pytest

import zoo
from zoo import store
from zoo.store import transport

pytestmark = pytest.mark.usefixtures("cache")

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()
BUCKETS = "https://storage.googleapis.com"


def md5(content):
    return base64.b64encode(hashlib.md5(content).digest()).decode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Each path is a way to behave; every request is counted."""

    def do_GET(self):
        self.server.requests.append(self.path)
        name = self.path.split("?")[0].split("/")[-1]
        if name == "missing.npz":
            return self.send_error(404)
        if name == "broken.npz":
            return self.send_error(503)
        if name == "moved.npz":
            self.send_response(302)
            self.send_header("Location", "/bucket/good.npz")
            self.send_header("Content-Length", "0")
            self.send_header("x-goog-hash", f"md5={md5(b'the redirect')}")
            return self.end_headers()
        body = b"\n<!DOCTYPE html><p>Log in" if name == "page.npz" else CONTENT
        length = len(body) + (100 if name == "short.npz" else 0)
        self.send_response(200)
        if name != "unsized.npz":
            self.send_header("Content-Length", str(length))
        if name == "wrong_md5.npz":
            self.send_header("x-goog-hash", "crc32c=AAAAAA==")
            self.send_header("x-goog-hash", f"md5={md5(b'other')}")
        elif name == "unpacked.npz":
            self.send_header("x-goog-stored-content-encoding", "gzip")
            self.send_header("x-goog-hash", f"md5={md5(b'the packed file')}")
        elif name == "good.npz":
            self.send_header("x-goog-hash", f"crc32c=AAAAAA==,md5={md5(body)}")
        self.end_headers()
        return self.wfile.write(body)

    def log_message(self, *_):
        """Keeps quiet."""


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.requests = []
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def files(folder):
    """All but empty locks."""
    return sorted(
        path.name
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    )


def test_a_download_is_cached_with_its_record(server, cache):
    url = f"{server.url}/bucket/good.npz"
    path = zoo.fetch(url, file_size=10_300, sha256=SHA256.upper())
    assert path.read_bytes() == CONTENT
    assert path.parent == cache
    assert path.name.endswith("-good.npz")
    assert files(cache) == [path.name, f"{path.name}.json"]
    record = json.loads((cache / f"{path.name}.json").read_text())
    assert record == {"url": url, "bytes": len(CONTENT), "sha256": SHA256}
    assert zoo.verify(path) == SHA256
    assert zoo.fetch(url, file_size=10_300, sha256=SHA256) == path
    assert len(server.requests) == 1


def test_a_cached_file_needs_no_network(server, monkeypatch):
    url = f"{server.url}/good.npz"
    path = zoo.fetch(url)
    server.shutdown()
    server.server_close()
    assert zoo.fetch(url) == path
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert zoo.fetch(url, sha256=SHA256) == path


def test_the_mirror_replaces_the_buckets(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_MIRROR", server.url + "/")
    url = f"{BUCKETS}/vit_models/a%2Bb/good.npz"
    path = zoo.fetch(url)
    assert path.read_bytes() == CONTENT
    assert server.requests == ["/vit_models/a%2Bb/good.npz"]
    # The same file with and without a mirror.
    monkeypatch.delenv("KERAS_VIT_MIRROR")
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert zoo.fetch(url) == path


def test_redirects_and_servers_that_say_little(server):
    for name in ("moved.npz", "unsized.npz", "unpacked.npz"):
        assert zoo.fetch(f"{server.url}/{name}").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.npz", "missing.npz with status 404 .there is no such file"),
        ("broken.npz", "broken.npz with status 503 .*5 times.*try again later"),
        ("page.npz", "web page instead of .*page.npz"),
        ("short.npz", "short.npz broke off after 10240 of 10340 bytes, and 5 more"),
        ("wrong_md5.npz", "wrong_md5.npz has md5 .* expected"),
    ],
)
def test_a_bad_download_leaves_nothing(server, cache, name, message):
    with pytest.raises(zoo.StoreError, match=message):
        zoo.fetch(f"{server.url}/{name}")
    assert files(cache) == []


def test_what_the_caller_expects_is_checked(server, cache):
    url = f"{server.url}/good.npz"
    with pytest.raises(zoo.StoreError, match="10240 bytes, expected about 11000"):
        zoo.fetch(url, file_size=11_000)
    with pytest.raises(zoo.StoreError, match=f"sha256 {SHA256}, expected {'0' * 64}"):
        zoo.fetch(url, sha256="0" * 64)
    assert files(cache) == []
    zoo.fetch(url)
    with pytest.raises(zoo.StoreError, match="expected about 11000.*delete"):
        zoo.fetch(url, file_size=11_000)
    with pytest.raises(zoo.StoreError, match="sha256"):
        zoo.fetch(url, sha256="0" * 64)


def test_a_cached_file_that_changed(server):
    url = f"{server.url}/good.npz"
    path = zoo.fetch(url)
    path.write_bytes(b"x" * len(CONTENT))
    assert zoo.fetch(url) == path  # the cheap check sees sizes only
    with pytest.raises(zoo.StoreError, match="sha256"):
        zoo.verify(path)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(zoo.StoreError, match="10239 bytes but 10240.*delete it"):
        zoo.fetch(url)
    path.unlink()
    assert zoo.fetch(url).read_bytes() == CONTENT
    (path.parent / f"{path.name}.json").write_text("{}")
    with pytest.raises(zoo.StoreError, match=r"record .*json is unreadable.*delete"):
        zoo.fetch(url)


def test_no_network_says_what_to_do_by_hand(cache):
    url = "http://127.0.0.1:9/a/ViT-B_16.npz"
    with pytest.raises(zoo.StoreError) as error:
        zoo.fetch(url, file_size=len(CONTENT))
    by_hand = str(error.value).partition("by hand and save it as ")[2].rstrip(".")
    assert f"Download {url} by hand" in str(error.value)
    assert files(cache) == []
    # Which is then true.
    pathlib.Path(by_hand).write_bytes(CONTENT)
    assert zoo.fetch(url, file_size=len(CONTENT)) == pathlib.Path(by_hand)
    assert zoo.fetch(url, sha256=SHA256) == pathlib.Path(by_hand)
    with pytest.raises(zoo.StoreError, match="sha256"):
        zoo.fetch(url, sha256="0" * 64)
    with pytest.raises(zoo.StoreError, match="no record of a download"):
        zoo.verify(by_hand)


def test_offline(server, cache, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(zoo.StoreError, match="OFFLINE is set: unset.*by hand.*cache"):
        zoo.fetch(f"{server.url}/good.npz")
    assert server.requests == []
    assert not cache.exists()
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "0")
    assert zoo.fetch(f"{server.url}/good.npz").exists()


def test_an_unwritable_cache(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    for cache in ("file", "file/below"):
        monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / cache))
        with pytest.raises(zoo.StoreError, match="Cannot write to the cache.*_CACHE"):
            zoo.fetch(f"{server.url}/good.npz")


def test_a_folder_in_the_way(server, cache):
    path = zoo.fetch(f"{server.url}/good.npz")
    path.unlink()
    path.mkdir()
    with pytest.raises(zoo.StoreError, match="in the way"):
        zoo.fetch(f"{server.url}/good.npz")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(server, cache, monkeypatch, number):
    append = transport._append

    def full(*arguments):
        append(*arguments)
        raise OSError(number, "full")

    monkeypatch.setattr(transport, "_append", full)
    with pytest.raises(zoo.StoreError, match=r"disk is full.*\(380 MiB\).*_CACHE"):
        zoo.fetch(f"{server.url}/good.npz", file_size=380 * 2**20)
    assert files(cache) == []


def test_urls_never_share_a_file_nor_leave_the_cache(server, cache):
    urls = [
        f"{server.url}{rest}"
        for rest in (
            "/a/good.npz",
            "/b/good.npz",
            "/a/good.npz?version=1",
            "/a/good.npz?x=/../../../good.npz",
            "/a/%2e%2e%2fgood.npz",
            "/a/..\\..\\good.npz",
            "/a/../../../../good.npz",
            "/a/..",
            "/a/good.npz\0.txt",
            "/a/good.npz%00",
            "/a/good.npz:stream",
            "/a/good.npz.",
            "/a/CON",
            "/a/aux.npz",
            '/a/é\u202e\n|<>*".npz',
            "/" + "x" * 300 + ".npz",
            "/" + "é" * 300,
            "/a/",
            "",
        )
    ]
    paths = [zoo.fetch(url) for url in urls]
    assert len(set(paths)) == len(urls)
    assert all(path.parent == cache and path.is_file() for path in paths)
    assert len(files(cache)) == 2 * len(urls)
    assert [path.name for path in cache.parent.iterdir()] == ["cache"]
    for path in paths:
        assert re.fullmatch(r"[0-9a-f]{32}-[\w.+-]*(?<!\.)", path.name, re.ASCII)
        assert len(path.name) < 200


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///a.npz",
        "http://[::1/a.npz",
        "http://a:b:c/d.npz",
        "http://127.0.0.1:99999/a.npz",
        "http://.invalid/a.npz",
        "http://" + "a" * 70 + ".invalid/a.npz",
        "http://\udcff/a.npz",
        "http://127.0.0.1/\udcff.npz",
        "http://\0/a.npz",
    ],
)
def test_what_is_no_url(cache, url):
    with pytest.raises(zoo.StoreError):
        zoo.fetch(url)
    assert not cache.exists() or files(cache) == []


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_VIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    url = f"{BUCKETS}/a/b.npz"
    assert store.cache_dir() == tmp_path / "xdg" / "keras_vit"
    assert store._cached_path(url).parent == store.cache_dir()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.cache_dir() == tmp_path / ".cache" / "keras_vit"


def test_the_cached_files_are_listed(server, cache):
    assert store.cached() == []
    urls = [f"{server.url}/{name}" for name in ("good.npz", "b/names.json", "gone")]
    paths = [zoo.fetch(url) for url in urls]
    paths.pop().unlink()
    (cache / "by_hand.npz").write_bytes(CONTENT)
    assert store.cached() == sorted(
        (
            store.CachedFile(path, url, len(CONTENT), SHA256)
            for path, url in zip(paths, urls, strict=False)
        ),
        key=lambda file: file.path,
    )
    (cache / f"{paths[0].name}.json").write_text("[]")
    with pytest.raises(zoo.StoreError, match="unreadable.*delete"):
        store.cached()


def test_local_paths(tmp_path):
    path = tmp_path / "mine.npz"
    with pytest.raises(zoo.StoreError, match="no file .*mine.npz"):
        zoo.fetch(path)
    path.write_bytes(CONTENT)
    assert zoo.fetch(path) == path
    assert zoo.fetch(str(path), file_size=len(CONTENT), sha256=SHA256) == path
    with pytest.raises(zoo.StoreError, match="sha256"):
        zoo.fetch(path, sha256="0" * 64)
    with pytest.raises(zoo.StoreError, match="expected about"):
        zoo.fetch(path, file_size=5)
    with pytest.raises(zoo.StoreError, match="no file"):
        zoo.fetch(tmp_path)


def test_other_protocols(tmp_path):
    with pytest.raises(zoo.StoreError, match=f"gs://vit_models.*{BUCKETS}"):
        zoo.fetch("gs://vit_models/sam/ViT-B_16.npz")


def test_the_progress_bar_goes_to_stderr(server, capsys):
    zoo.fetch(f"{server.url}/good.npz")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "good.npz: 100%" in captured.err


@pytest.mark.parametrize("piece", [1, 2, 1000])
def test_a_compressed_body_comes_in_any_pieces(piece):
    content = bytes(range(256)) * 40
    body = io.BytesIO(gzip.compress(content))
    raw = types.SimpleNamespace(
        read1=lambda size, decode_content: body.read(min(size, piece))
    )
    response = types.SimpleNamespace(
        raw=raw, headers={"content-encoding": "gzip"}, url="http://127.0.0.1"
    )
    read, found = transport._reader(response), b""
    while block := read(1000):
        found += block
    assert found == content

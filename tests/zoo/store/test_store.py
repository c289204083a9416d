"""The cache: where files are kept, what is recorded and checked, and local paths."""

import json
import pathlib
import re

import pytest
from servers import CONTENT, CUT, SHA256, assert_right, left

import zoo
from zoo import store

pytestmark = pytest.mark.usefixtures("cache")

BUCKETS = "https://storage.googleapis.com"


def test_a_download_is_recorded_and_needs_no_network_again(
    server, offer, cache, capsys, monkeypatch
):
    url = offer(CUT, name="b/good.npz")
    path = zoo.fetch(url, file_size=300_900, sha256=SHA256.upper())
    assert path.parent == cache
    assert path.name.endswith("-good.npz")
    assert_right(cache, url, path)
    assert store.cached() == [store.CachedFile(path, url, len(CONTENT), SHA256)]
    record = json.loads((cache / f"{path.name}.json").read_text())
    assert record == {"url": url, "bytes": len(CONTENT), "sha256": SHA256}
    captured = capsys.readouterr()
    assert captured.out == "" and "good.npz: 100%" in captured.err
    server.shutdown()
    server.server_close()
    assert zoo.fetch(url, file_size=300_900, sha256=SHA256) == path
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert zoo.fetch(url, sha256=SHA256) == path
    assert len(server.log) == 2


def test_offline(server, offer, cache, monkeypatch):
    url = offer()
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(zoo.StoreError, match="OFFLINE is set: unset.*by hand.*cache"):
        zoo.fetch(url)
    assert server.log == []
    assert not cache.exists()
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "0")
    assert zoo.fetch(url).exists()


def test_the_mirror_replaces_the_buckets(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_MIRROR", server.url + "/")
    url = f"{BUCKETS}/vit_models/a%2Bb/good.npz"
    path = zoo.fetch(url)
    assert path.read_bytes() == CONTENT
    assert server.log == [("/vit_models/a%2Bb/good.npz", None)]
    # The same file with and without a mirror.
    monkeypatch.delenv("KERAS_VIT_MIRROR")
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert zoo.fetch(url) == path


def test_a_cached_file_that_changed(offer, cache):
    url = offer()
    path = zoo.fetch(url)
    for expected, message in (
        ({"file_size": 350_000}, "expected about 350000.*delete"),
        ({"sha256": "0" * 64}, "sha256"),
    ):
        with pytest.raises(zoo.StoreError, match=message):
            zoo.fetch(url, **expected)
    path.write_bytes(b"x" * len(CONTENT))
    assert zoo.fetch(url) == path  # the cheap check sees sizes only
    with pytest.raises(zoo.StoreError, match="sha256"):
        zoo.verify(path)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(zoo.StoreError, match="299999 bytes but 300000.*delete it"):
        zoo.fetch(url)
    path.unlink()
    path.mkdir()
    with pytest.raises(zoo.StoreError, match="in the way"):
        zoo.fetch(url)
    path.rmdir()
    assert zoo.fetch(url).read_bytes() == CONTENT
    for record in ("{}", "[]"):
        (cache / f"{path.name}.json").write_text(record)
        for use in (lambda: zoo.fetch(url), store.cached):
            with pytest.raises(zoo.StoreError, match=r"record .*json is unread.*delet"):
                use()


def test_no_network_says_what_to_do_by_hand(cache):
    url = "http://127.0.0.1:9/a/ViT-B_16.npz"
    with pytest.raises(zoo.StoreError) as error:
        zoo.fetch(url, file_size=len(CONTENT))
    by_hand = str(error.value).partition("by hand and save it as ")[2].rstrip(".")
    assert f"Download {url} by hand" in str(error.value)
    assert left(cache) == []
    # Which is then true.
    pathlib.Path(by_hand).write_bytes(CONTENT)
    assert zoo.fetch(url, file_size=len(CONTENT)) == pathlib.Path(by_hand)
    assert zoo.fetch(url, sha256=SHA256) == pathlib.Path(by_hand)
    assert store.cached() == []
    with pytest.raises(zoo.StoreError, match="sha256"):
        zoo.fetch(url, sha256="0" * 64)
    with pytest.raises(zoo.StoreError, match="no record of a download"):
        zoo.verify(by_hand)


def test_a_cache_that_cannot_be_written(offer, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    for cache in ("file", "file/below"):
        monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / cache))
        with pytest.raises(zoo.StoreError, match="Cannot write to the cache.*_CACHE"):
            zoo.fetch(offer())


def test_urls_never_share_a_file_nor_leave_the_cache(server, cache):
    urls = [
        f"{server.url}{rest}"
        for rest in (
            *("/a/good.npz", "/b/good.npz", "/a/good.npz?version=1", "/a/..", "/a/"),
            *("/a/good.npz?x=/../../../good.npz", "/a/%2e%2e%2fgood.npz", ""),
            *("/a/..\\..\\good.npz", "/a/../../../../good.npz", "/a/good.npz\0.txt"),
            *("/a/good.npz%00", "/a/good.npz:stream", "/a/good.npz.", "/a/CON"),
            *("/a/aux.npz", '/a/é\u202e\n|<>*".npz'),
            *("/" + "x" * 300 + ".npz", "/" + "é" * 300),
        )
    ]
    paths = [zoo.fetch(url) for url in urls]
    assert len(set(paths)) == len(urls)
    assert all(path.parent == cache and path.is_file() for path in paths)
    assert len(left(cache)) == 2 * len(urls)
    assert [path.name for path in cache.parent.iterdir()] == ["cache"]
    for path in paths:
        assert re.fullmatch(r"[0-9a-f]{32}-[\w.+-]*(?<!\.)", path.name, re.ASCII)
        assert len(path.name) < 200
    paths.pop().unlink()
    listed = {file.path: file.url for file in store.cached()}
    assert listed == dict(zip(paths, urls, strict=False))
    assert list(listed) == sorted(paths)


@pytest.mark.parametrize(
    "url",
    [
        *("http://", "http:///a.npz", "http://[::1/a.npz", "http://a:b:c/d.npz"),
        *("http://127.0.0.1:99999/a.npz", "http://.invalid/a.npz", "http://\0/a.npz"),
        *("http://\udcff/a.npz", "http://127.0.0.1/\udcff.npz"),
        "http://" + "a" * 70 + ".invalid/a.npz",
    ],
)
def test_what_is_no_url(cache, url):
    with pytest.raises(zoo.StoreError):
        zoo.fetch(url)
    assert left(cache) == []


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_VIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert store.cache_dir() == tmp_path / "xdg" / "keras_vit"
    assert store.latest_copy(f"{BUCKETS}/a/b.npz").parent == store.cache_dir()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.cache_dir() == tmp_path / ".cache" / "keras_vit"


def test_local_paths(tmp_path):
    path = tmp_path / "mine.npz"
    path.write_bytes(CONTENT)
    assert zoo.fetch(path) == path
    assert zoo.fetch(str(path), file_size=len(CONTENT), sha256=SHA256) == path
    for source, expected, message in (
        (path, {"sha256": "0" * 64}, "sha256"),
        (path, {"file_size": 5}, "expected about"),
        (tmp_path, {}, "no file"),
        (tmp_path / "none.npz", {}, "no file .*none.npz"),
        ("gs://vit_models/a.npz", {}, f"gs://vit_models.*{BUCKETS}"),
    ):
        with pytest.raises(zoo.StoreError, match=message):
            zoo.fetch(source, **expected)

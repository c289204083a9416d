"""Downloads: where they are kept, what is recorded and checked, and how they go on."""

import concurrent.futures
import errno
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

import filelock
import pytest
from servers import (
    CONTENT,
    CUT,
    OTHER,
    SHA256,
    SLOW,
    WAITING,
    WEB_PAGE,
    assert_right,
    hung_up,
    left,
    ranges,
    sent,
)

import zoo
from zoo import store

pytestmark = pytest.mark.usefixtures("cache")

ROOT = pathlib.Path(__file__).parents[3]
BUCKETS = "https://storage.googleapis.com"
CONTINUED = "bytes=150000-"


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
    # A cache that can only be read needs no lock.
    monkeypatch.setattr(filelock, "FileLock", None)
    monkeypatch.setattr(pathlib.Path, "mkdir", None)
    assert zoo.fetch(url, sha256=SHA256) == path
    assert store.cached()[0].path == path
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
    # Make that true.
    pathlib.Path(by_hand).write_bytes(CONTENT)
    found = zoo.fetch(url, file_size=len(CONTENT), sha256=SHA256)
    assert found == pathlib.Path(by_hand)
    assert store.cached() == []
    with pytest.raises(zoo.StoreError, match="sha256"):
        zoo.fetch(url, sha256="0" * 64)
    with pytest.raises(zoo.StoreError, match="no record of a download"):
        zoo.verify(by_hand)


def test_urls_never_share_a_file_nor_leave_the_cache(server, cache):
    places = (
        *("/a/good.npz", "/b/good.npz", "/a/good.npz?version=1", "/a/..", "/a/", ""),
        *("/a/good.npz?x=/../../../good.npz", "/a/%2e%2e%2fgood.npz", "/a/good.npz%00"),
        *("/a/..\\..\\good.npz", "/a/../../../../good.npz", "/a/good.npz\0.txt"),
        *("/a/good.npz:stream", "/a/good.npz.", "/a/CON", '/a/é\u202e\n|<>*".npz'),
        *("/" + "x" * 300 + ".npz", "/" + "é" * 300),
    )
    urls = [f"{server.url}{place}" for place in places]
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


def test_what_is_no_url(cache):
    hosts = ["", "[::1", "a:b:c", "127.0.0.1:99999", "\0", ".invalid", "\udcff"]
    hosts += ["a" * 70 + ".invalid", "127.0.0.1/\udcff"]
    for host in hosts:
        with pytest.raises(zoo.StoreError):
            zoo.fetch(f"http://{host}/a.npz")
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


@pytest.fixture
def broken(offer):
    """Puts a file on the server of which half comes, then nothing; returns its URL."""

    def put(**file):
        url = offer(CUT, 404, **file)
        with pytest.raises(zoo.StoreError, match="404"):
            zoo.fetch(url)
        return url

    return put


@pytest.mark.parametrize("ranges_are", ["right", "blind"])
def test_two_versions_are_never_mixed(server, broken, offer, cache, ranges_are):
    url = broken()
    offer(sent(ranges=ranges_are), content=OTHER, etag='"two"')
    assert_right(cache, url, zoo.fetch(url), OTHER)
    assert ranges(server)[2] == CONTINUED


def test_a_mirror_does_not_go_on_with_the_bytes_of_another(
    server, offer, cache, monkeypatch
):
    url = f"{BUCKETS}/a.npz"
    offer(CUT, 404, name="one/a.npz")
    offer(name="two/a.npz", content=OTHER)
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"{server.url}/one")
    with pytest.raises(zoo.StoreError, match="404.*KERAS_VIT_MIRROR"):
        zoo.fetch(url)
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"{server.url}/two")
    assert_right(cache, url, zoo.fetch(url), OTHER)


def test_a_later_fetch_goes_on_even_after_a_page_or_silence_and_the_bar_with_it(
    server, broken, offer, cache, capsys, monkeypatch
):
    monkeypatch.setattr("zoo.store.progress._LOG_SECONDS", 0)
    url = broken()
    assert any(name.endswith("a.npz.part") for name in left(cache))
    for reply, message in ((WEB_PAGE, "web page"), (hung_up, "failed, 5 times")):
        offer(*[reply] * 5)
        with pytest.raises(zoo.StoreError, match=message):
            zoo.fetch(url)
    offer()
    capsys.readouterr()
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[-1] == CONTINUED
    assert re.search(r"a.npz: +50%.*150k/300k", capsys.readouterr().err)


def test_the_bytes_of_an_earlier_transfer_count(server, broken, offer, cache):
    url = broken()
    assert len(left(cache)) == 2
    offer(sent(CONTENT + bytes(10**7), total=len(CONTENT)))
    with pytest.raises(zoo.StoreError, match="has more than 306000 bytes"):
        zoo.fetch(url, file_size=300_000)
    assert ranges(server)[-1] == CONTINUED
    assert left(cache) == []
    # Notes that a power cut damaged do not count either.
    url = broken()
    [note] = cache.glob(".transfers/*.part.json")
    note.write_bytes(b"\0" * 100)
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[-1] is None


def test_the_first_download_is_remembered(offer, cache):
    url = offer()
    path = zoo.fetch(url)
    path.unlink()
    offer(content=OTHER, etag='"two"')
    record = path.with_name(f"{path.name}.json")
    replaced = rf"someone replaced it.*delete {record} and fetch"
    with pytest.raises(zoo.StoreError, match=replaced):
        zoo.fetch(url)
    assert left(cache) == [record.name]
    record.unlink()
    assert_right(cache, url, zoo.fetch(url), OTHER)
    path.unlink()
    assert_right(cache, url, zoo.fetch(url), OTHER)


def test_parts_that_nobody_finishes_do_not_accumulate(broken, offer, cache):
    def parts():
        return [path.name for path in cache.glob(".transfers/*.part*")]

    broken(name="old.npz")
    broken(name="new.npz")
    # They are kept for thirty days.
    for name, days in (("old", 31), ("new", 29)):
        [note] = cache.glob(f".transfers/*{name}.npz.part.json")
        begun = time.time() - days * 24 * 3600
        os.utime(note, (begun, begun))
    zoo.fetch(offer(name="third.npz"))
    assert len(parts()) == 2
    assert all("new.npz.part" in name for name in parts())
    # One that another process holds stays.
    os.utime(note, (1e9, 1e9))
    with filelock.FileLock(str(note).replace(".part.json", ".lock")):
        zoo.fetch(offer(name="fourth.npz"))
        assert len(parts()) == 2
    zoo.fetch(offer(name="fifth.npz"))
    assert parts() == []


def failing_with(number):
    return mock.Mock(side_effect=OSError(number, "as the system says"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_no_part(broken, cache, monkeypatch, number):
    content = bytes(3 * 2**20)
    url = broken(content=content)
    message = r"disk is full.*\(3 MiB\).*KERAS_VIT_CACHE"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_with(number))
        with pytest.raises(zoo.StoreError, match=message):
            zoo.fetch(url, file_size=len(content))
    assert left(cache) == []
    assert_right(cache, url, zoo.fetch(url), content)


def test_an_index_in_a_cache_that_cannot_be_written(offer, tmp_path, monkeypatch):
    url = offer()
    assert store.latest(url, 10**6) == CONTENT
    offer(*[hung_up] * 99)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", failing_with(errno.EROFS))
    with pytest.warns(UserWarning, match="Cannot write to the cache.* copy of the las"):
        assert store.latest(url, 10**6) == CONTENT
    with pytest.raises(zoo.StoreError, match="Cannot write to the cache"):
        store.latest(offer(name="b.npz"), 10**6)
    (tmp_path / "file").write_text("not a folder")
    for cache in ("file", "file/below"):
        monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / cache))
        with pytest.raises(zoo.StoreError, match="Cannot write to the cache.*_CACHE"):
            zoo.fetch(offer())


def test_a_process_that_downloads_is_waited_for_and_when_killed_gone_on_with(
    server, offer, cache, monkeypatch, capsys
):
    monkeypatch.setattr(store, "_NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(store, "_STALL_SECONDS", 0.1)
    url = offer(WAITING)
    code = "import sys, zoo; zoo.fetch(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", code, url], cwd=ROOT) as process:
        while not any(p.stat().st_size for p in cache.glob(".transfers/*.part")):
            assert process.poll() is None
            time.sleep(0.01)
        gives_up = r"holds .*\.lock and .* nothing .* 0\.1 sec.*end that process"
        with pytest.raises(zoo.StoreError, match=gives_up):
            zoo.fetch(url)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert "Waiting for another process to download" in capsys.readouterr().err
    server.go_on.set()
    assert store.cached() == []
    assert_right(cache, url, zoo.fetch(url))
    assert len(server.log) == 2
    assert int(re.fullmatch(r"bytes=(\d+)-", ranges(server)[1])[1]) > 0


@pytest.mark.parametrize("step", [0, 1])
def test_killed_before_the_last_steps(server, offer, cache, monkeypatch, step):
    url, steps = offer(), [mock.DEFAULT] * step + [KeyboardInterrupt]
    replace = mock.Mock(wraps=os.replace, side_effect=steps)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            zoo.fetch(url)
    assert store.cached() == []
    assert_right(cache, url, zoo.fetch(url))
    assert len(server.log) == 1  # all bytes were there


def test_threads_download_once(server, offer, cache):
    url = offer(SLOW)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        paths = list(threads.map(zoo.fetch, [url] * 4))
    assert_right(cache, url, *set(paths))
    assert len(server.log) == 1

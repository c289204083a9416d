"""Downloads that a later call, another process or thread goes on with."""

import concurrent.futures
import errno
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

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
CONTINUED = "bytes=150000-"


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
    url = "https://storage.googleapis.com/a.npz"
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


def test_notes_that_a_power_cut_damaged(server, broken, cache):
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
    with pytest.raises(zoo.StoreError, match="someone replaced it") as error:
        zoo.fetch(url)
    assert left(cache) == [f"{path.name}.json"]
    [record] = re.findall(r"delete (\S+) and fetch", str(error.value))
    pathlib.Path(record).unlink()
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
    [note] = cache.glob(".transfers/*new.npz.part.json")
    os.utime(note, (1e9, 1e9))
    with filelock.FileLock(str(note).replace(".part.json", ".lock")):
        zoo.fetch(offer(name="fourth.npz"))
        assert len(parts()) == 2
    zoo.fetch(offer(name="fifth.npz"))
    assert parts() == []


# The disk


def failing_with(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_no_part(broken, cache, monkeypatch, number):
    content = bytes(3 * 2**20)
    url = broken(content=content)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_with(number))
        message = r"disk is full.*\(3 MiB\).*KERAS_VIT_CACHE"
        with pytest.raises(zoo.StoreError, match=message):
            zoo.fetch(url, file_size=len(content))
    assert left(cache) == []
    assert_right(cache, url, zoo.fetch(url), content)


def test_a_cache_that_can_only_be_read_needs_no_lock(offer, monkeypatch):
    url = offer()
    path = zoo.fetch(url)
    monkeypatch.setattr(filelock, "FileLock", None)
    monkeypatch.setattr(pathlib.Path, "mkdir", None)
    assert zoo.fetch(url, sha256=SHA256) == path
    assert store.cached()[0].path == path


def test_an_index_in_a_cache_that_can_only_be_read(offer, monkeypatch):
    url = offer()
    assert store.latest(url, 10**6) == CONTENT
    offer(*[hung_up] * 99)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", failing_with(errno.EROFS))
    with pytest.warns(UserWarning, match="Cannot write to the cache.* copy of the las"):
        assert store.latest(url, 10**6) == CONTENT
    with pytest.raises(zoo.StoreError, match="Cannot write to the cache"):
        store.latest(offer(name="b.npz"), 10**6)


# Processes and threads


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


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", [0, 1])
def test_killed_before_the_last_steps(server, offer, cache, monkeypatch, step):
    url, steps = offer(), iter([os.replace] * step + [interrupt])
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *paths: next(steps)(*paths))
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

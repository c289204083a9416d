"""Every way a transfer fails, driven by a server on this machine."""

import base64
import contextlib
import dataclasses
import errno
import hashlib
import http.server
import json
import os
import pathlib
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import urllib.parse

import filelock
import pytest
import requests

import zoo
from zoo import store
from zoo.store import transport

pytestmark = pytest.mark.usefixtures("cache")

ROOT = pathlib.Path(__file__).parents[3]
CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PAGE = b"<!DOCTYPE html><title>Log in</title>" + b" " * 400_000


@dataclasses.dataclass
class File:
    """What the server has under a path, and how it behaves, request by request."""

    content: bytes = CONTENT
    etag: str | None = '"one"'
    modified: str | None = None
    md5: bytes | None = None
    moods: list = dataclasses.field(default_factory=list)


class Handler(http.server.BaseHTTPRequestHandler):
    """Files with ranges and validators, unless the mood is another."""

    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        file = self.server.files[path]
        with self.server.lock:
            mood = file.moods.pop(0) if file.moods else "fine"
        self.request_log = (self.headers.get("Range"), mood)
        self.server.log.append(self.request_log)
        if isinstance(mood, int):
            self.send_response(mood)
            self.send_header("Retry-After", "3600")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif mood == "mute":
            self.server.is_silent.set()
            self.server.go_on.wait()
            self.close_connection = True
        elif mood == "hang up":
            self.close_connection = True
        else:
            self.send(file, mood)

    def send(self, file, mood):
        body, start = file.content, 0
        if mood == "page":
            body = PAGE
        elif mood == "wrong":
            body = OTHER
        span = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if span and mood == "stall at first":
            mood = "fine"
        known = (file.etag, file.modified)
        if span and mood in ("shifted", "blind"):
            start = int(span[1])
        elif span and mood not in ("page", "no ranges"):
            start = int(span[1]) if self.headers.get("If-Range") in known else 0
        self.send_response(206 if start else 200)
        if start:
            first = start + (mood == "shifted")
            span = f"bytes {first}-{len(body) - 1}/{len(body)}"
            self.send_header("Content-Range", span)
        if mood != "unsized":
            length = len(body) - start + (mood == "more")
            self.send_header("Content-Length", str(length))
        if file.etag:
            self.send_header("ETag", file.etag)
        if file.modified:
            self.send_header("Last-Modified", file.modified)
        if file.md5:
            md5 = base64.b64encode(hashlib.md5(file.md5).digest()).decode()
            self.send_header("x-goog-hash", f"crc32c=AAAAAA==,md5={md5}")
        self.end_headers()
        self.write(body[start:], mood)

    def write(self, body, mood):
        half = len(body) // 2
        if mood in ("cut", "stall at first", "wait"):
            self.wfile.write(body[:half])
            if mood != "cut":
                self.server.reached.set()
                self.server.go_on.wait()
            body = b"" if mood != "wait" else body[half:]
        elif mood == "drip":
            self.wfile.write(body[:1000])
            for byte in body[1000:]:
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)
                # A client that has left does not wait for this byte.
                if self.server.log[-1] is self.request_log:
                    self.server.now += 0.02
            body = b""
        elif mood == "slow":
            for begin in range(0, len(body), 50_000):
                self.wfile.write(body[begin : begin + 50_000])
                time.sleep(0.01)
            body = b""
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_):
        """Keeps quiet."""


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client that is killed is part of the plan."""


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Handler) as running:
        running.files, running.log, running.lock = {}, [], threading.Lock()
        running.reached, running.go_on = threading.Event(), threading.Event()
        running.is_silent, running.now = threading.Event(), 0.0
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.go_on.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def offer(server):
    """Puts a file on the server and returns its URL."""

    def put(name="a.npz", **file):
        server.files[f"/{name}"] = File(**file)
        return f"{server.url}/{name}"

    return put


@pytest.fixture
def clock(server, monkeypatch):
    """The clock of transfers stands still but for the bytes that the server drips."""
    clock = types.SimpleNamespace(monotonic=lambda: server.now, sleep=lambda _: None)
    monkeypatch.setattr(transport, "time", clock)


@pytest.fixture
def silence(server, clock, monkeypatch):
    """A client gives up as soon as the server has begun to be mute."""

    class Items(queue.Queue):
        def get(self, timeout):
            while True:
                with contextlib.suppress(queue.Empty):
                    return super().get(timeout=0.01)
                if server.is_silent.is_set():
                    server.is_silent.clear()
                    raise queue.Empty

    found = types.SimpleNamespace(Queue=Items, Empty=queue.Empty, Full=queue.Full)
    monkeypatch.setattr(transport, "queue", found)


def wait_until(happened, *processes):
    """Waits until something is so, as long as processes run."""
    while not happened():
        for one in processes:
            assert one.poll() is None, one.communicate()
        time.sleep(0.01)


def ranges(server):
    return [span for span, _ in server.log]


def left(cache):
    """What transfers left behind, but for empty locks."""
    paths = cache.glob(".transfers/*")
    return sorted(path.name for path in paths if path.suffix != ".lock")


def assert_right(cache, url, path, content=CONTENT):
    """The file is whole, recorded, and nothing else is there."""
    assert path.read_bytes() == content
    assert zoo.verify(path) == hashlib.sha256(content).hexdigest()
    assert [file.url for file in store.cached()] == [url]
    assert left(cache) == []


def process(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


FETCH = "import sys, zoo, zoo.store.transport; print(zoo.fetch(sys.argv[1]))"


# Broken bodies


@pytest.mark.parametrize("validator", ["etag", "modified"])
def test_a_cut_connection_goes_on_where_it_broke(server, offer, cache, validator):
    date = "Sat, 21 Nov 2020 12:00:00 GMT"
    known = {"etag": None, "modified": None} | {validator: '"x"', "modified": date}
    url = offer(md5=CONTENT, moods=["cut"], **known)
    assert_right(cache, url, zoo.fetch(url, sha256=SHA256))
    assert ranges(server) == [None, "bytes=150000-"]


def test_it_breaks_again_and_again(server, offer, cache):
    url = offer(moods=["cut"] * 12)
    assert_right(cache, url, zoo.fetch(url))
    starts = [int(span[6:-1]) for span in ranges(server)[1:]]
    assert len(starts) == 12
    assert starts == sorted(starts)


def test_a_stalled_transfer_does_not_hang(server, offer, cache, monkeypatch):
    waits = [0.2]

    def get(session, url, **settings):
        # A busy machine may stall for so long as well, so the next wait is longer.
        settings["timeout"] = (600, waits[-1])
        waits.append(2 * waits[-1])
        return session.request("GET", url, **settings)

    monkeypatch.setattr(requests.Session, "get", get)
    monkeypatch.setattr(transport, "RETRIES", 98)
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0)
    url = offer(moods=["stall at first"] * 99)
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[0] is None
    assert int(ranges(server)[-1][6:-1]) > 0


def test_an_answer_that_does_not_begin_is_asked_for_again(
    server, offer, cache, monkeypatch, silence
):
    monkeypatch.setattr(transport, "RETRIES", 1)
    url = offer(moods=["cut", "mute"])
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server) == [None, *["bytes=150000-"] * 2]
    url = offer("b.npz", moods=["cut", "mute", "mute"])
    with pytest.raises(zoo.StoreError, match="no answer began .* goes on from there"):
        zoo.fetch(url)
    zoo.fetch(url)
    assert ranges(server)[3:] == [None, *["bytes=150000-"] * 3]


@pytest.mark.parametrize("etag", ['"one"', None])
def test_a_server_that_drips(server, offer, cache, monkeypatch, clock, etag):
    monkeypatch.setattr(transport, "SPEED_SECONDS", 0.05)
    monkeypatch.setattr(transport, "LOWEST_SPEED", 50_000)
    url = offer(etag=etag, moods=["drip"] * 99)
    with pytest.raises(
        zoo.StoreError, match=r"little or nothing .* bytes came in \d+ s"
    ):
        zoo.fetch(url)
    assert len(server.log) == 5
    server.files["/a.npz"].moods = ["drip"]
    assert_right(cache, url, zoo.fetch(url))
    starts = [int(span[6:-1]) for span in ranges(server) if span]
    assert len(starts) == (6 if etag else 0)


def test_a_small_file_that_drips(server, offer, monkeypatch, clock):
    monkeypatch.setattr(transport, "SPEED_SECONDS", 0.05)
    monkeypatch.setattr(transport, "LOWEST_SPEED", 100_000)
    url = offer(moods=["drip"] * 99)
    with pytest.raises(zoo.StoreError, match=r"broke off .*bytes came in \d+ se"):
        store.latest(url, 10**6)
    server.files["/a.npz"].moods = ["drip"]
    assert store.latest(url, 10**6) == CONTENT
    with pytest.raises(zoo.StoreError, match="more than 1000 bytes"):
        store.latest(offer("b.npz"), 1000)


def test_a_slow_server(server, offer, cache, monkeypatch):
    monkeypatch.setattr(transport, "SPEED_SECONDS", 0.02)
    url = offer(moods=["slow"])
    assert_right(cache, url, zoo.fetch(url))
    assert len(server.log) == 1


def test_a_later_fetch_goes_on_and_the_bar_with_it(
    server, offer, cache, capsys, monkeypatch
):
    monkeypatch.setattr("zoo.store.progress._LOG_SECONDS", 0)
    url = offer(moods=["cut", 404])
    with pytest.raises(zoo.StoreError, match="404.*no such file"):
        zoo.fetch(url)
    assert any(name.endswith("a.npz.part") for name in left(cache))
    capsys.readouterr()
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[2] == "bytes=150000-"
    assert re.search(r"a.npz: +50%.*150k/300k", capsys.readouterr().err)


def test_it_gives_up_and_says_how_far_it_came(server, offer, cache):
    url = offer(moods=["cut"] + ["hang up"] * 99)
    with pytest.raises(zoo.StoreError, match="connection to 127.*failed, 5 times"):
        zoo.fetch(url)
    server.files["/a.npz"].moods = []
    assert_right(cache, url, zoo.fetch(url))


def test_a_body_that_never_ends_well(server, offer, cache):
    url = offer(moods=["more"] * 99)
    with pytest.raises(zoo.StoreError, match="broke off after 300000 of 300001 bytes"):
        zoo.fetch(url)
    # The server promised one more byte each time, and never had it.
    server.files["/a.npz"].moods = []
    assert_right(cache, url, zoo.fetch(url))


@pytest.mark.parametrize("mood", ["no ranges", "shifted", 416])
def test_servers_that_cannot_go_on(server, offer, cache, mood):
    url = offer(moods=["cut", mood])
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[:2] == [None, "bytes=150000-"]


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_validator_it_begins_anew(server, offer, cache, etag):
    url = offer(etag=etag, moods=["cut"])
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server) == [None, None]
    server.files["/a.npz"].moods = ["cut"] * 99
    next(cache.glob("*a.npz")).unlink()
    with pytest.raises(zoo.StoreError, match="150000 of 300000 b.*5 more.*begins anew"):
        zoo.fetch(url)
    assert left(cache) == []


def test_a_body_without_a_length(server, offer, cache):
    url = offer(moods=["unsized"])
    assert_right(cache, url, zoo.fetch(url))


@pytest.mark.parametrize("mood", ["fine", "blind"])
def test_two_versions_are_never_mixed(server, offer, cache, mood):
    url = offer(moods=["cut", 404])
    with pytest.raises(zoo.StoreError, match="404"):
        zoo.fetch(url)
    # "blind" sends the rest of the new file whatever If-Range says.
    offer(content=OTHER, etag='"two"', moods=[mood])
    assert_right(cache, url, zoo.fetch(url), OTHER)
    assert ranges(server)[2] == "bytes=150000-"


def test_two_urls_are_never_mixed(server, offer, cache, monkeypatch):
    names = ("a/model.npz", "b/model.npz")
    first = offer(names[0], moods=["cut", 404])
    second = offer(names[1], content=OTHER, moods=["cut", 404])
    for url in (first, second):
        with pytest.raises(zoo.StoreError, match="404"):
            zoo.fetch(url)
    assert zoo.fetch(second).read_bytes() == OTHER
    assert zoo.fetch(first).read_bytes() == CONTENT
    assert left(cache) == []


def test_a_mirror_does_not_go_on_with_the_bytes_of_another(
    server, offer, cache, monkeypatch
):
    url = "https://storage.googleapis.com/a.npz"
    offer("one/a.npz", moods=["cut", 404])
    offer("two/a.npz", content=OTHER)
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"{server.url}/one")
    with pytest.raises(zoo.StoreError, match="404.*KERAS_VIT_MIRROR"):
        zoo.fetch(url)
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"{server.url}/two")
    assert_right(cache, url, zoo.fetch(url), OTHER)


# Refusals


@pytest.mark.parametrize("moods", [[503], [429, 500], [502, 504, 408], ["hang up"]])
def test_a_busy_server_is_asked_again(server, offer, cache, moods):
    url = offer(moods=list(moods))
    # Retry-After asks for an hour.
    assert_right(cache, url, zoo.fetch(url))
    assert len(server.log) == len(moods) + 1


def test_a_server_that_stays_busy(server, offer, cache):
    url = offer(moods=[503] * 99)
    with pytest.raises(zoo.StoreError, match="503 .*5 times.*later.*by hand"):
        zoo.fetch(url)
    assert len(server.log) == 5


def test_how_long_a_server_may_ask_to_wait(monkeypatch):
    monkeypatch.setattr(transport, "RETRY_AFTER_SECONDS", 60)
    for asked, seconds in (
        ("7", 7),
        ("3600", 60),
        ("Sat, 21 Nov 2099 12:00:00 GMT", 60),
        ("soon", None),
        ("9" * 5000, None),
        ("-1", None),
    ):
        assert transport._retry_after({"Retry-After": asked}) == seconds
    assert transport._retry_after({}) is None


@pytest.mark.parametrize("status", [401, 403, 404, 410, 204, 206, 304])
def test_other_refusals_are_final(server, offer, cache, status):
    url = offer(moods=[status] * 9)
    with pytest.raises(zoo.StoreError, match=f"refused .*a.npz with status {status}"):
        zoo.fetch(url)
    assert len(server.log) == 1
    assert left(cache) == []


@pytest.mark.parametrize("host", ["127.0.0.1:9", "nowhere.invalid"])
def test_no_network(cache, capsys, host):
    url = f"http://{host}/a.npz"
    with pytest.raises(zoo.StoreError, match=f"connection to {host} failed.*by h") as e:
        zoo.fetch(url)
    assert left(cache) == []
    # Said before the connection is tried, which takes a while.
    assert capsys.readouterr().err == f"Downloading {url}\n"
    # The cause as the system calls it, without the objects of urllib3.
    cause = re.search(r"failed, \d times \((.*?)\): check the network", str(e.value))[1]
    assert not re.search("object|Pool|Retries|0x", cause) and len(cause) < 80


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a.npz", "https://{server}/a.npz"])
def test_what_the_caller_was_handling_is_not_the_networks_reason(server, url):
    url = url.format(server=server.url.removeprefix("http://"))
    with pytest.raises(zoo.StoreError) as alone:
        zoo.fetch(url)
    try:
        raise ValueError("of the caller")
    except ValueError:
        with pytest.raises(zoo.StoreError) as handling:
            zoo.fetch(url)
    assert str(handling.value) == str(alone.value)


def test_a_certificate_that_is_none(server, offer):
    url = offer().replace("http://", "https://")
    with pytest.raises(zoo.StoreError, match="No safe connection.*REQUESTS_CA_BUNDLE"):
        zoo.fetch(url)


def test_proxies(server, offer, cache, monkeypatch):
    offer()
    url = "http://nowhere.invalid/a.npz"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(zoo.StoreError, match="proxy gave no connection.*HTTP_PROXY"):
        zoo.fetch(url)
    monkeypatch.setenv("http_proxy", server.url)
    assert_right(cache, url, zoo.fetch(url))


def test_a_page_instead_of_a_file_costs_nothing(server, offer, cache):
    url = offer(moods=["page"])
    with pytest.raises(zoo.StoreError, match="web page instead of .*log in"):
        zoo.fetch(url)
    assert left(cache) == []
    server.files["/a.npz"].moods = ["cut", "page"]
    with pytest.raises(zoo.StoreError, match="web page"):
        zoo.fetch(url)
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[-1] == "bytes=150000-"


# Wrong bytes


def test_wrong_bytes_are_dropped(server, offer, cache):
    url = offer(md5=CONTENT, moods=["wrong", "wrong", "wrong"])
    with pytest.raises(zoo.StoreError, match="a.npz has md5"):
        zoo.fetch(url)
    assert left(cache) == []
    with pytest.raises(zoo.StoreError, match="expected about 500000"):
        zoo.fetch(offer(), file_size=500_000)
    assert left(cache) == []
    with pytest.raises(zoo.StoreError, match=f"expected {'0' * 64}"):
        zoo.fetch(url, sha256="0" * 64)
    assert left(cache) == []
    assert store.cached() == []
    assert_right(cache, url, zoo.fetch(url))


def test_wrong_bytes_after_a_break_are_dropped_too(server, offer, cache):
    # The same ETag for other bytes: only the checksum can tell.
    url = offer(md5=CONTENT, moods=["cut", "wrong"])
    with pytest.raises(zoo.StoreError, match="a.npz has md5"):
        zoo.fetch(url)
    assert left(cache) == []
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[-1] is None


def test_the_first_download_is_remembered(server, offer, cache):
    url = offer()
    path = zoo.fetch(url)
    path.unlink()
    offer(content=OTHER, etag='"two"')
    with pytest.raises(zoo.StoreError, match="someone replaced it") as error:
        zoo.fetch(url)
    assert not path.exists()
    assert left(cache) == []
    [record] = re.findall(r"delete (\S+) and fetch", str(error.value))
    pathlib.Path(record).unlink()
    assert_right(cache, url, zoo.fetch(url), OTHER)
    path.unlink()
    assert_right(cache, url, zoo.fetch(url), OTHER)


# The disk


def test_a_disk_that_fills_up(offer, cache):
    # The system refuses to write beyond 100,000 bytes, as if the disk ended there.
    resource = pytest.importorskip("resource", reason="needs file size limits")
    url, limits = offer(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(zoo.StoreError, match="Cannot write to the cache") as error:
            zoo.fetch(url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.__cause__.errno == errno.EFBIG
    assert_right(cache, url, zoo.fetch(url))


def test_no_space_left(server, offer, cache, monkeypatch):
    url = offer(moods=["cut", 404])
    with pytest.raises(zoo.StoreError, match="404"):
        zoo.fetch(url)
    fsync = os.fsync

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(zoo.StoreError, match="disk is full.*KERAS_VIT_CACHE"):
        zoo.fetch(url)
    assert left(cache) == []
    monkeypatch.setattr(os, "fsync", fsync)
    assert_right(cache, url, zoo.fetch(url))


def test_a_cache_that_can_only_be_read_needs_no_lock(offer, monkeypatch):
    url = offer()
    path = zoo.fetch(url)
    monkeypatch.setattr(filelock, "FileLock", None)
    monkeypatch.setattr(pathlib.Path, "mkdir", None)
    assert zoo.fetch(url, sha256=SHA256) == path
    assert store.cached()[0].path == path


def test_a_cache_that_cannot_be_written(offer, cache, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "mkdir", refuse)
    with pytest.raises(zoo.StoreError, match="Cannot write to the cache.*CACHE"):
        zoo.fetch(offer())


def test_an_index_in_a_cache_that_can_only_be_read(server, offer, monkeypatch):
    url = offer()
    assert store.latest(url, 10**6) == CONTENT
    offer(moods=["hang up"] * 99)

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    with pytest.warns(UserWarning, match="Cannot write to the cache.* copy of the las"):
        assert store.latest(url, 10**6) == CONTENT
    with pytest.raises(zoo.StoreError, match="Cannot write to the cache"):
        store.latest(offer("b.npz"), 10**6)


# Processes


def test_killed_in_the_middle(server, offer, cache):
    url = offer(moods=["wait"])
    running = process(FETCH, url)

    def has_begun():
        return any(path.stat().st_size for path in cache.glob(".transfers/*.part"))

    wait_until(has_begun, running)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    running.communicate()
    server.go_on.set()
    assert store.cached() == []
    assert_right(cache, url, zoo.fetch(url))
    assert len(server.log) == 2
    assert int(re.fullmatch(r"bytes=(\d+)-", ranges(server)[1])[1]) > 0


@pytest.mark.parametrize("step", [0, 1])
def test_killed_before_the_last_steps(server, offer, cache, monkeypatch, step):
    url, replace, calls = offer(), os.replace, []

    def killed(*paths):
        calls.append(paths)
        if len(calls) > step:
            raise KeyboardInterrupt
        replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            zoo.fetch(url)
    assert store.cached() == []
    assert_right(cache, url, zoo.fetch(url))
    assert len(server.log) == 1  # all bytes were there


def test_an_interrupted_transfer_goes_on(server, offer, cache, monkeypatch):
    url = offer(moods=["cut"])

    def interrupt(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            zoo.fetch(url)
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server) == [None, "bytes=150000-"]


def test_notes_that_a_power_cut_damaged(server, offer, cache):
    url = offer(moods=["cut", 404])
    with pytest.raises(zoo.StoreError, match="404"):
        zoo.fetch(url)
    [note] = cache.glob(".transfers/*.part.json")
    note.write_bytes(b"\0" * 100)
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[-1] is None


def test_processes_download_once(server, offer, cache):
    url = offer(moods=["wait"])
    code = FETCH.replace("print(", "print('ready', flush=True); print(")
    running = [process(code, url) for _ in range(2)]
    assert [one.stdout.readline() for one in running] == ["ready\n"] * 2
    wait_until(server.reached.is_set, *running)
    server.go_on.set()
    outputs = [one.communicate(timeout=600) for one in running]
    assert [one.returncode for one in running] == [0] * 2, outputs
    [path] = {pathlib.Path(out.strip()) for out, _ in outputs}
    assert_right(cache, url, path)
    assert server.log == [(None, "wait")]


def test_threads_download_once(server, offer, cache):
    url, paths = offer(moods=["slow"]), []
    threads = [
        threading.Thread(target=lambda: paths.append(zoo.fetch(url))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 4
    [path] = set(paths)
    assert_right(cache, url, path)
    assert len(server.log) == 1


def test_who_waits_says_so_and_gives_up(server, offer, cache, monkeypatch, capsys):
    monkeypatch.setattr(store, "_NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(store, "_STALL_SECONDS", 0.1)
    url = offer()
    path = store._cached_path(url)
    folder = cache / ".transfers"
    folder.mkdir(parents=True)
    with filelock.FileLock(folder / f"{path.name}.lock"):
        failed = []

        def fetch():
            try:
                zoo.fetch(url)
            except zoo.StoreError as error:
                failed.append(str(error))

        thread = threading.Thread(target=fetch)
        thread.start()
        thread.join()
    assert "Waiting for another process to download" in capsys.readouterr().err
    assert re.search(r"holds .*\.lock and .* nothing .* for 0\.1 sec.*end t", failed[0])
    assert server.log == []
    assert_right(cache, url, zoo.fetch(url))


def test_parts_that_nobody_finishes_do_not_accumulate(
    server, offer, cache, monkeypatch
):
    old, new = (offer(f"{name}.npz", moods=["cut", 404]) for name in ("old", "new"))
    for url in (old, new):
        with pytest.raises(zoo.StoreError, match="404"):
            zoo.fetch(url)
    # They are kept for thirty days.
    for name, days in (("old", 31), ("new", 29)):
        [note] = cache.glob(f".transfers/*{name}.npz.part.json")
        begun = time.time() - days * 24 * 3600
        os.utime(note, (begun, begun))
    zoo.fetch(offer("third.npz"))
    assert len(left(cache)) == 2
    assert all("new.npz.part" in name for name in left(cache))
    # One that another process holds stays.
    [note] = cache.glob(".transfers/*new.npz.part.json")
    os.utime(note, (1e9, 1e9))
    with filelock.FileLock(str(note).replace(".part.json", ".lock")):
        zoo.fetch(offer("fourth.npz"))
        assert len(left(cache)) == 2
    zoo.fetch(offer("fifth.npz"))
    assert left(cache) == []


def test_a_record_tells_what_was_fetched(offer, cache):
    url = offer(moods=["cut"])
    path = zoo.fetch(url)
    assert store.cached() == [store.CachedFile(path, url, len(CONTENT), SHA256)]
    note = json.loads(path.with_name(f"{path.name}.json").read_text())
    assert note == {"url": url, "bytes": len(CONTENT), "sha256": SHA256}

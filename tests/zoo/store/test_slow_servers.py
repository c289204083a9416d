"""Servers that keep silent, trickle, drip or are merely slow."""

import contextlib
import itertools
import queue
import types

import pytest
import requests
from servers import (
    CHUNK,
    CHUNKED,
    CUT,
    DRIPPING,
    SLOW,
    WAITING,
    assert_right,
    left,
    moved,
    mute,
    ranges,
    sent,
    trickled,
)

import zoo
from zoo import store
from zoo.store import transport

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def impatient(cache, monkeypatch):
    monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 0.25)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 ",
        b"HTTP/1.1 302 Found\r\nLocation: /",
        CHUNKED + b"1;a=",
        b"HTTP/1.1 100 Continue\r\nServer: ",
    ],
)
def test_one_deadline_until_the_first_byte(server, offer, cache, said):
    url = offer(*[trickled(said)] * 2)
    with pytest.raises(zoo.StoreError, match=r"did not begin to send .* 0\.25 seco"):
        zoo.fetch(url)
    with pytest.raises(zoo.StoreError, match="did not begin to send"):
        store.latest(url, 1000)
    assert left(cache) == []
    # A busy machine may give up before it has sent its request.
    assert len(server.log) <= 2


@pytest.mark.usefixtures("impatient")
def test_redirects_attempts_and_the_name_server_share_the_deadline(
    server, offer, monkeypatch
):
    monkeypatch.setattr(transport, "_MOST_REDIRECTS", 10**6)

    def slowly(request, file):
        file.replies.append(slowly)
        server.go_on.wait(0.05)
        return moved("/a.npz")(request, file)

    with pytest.raises(zoo.StoreError, match="did not begin to send"):
        zoo.fetch(offer(slowly))
    server.log.clear()
    monkeypatch.setattr(transport, "TIMEOUTS", (600, 0.1))
    with pytest.raises(zoo.StoreError, match="failed|did not begin"):
        zoo.fetch(offer(*[mute] * 9, name="b.npz"))
    assert len([path for path, _ in server.log if path == "/b.npz"]) <= 3
    silent = server.go_on.wait
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: silent() and [])
    with pytest.raises(zoo.StoreError, match="did not begin to send"):
        zoo.fetch("http://host.invalid/a.npz")


def patient(monkeypatch, waits):
    """Sockets wait as long as `waits` says for one request after the other."""

    def get(session, url, **settings):
        return session.request("GET", url, **settings | {"timeout": next(waits)})

    monkeypatch.setattr(requests.Session, "get", get)


@pytest.mark.parametrize("end", [b"0\r\nTrailer: ", b"0\r\nTrailer: a\r\n", b"5;a="])
def test_a_body_whose_end_trickles(offer, cache, monkeypatch, end):
    # Only the wait for the next block is short; the socket waits as long as it takes.
    monkeypatch.setattr(transport, "SPEED_SECONDS", 0.2)
    monkeypatch.setattr(transport, "TIMEOUTS", (600, 0.2))
    patient(monkeypatch, iter(lambda: 600, None))
    monkeypatch.setattr(transport, "RETRIES", 1)
    with pytest.raises(zoo.StoreError, match="nothing came for long"):
        zoo.fetch(offer(*[trickled(CHUNKED + CHUNK + end)] * 9))
    assert left(cache) == []


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


def test_a_stalled_transfer_does_not_hang(server, offer, cache, monkeypatch):
    # A busy machine may stall for so long as well, so each next wait is longer.
    patient(monkeypatch, (0.2 * 2**attempt for attempt in itertools.count()))
    monkeypatch.setattr(transport, "RETRIES", 98)
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0)

    def stalled_at_first(request, file):
        return (sent() if request.range else WAITING)(request, file)

    url = offer(*[stalled_at_first] * 99)
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[0] is None
    assert int(ranges(server)[-1][6:-1]) > 0


def test_an_answer_that_does_not_begin_is_asked_for_again(
    server, offer, cache, monkeypatch, silence
):
    monkeypatch.setattr(transport, "RETRIES", 1)
    url = offer(CUT, mute)
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server) == [None, *["bytes=150000-"] * 2]
    url = offer(CUT, mute, mute, name="b.npz")
    with pytest.raises(zoo.StoreError, match="no answer began .* goes on from there"):
        zoo.fetch(url)
    zoo.fetch(url)
    assert ranges(server)[3:] == [None, *["bytes=150000-"] * 3]


@pytest.mark.parametrize("etag", ['"one"', None])
def test_a_server_that_drips(server, offer, cache, monkeypatch, clock, etag):
    monkeypatch.setattr(transport, "SPEED_SECONDS", 0.05)
    monkeypatch.setattr(transport, "LOWEST_SPEED", 50_000)
    url = offer(*[DRIPPING] * 5, etag=etag)
    with pytest.raises(
        zoo.StoreError, match=r"little or nothing .* bytes came in \d+ s"
    ):
        zoo.fetch(url)
    assert len(server.log) == 5
    offer(DRIPPING, etag=etag)
    assert_right(cache, url, zoo.fetch(url))
    starts = [span for span in ranges(server) if span]
    assert len(starts) == (6 if etag else 0)


def test_a_slow_server(server, offer, cache, monkeypatch):
    monkeypatch.setattr(transport, "SPEED_SECONDS", 0.02)
    url = offer(SLOW)
    assert_right(cache, url, zoo.fetch(url))
    assert len(server.log) == 1

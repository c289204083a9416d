"""Servers that fail, lie, trickle or lead astray: what is said, and what is left."""

import gzip
import io
import itertools
import re
import types

import pytest
from servers import (
    CHUNK,
    CHUNKED,
    CONTENT,
    CUT,
    OTHER,
    SHA256,
    SLOW,
    WAITING,
    WEB_PAGE,
    assert_right,
    endless,
    head,
    hung_up,
    left,
    md5,
    moved,
    mute,
    ranges,
    refused,
    sent,
    trickled,
)

import zoo
from zoo import store
from zoo.common import limits
from zoo.store import transport

pytestmark = pytest.mark.usefixtures("cache")

UNSIZED = head()
# Two members, as some servers send them.
PACKED = gzip.compress(CONTENT[:1000]) + gzip.compress(CONTENT[1000:])
DAMAGED = PACKED[:1000] + b"\0\0" + PACKED[1002:]
LONG, ZEROS = "a" * 60_000, "0" * 64
BROKEN = sent(more=1, ranges="none")
BOMB = gzip.compress(bytes(10**7))


def packed(body, encoding="gzip"):
    return refused("200 OK", body, Content_Encoding=encoding)


# Replies, the words of the error, and the file or what is expected of it.
FAULTS = {
    "busy for ever": ([503] * 5, "503|5 times|try again later|by hand"),
    "no such file": ([404], "404|no such file|KERAS_VIT_MIRROR"),
    **{
        f"status {status}": ([status], f"refused|a.npz with status {status}")
        for status in (401, 403, 410, 204, 206, 304, 418)
    },
    "hangs up": ([hung_up] * 5, "connection to 127|failed, 5 times"),
    "a web page": ([WEB_PAGE], "web page instead of|log in"),
    "a byte too few": ([BROKEN] * 6, "300000 of 300001 bytes|5 more", {"etag": None}),
    "always cut": ([CUT] * 6, "150000 of 300000|begins anew", {"etag": 'W/"weak"'}),
    "another MD5": ([sent(OTHER)], "a.npz has md5|expected", {"md5": CONTENT}),
    "another rest": ([CUT, sent(OTHER)], "a.npz has md5", {"md5": CONTENT}),
    "another size": ([sent()], "300000 bytes|about 500000", {"file_size": 500_000}),
    "another SHA-256": ([sent()], f"sha256 {SHA256}|{ZEROS}", {"sha256": ZEROS}),
    "endless": ([endless(UNSIZED)], "306000 bytes", {"file_size": 300_000}),
    "chunks": ([endless(CHUNKED, CHUNK)], "than 306000 bytes", {"file_size": 300_000}),
    "larger than any": ([sent(b"a", more=21 * 10**9)], "more than 20000000000 bytes"),
    "too large": ([endless(UNSIZED)], "more than 1000 bytes", {"most_bytes": 1000}),
    "swells": ([packed(BOMB)], "more than 102000 bytes", {"file_size": 100_000}),
    **{
        f"packed, cut at {end}": ([packed(PACKED[:end])] * number, message)
        for end, number, message in (
            (len(PACKED) // 2, 6, "ended before the end"),
            (len(PACKED) - 1, 6, "ended before the end"),
            (5, 5, "ended before the end"),
            (0, 5, "body is empty"),
        )
    },
    "packed, damaged": ([packed(DAMAGED)] * 6, "CRC check failed"),
    "packed otherwise": ([packed(CONTENT, "br\x1b[2J")], r"(br\x1b[2j)"),
    "leads to FTP": ([moved("ftp://127.0.0.1/a")], "not an http(s) URL"),
    "leads far away": ([moved("file:///\x1b[2J" + LONG)], "not an http(s) URL"),
    "leads to itself": ([moved("/a.npz")] * 11, "one URL to the next"),
    "a reason": ([refused("404 \x1b[2J\x9b\x1b]0;a\x07" + LONG)], "status 404"),
    "an endless refusal": ([endless(head("404 None"))], "404"),
    "busy without end": ([endless(head("503 Busy"))] * 5, "503"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_leaves_nothing(fault, server, offer, cache):
    replies, words, *expected = FAULTS[fault]
    expected = dict(*expected)
    file = {key: expected.pop(key) for key in ("etag", "md5") if key in expected}
    url = offer(*replies, **file)
    with pytest.raises(zoo.StoreError) as error:
        zoo.fetch(url, **expected)
    said = str(error.value)
    assert all(word in said for word in words.split("|")), said
    assert said.isprintable() and len(said) <= 2000
    assert left(cache) == []
    assert len(server.log) == len(replies)
    # The system's own buffers hold some of what is not read, five times at most.
    assert server.sent < 10**8
    url = offer()
    assert_right(cache, url, zoo.fetch(url))


CONTINUED = [None, "bytes=150000-"]
STARTS = (150_000, 225_000, 262_500, 281_250, 290_625, 295_312)
HALVES = [f"bytes={start}-" for start in STARTS]
DATE = "Sat, 21 Nov 2020 12:00:00 GMT"
STORED_PACKED = {
    "x_goog_stored_content_encoding": "gzip",
    "x_goog_hash": f"md5={md5(b'the packed file')}",
}
# Replies, the file, and the ranges that are asked for until it is whole.
MENDED = {
    "cut, with an ETag": ([CUT], {"md5": CONTENT, "etag": '"x"'}, CONTINUED),
    "cut again and again": ([CUT] * 6, {}, [None, *HALVES]),
    "cut, with a date": ([CUT], {"etag": None, "modified": DATE}, CONTINUED),
    "cut, with neither": ([CUT], {"etag": None}, [None, None]),
    "cut, with a weak ETag": ([CUT], {"etag": 'W/"weak"'}, [None, None]),
    "cut, without ranges": ([CUT, sent(ranges="none")], {}, CONTINUED),
    "cut, goes on": ([CUT, sent(ranges="shifted")], {}, [*CONTINUED, None]),
    "cut, no such range": ([CUT, 416], {}, [*CONTINUED, None]),
    "no length": ([sent(more=None)], {}, [None]),
    "busy twice": ([429, 500], {}, [None] * 3),
    "busy four times": ([502, 504, 408, 503], {}, [None] * 5),
    "hung up": ([hung_up], {}, [None] * 2),
    "unpacked by the server": ([], {"headers": STORED_PACKED}, [None]),
    "packed": ([packed(PACKED)], {}, [None]),
    "packed, as it was once called": ([packed(PACKED, "X-GZIP")], {}, [None]),
    "moved": ([moved("/b/../c.npz", x_goog_hash=f"md5={md5(b'b')}")], {}, [None] * 2),
    **{
        f"moved with {status}": ([moved("/c", status)], {}, [None] * 2)
        for status in (301, 303, 307, 308)
    },
    "a page that moved": ([endless(head("302 A", Location="/c"))], {}, [None] * 2),
}


@pytest.mark.parametrize("case", MENDED)
def test_a_fault_is_mended_by_the_next_reply(case, server, offer, cache):
    replies, file, asked = MENDED[case]
    url = offer(*replies, **file)
    # Retry-After of a refusal is an hour.
    assert_right(cache, url, zoo.fetch(url, sha256=SHA256))
    assert ranges(server) == asked
    assert server.sent < 10**8


def test_how_long_a_server_may_ask_to_wait(monkeypatch):
    monkeypatch.setattr(transport, "RETRY_AFTER_SECONDS", 60)
    assert transport._retry_after({}) is None
    asked = {"7": 7, "3600": 60, "Sat, 21 Nov 2099 12:00:00 GMT": 60}
    asked |= dict.fromkeys(("soon", "9" * 5000, "-1"))
    for text, seconds in asked.items():
        assert transport._retry_after({"Retry-After": text}) == seconds


@pytest.mark.parametrize("piece", [1, 2, 1000])
def test_a_compressed_body_comes_in_any_pieces(piece):
    body = io.BytesIO(gzip.compress(CONTENT[:10_000]))
    raw = types.SimpleNamespace(
        read1=lambda size, decode_content: body.read(min(size, piece))
    )
    response = types.SimpleNamespace(
        raw=raw, headers={"content-encoding": "gzip"}, url="http://127.0.0.1"
    )
    read = transport._reader(response)
    assert b"".join(iter(lambda: read(1000), b"")) == CONTENT[:10_000]


def test_an_index_is_bounded_too(server, offer, cache):
    with pytest.raises(zoo.StoreError, match="has more than 1000000 bytes"):
        store.latest(offer(endless(UNSIZED)), 10**6)
    assert server.sent < 10**8
    assert left(cache) == []
    assert 3_000_000 < limits.REGISTRY_BYTES <= 5_000_000


TARGETS = {
    "https://a/weak": "http://a/end",
    "https://a/safe": "/end",
    "http://a/back": "https://a/safe",
    # From https over http back to https, which itself is right.
    "https://a/chain": "https://a/weaker",
    "https://a/weaker": "http://a/back",
}


def test_https_leads_to_nothing_less(server):
    def follow(url):
        session = types.SimpleNamespace(
            get=lambda url, **_: types.SimpleNamespace(url=url, close=lambda: None),
            get_redirect_target=lambda response: TARGETS.get(response.url),
        )
        return transport._follow(session, url, {}).url

    for url in ("https://a/safe", "http://a/back"):
        assert follow(url) == "https://a/end"
    for url in ("https://a/weak", "https://a/chain"):
        with pytest.raises(transport.TransferError, match="to http:.* not as safe"):
            follow(url)
    with pytest.raises(zoo.StoreError, match="No safe connection.*REQUESTS_CA_BUNDLE"):
        zoo.fetch(server.url.replace("http", "https"))


@pytest.mark.parametrize("host", ["127.0.0.1:9", "nowhere.invalid"])
def test_no_network(cache, capsys, host):
    url = f"http://{host}/a.npz"
    with pytest.raises(zoo.StoreError, match=f"connection to {host} failed.*by h") as e:
        try:
            raise ValueError("of the caller")
        except ValueError:
            zoo.fetch(url)
    assert left(cache) == []
    # Said before the connection is tried, which takes a while.
    assert capsys.readouterr().err == f"Downloading {url}\n"
    # The cause as the system calls it, not what the caller handled, without the objects
    # of urllib3.
    cause = re.search(r"failed, \d times \((.*?)\): check the network", str(e.value))[1]
    assert not re.search("object|Pool|Retries|0x|caller", cause) and len(cause) < 80


def test_proxies(server, cache, monkeypatch):
    url = "http://nowhere.invalid/a.npz"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(zoo.StoreError, match="proxy gave no connection.*HTTP_PROXY"):
        zoo.fetch(url)
    monkeypatch.setenv("http_proxy", server.url)
    assert_right(cache, url, zoo.fetch(url))


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 ",
        b"HTTP/1.1 302 Found\r\nLocation: /",
        CHUNKED + b"1;a=",
        b"HTTP/1.1 100 Continue\r\nServer: ",
    ],
)
def test_one_deadline_until_the_first_byte(server, offer, cache, monkeypatch, said):
    monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 0.25)
    with pytest.raises(zoo.StoreError, match=r"did not begin to send .* 0\.25 seco"):
        zoo.fetch(offer(trickled(said)))
    assert left(cache) == []
    # A busy machine may give up before it has sent its request.
    assert len(server.log) <= 1


def test_redirects_attempts_and_the_name_server_share_the_deadline(
    server, offer, monkeypatch
):
    monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 0.25)
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


@pytest.mark.parametrize("end", [b"0\r\nTrailer: ", b"0\r\nTrailer: a\r\n", b"5;a="])
def test_a_body_whose_end_trickles(offer, cache, monkeypatch, end):
    # No socket waits in vain for as long as that, but for a busy machine.
    monkeypatch.setattr(transport, "SPEED_SECONDS", 0.2)
    monkeypatch.setattr(transport, "TIMEOUTS", (600, 0.2))
    monkeypatch.setattr(transport, "RETRIES", 1)
    with pytest.raises(zoo.StoreError, match=r"nothing \((nothing came|.*timed)"):
        zoo.fetch(offer(*[trickled(CHUNKED + CHUNK + end)] * 9))
    assert left(cache) == []


def test_a_stalled_transfer_does_not_hang(server, offer, cache, monkeypatch):
    monkeypatch.setattr(transport, "TIMEOUTS", (600, 0.3))
    monkeypatch.setattr(transport, "RETRIES", 98)

    def stalled_at_first(request, file):
        return (sent() if request.range else WAITING)(request, file)

    url = offer(*[stalled_at_first] * 99)
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[0] is None
    assert int(ranges(server)[-1][6:-1]) > 0


def test_an_answer_that_does_not_begin_leaves_what_came(
    server, offer, cache, monkeypatch
):
    def cut(request, file):
        monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 0.2)
        return CUT(request, file)

    monkeypatch.setattr(transport, "RETRIES", 1)
    url = offer(cut, mute, mute)
    with pytest.raises(zoo.StoreError, match="2 more .*no answer began .*from there"):
        zoo.fetch(url)
    monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 600)
    offer()
    assert_right(cache, url, zoo.fetch(url))
    assert ranges(server)[-1] == "bytes=150000-"


@pytest.mark.parametrize("etag", ['"one"', None])
def test_a_server_that_is_too_slow(server, offer, cache, monkeypatch, etag):
    content = bytes(10**6)
    url = offer(*[SLOW] * 5, etag=etag, content=content)
    # Between one look at this clock and the next 100 seconds pass.
    look = itertools.count(0, 100).__next__
    clock = types.SimpleNamespace(monotonic=look, sleep=lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(transport, "time", clock)
        patch.setattr(transport, "LOWEST_SPEED", 10_000)
        with pytest.raises(zoo.StoreError, match="or nothing .* came in 100 seconds"):
            zoo.fetch(url)
    assert len(server.log) == 5
    assert_right(cache, url, zoo.fetch(url), content)
    assert len([span for span in ranges(server) if span]) == (5 if etag else 0)


def test_a_slow_server(server, offer, cache, monkeypatch):
    monkeypatch.setattr(transport, "SPEED_SECONDS", 0.02)
    url = offer(SLOW)
    assert_right(cache, url, zoo.fetch(url))
    assert len(server.log) == 1

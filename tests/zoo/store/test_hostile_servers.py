"""Servers that lie, trickle or lead astray: each is left, and leaves nothing."""

import contextlib
import gzip
import hashlib
import http.server
import itertools
import json
import random
import ssl
import subprocess
import threading

import pytest
import requests

import zoo
from zoo import limits, store
from zoo.catalog import registry
from zoo.store import transport

pytestmark = pytest.mark.usefixtures("cache")

CONTENT = random.Random(0).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Each path is something to say, byte for byte."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.log.append((self.path, self.headers.get("Range")))
        self.close_connection = True
        with contextlib.suppress(OSError):
            for part in self.server.say[self.path](self):
                self.wfile.write(part)
                self.server.sent += len(part)

    def log_message(self, *_):
        """Keeps quiet."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that hangs up is part of the plan."""


@contextlib.contextmanager
def running(context=None):
    server = Server(("127.0.0.1", 0), Handler)
    server.block_on_close = False
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.say, server.log, server.sent, server.over = {}, [], 0, threading.Event()
    scheme = "http" if context is None else "https"
    server.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server():
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """The paths of a certificate for this machine, and of its key."""
    folder = tmp_path_factory.mktemp("certificate")
    request = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
        "-days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout "
        "key.pem -out cert.pem"
    )
    try:
        subprocess.run(request.split(), cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def safe(certificate, monkeypatch):
    """A server with https, whose certificate is trusted."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[0]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with running(context) as server:
        yield server


def answer(body=CONTENT, status="200 OK", length=None, **headers):
    """Says a body, by default of the length that it has; `length` "" says none."""
    if length is None:
        length = len(body)
    if length != "":
        headers["Content-Length"] = length
    lines = [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin1")
    return lambda handler: [head, body]


def endless(head, block=bytes(2**16)):
    """Says a head, and then the same for ever."""
    return lambda handler: itertools.chain([head], itertools.repeat(block))


def trickled(head, byte=b"a"):
    """Says a head, and then a byte now and then."""

    def say(handler):
        yield head
        while not handler.server.over.wait(0.05):
            yield byte

    return say


def moved(target, status=302):
    return answer(b"", f"{status} Found", Location=target)


def left(cache):
    """What is in the cache, but for empty locks."""
    paths = (path for path in cache.rglob("*") if path.is_file())
    return sorted(path.name for path in paths if path.suffix != ".lock")


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_https_leads_to_nothing_less(safe, server, cache, status):
    server.say["/a.npz"] = answer()
    safe.say["/a.npz"] = moved(f"{server.url}/a.npz", status)
    with pytest.raises(zoo.StoreError, match="leads from https:.* to http:.*as safe"):
        zoo.fetch(f"{safe.url}/a.npz")
    assert server.log == []
    assert left(cache) == []


def test_https_leads_to_https(safe, cache):
    safe.say |= {"/a.npz": moved("/b/../c.npz"), "/c.npz": answer()}
    assert zoo.fetch(f"{safe.url}/a.npz", sha256=SHA256).read_bytes() == CONTENT


def test_no_link_of_a_chain_is_weak(safe, server, cache):
    # From https over http back to https, which itself is right.
    safe.say |= {"/a": moved("/b"), "/b": moved(f"{server.url}/c"), "/d": answer()}
    server.say["/c"] = moved(f"{safe.url}/d")
    with pytest.raises(zoo.StoreError, match="as safe"):
        zoo.fetch(f"{safe.url}/a")
    assert zoo.fetch(f"{server.url}/c").read_bytes() == CONTENT
    # An index is read the same way.
    with pytest.raises(zoo.StoreError, match="as safe"):
        store.latest(f"{safe.url}/a", 10**6)


@pytest.mark.parametrize(
    "target", ["ftp://127.0.0.1/a", "file:///etc/passwd", "data:,"]
)
def test_redirects_to_what_is_no_url_of_the_web(server, cache, target):
    server.say["/a.npz"] = moved(target)
    with pytest.raises(zoo.StoreError, match=r"not an http\(s\) URL"):
        zoo.fetch(f"{server.url}/a.npz")
    assert left(cache) == []


def test_redirects_without_end(server, cache):
    server.say["/a.npz"] = moved("/a.npz")
    with pytest.raises(zoo.StoreError, match="one URL to the next"):
        zoo.fetch(f"{server.url}/a.npz")
    assert len(server.log) == 11


@pytest.mark.parametrize("status", ["302 Found", "503 Busy", "404 None"])
def test_the_pages_around_refusals_are_not_read(server, cache, status):
    head = f"HTTP/1.1 {status}\r\nLocation: /b\r\n\r\n".encode()
    server.say |= {"/a": endless(head), "/b": answer()}
    if status.startswith("302"):
        assert zoo.fetch(f"{server.url}/a").read_bytes() == CONTENT
    else:
        with pytest.raises(zoo.StoreError, match=status[:3]):
            zoo.fetch(f"{server.url}/a")
    # What the system's own buffers hold, five times at most.
    assert server.sent < 10**8


# Sizes


CHUNK = b"10000\r\n" + bytes(2**16) + b"\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "block"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", bytes(2**16)),
        (CHUNKED, CHUNK),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", bytes(2**16)),
    ],
)
def test_an_endless_body_stops_at_the_size_of_the_card(server, cache, head, block):
    server.say["/a.npz"] = endless(head, block)
    url = f"{server.url}/a.npz"
    with pytest.raises(zoo.StoreError, match="has more than 306000 bytes"):
        zoo.fetch(url, file_size=300_000)
    assert left(cache) == []
    assert len(server.log) == 1
    with pytest.raises(zoo.StoreError, match="has more than 1000 bytes"):
        zoo.fetch(url, most_bytes=1000)
    assert left(cache) == []


def test_a_body_of_any_size_has_a_bound(server, cache):
    server.say["/a.npz"] = answer(b"a", length=21 * 10**9)
    with pytest.raises(zoo.StoreError, match="has more than 20000000000 bytes"):
        zoo.fetch(f"{server.url}/a.npz")
    assert left(cache) == []


def test_the_bytes_of_an_earlier_transfer_count(server, cache):
    url = f"{server.url}/a.npz"
    server.say["/a.npz"] = answer(CONTENT[:100_000], length=300_000, ETag='"a"')
    answers = iter([server.say["/a.npz"], answer(b"", "404 None")])
    server.say["/a.npz"] = lambda handler: next(answers)(handler)
    with pytest.raises(zoo.StoreError, match="404"):
        zoo.fetch(url)
    assert len(left(cache)) == 2

    def rest(handler):
        head = answer(
            b"",
            "206 Partial Content",
            "",
            ETag='"a"',
            Content_Range="bytes 100000-299999/300000",
        )(handler)
        return itertools.chain(head, itertools.repeat(bytes(2**16)))

    server.say["/a.npz"] = rest
    with pytest.raises(zoo.StoreError, match="has more than 306000 bytes"):
        zoo.fetch(url, file_size=300_000)
    assert server.log[-1] == ("/a.npz", "bytes=100000-")
    assert left(cache) == []


def test_an_endless_index_stops_too(server, cache):
    server.say["/registry.json"] = endless(b"HTTP/1.1 200 OK\r\n\r\n")
    with pytest.raises(zoo.StoreError, match="has more than 100000 bytes"):
        store.latest(f"{server.url}/registry.json", 100_000)
    assert server.sent < 10**8


def test_an_index_has_a_few_megabytes(server, monkeypatch):
    assert limits.REGISTRY_BYTES <= 5_000_000
    text = json.dumps({"format": 1, "models": [], "more": "a" * 3 * 10**6}).encode()
    head, body = answer(text)(None)
    server.say["/registry.json"] = lambda handler: [head, body]
    monkeypatch.setattr(transport, "_BLOCK_BYTES", 1000)
    monkeypatch.setenv("KERAS_VIT_REGISTRY", server.url)
    assert registry.models() == {}


# Compression


def test_a_compressed_body_is_whole_or_refused(server, cache):
    packed = gzip.compress(CONTENT[:1000]) + gzip.compress(CONTENT[1000:])
    url = f"{server.url}/a.npz"
    for encoding in ("gzip", "X-GZIP"):
        server.say["/a.npz"] = answer(packed, Content_Encoding=encoding)
        path = zoo.fetch(url, sha256=SHA256)
        path.unlink()
    for end in (len(packed) // 2, len(packed) - 1, 5, 0):
        server.say["/a.npz"] = answer(packed[:end], Content_Encoding="gzip")
        with pytest.raises(zoo.StoreError, match="ended before the end|body is empty"):
            zoo.fetch(url)
        with pytest.raises(zoo.StoreError, match="ended before the end|body is empty"):
            store.latest(url, 10**6)
    broken = packed[:1000] + b"\0\0" + packed[1002:]
    server.say["/a.npz"] = answer(broken, Content_Encoding="gzip")
    with pytest.raises(zoo.StoreError, match="CRC check failed"):
        zoo.fetch(url)
    assert [name for name in left(cache) if not name.endswith(".json")] == []


def test_a_compressed_body_that_swells(server, cache):
    packed = gzip.compress(bytes(10**7))
    server.say["/a.npz"] = answer(packed, Content_Encoding="gzip")
    with pytest.raises(zoo.StoreError, match="has more than 102000 bytes"):
        zoo.fetch(f"{server.url}/a.npz", file_size=100_000)
    assert left(cache) == []


def test_other_compressions_were_not_asked_for(server, cache):
    server.say["/a.npz"] = answer(Content_Encoding="br\x1b[2J")
    with pytest.raises(zoo.StoreError, match=r"compressed \(br\\x1b\[2j\)"):
        zoo.fetch(f"{server.url}/a.npz")
    assert left(cache) == []


# Time


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 ",
        b"HTTP/1.1 200 OK\r\nServer: ",
        b"HTTP/1.1 302 Found\r\nLocation: /",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=",
        b"HTTP/1.1 100 Continue\r\nServer: ",
    ],
)
def test_one_deadline_until_the_first_byte(server, cache, monkeypatch, head):
    monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 0.25)
    server.say["/a.npz"] = trickled(head)
    with pytest.raises(zoo.StoreError, match=r"did not begin to send .* 0\.25 seco"):
        zoo.fetch(f"{server.url}/a.npz")
    with pytest.raises(zoo.StoreError, match="did not begin to send"):
        store.latest(f"{server.url}/a.npz", 1000)
    assert left(cache) == []
    # A busy machine may give up before it has sent its request.
    assert len(server.log) <= 2


def test_redirects_share_the_deadline(server, cache, monkeypatch):
    monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 0.25)
    monkeypatch.setattr(transport, "_MOST_REDIRECTS", 10**6)

    def slowly(handler):
        handler.server.over.wait(0.05)
        return moved("/a.npz")(handler)

    server.say["/a.npz"] = slowly
    with pytest.raises(zoo.StoreError, match="did not begin to send"):
        zoo.fetch(f"{server.url}/a.npz")


def test_a_name_server_that_is_silent(cache, monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 0.3)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: over.wait() and [])
    try:
        with pytest.raises(zoo.StoreError, match="did not begin to send"):
            zoo.fetch("http://host.invalid/a.npz")
    finally:
        over.set()


def test_attempts_share_the_deadline(server, cache, monkeypatch):
    monkeypatch.setattr(transport, "FIRST_BYTE_SECONDS", 0.25)
    monkeypatch.setattr(transport, "TIMEOUTS", (600, 0.1))
    server.say["/a.npz"] = lambda handler: [handler.server.over.wait() and b""]
    with pytest.raises(zoo.StoreError, match="failed|did not begin"):
        zoo.fetch(f"{server.url}/a.npz")
    assert len(server.log) <= 3


def patiently(session, url, **settings):
    return session.request("GET", url, **settings | {"timeout": 600})


@pytest.mark.parametrize("end", [b"0\r\nTrailer: ", b"0\r\nTrailer: a\r\n", b"5;a="])
def test_a_body_whose_end_trickles(server, cache, monkeypatch, end):
    # Only the wait for the next block is short; the socket waits as long as it takes.
    monkeypatch.setattr(transport, "SPEED_SECONDS", 0.2)
    monkeypatch.setattr(transport, "TIMEOUTS", (600, 0.2))
    monkeypatch.setattr(requests.Session, "get", patiently)
    monkeypatch.setattr(transport, "RETRIES", 1)
    server.say["/a.npz"] = trickled(CHUNKED + CHUNK + end)
    with pytest.raises(zoo.StoreError, match="nothing came for long"):
        zoo.fetch(f"{server.url}/a.npz")
    assert left(cache) == []


# Text


def test_what_a_server_says_is_spelled_out(server, cache):
    answers = {
        "/reason": answer(b"", "404 \x1b[2J\x9b" + "a" * 60_000),
        "/busy": answer(b"", "418 \x1b]0;title\x07"),
        "/moved": moved("file:///\x1b[2J" + "a" * 60_000),
    }
    server.say |= answers
    for path in answers:
        with pytest.raises(zoo.StoreError) as error:
            zoo.fetch(f"{server.url}{path}")
        assert str(error.value).isprintable()
        assert len(str(error.value)) <= 2000
    assert store.cached() == []

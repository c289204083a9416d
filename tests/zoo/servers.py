"""A server on this machine that sends files, and fails as a test tells it to.

A reply takes the request (the handler) and the `File`, and yields what is sent, byte
for byte; a number is a refusal with that status.
"""

import base64
import contextlib
import dataclasses
import hashlib
import itertools
import random
import re
import threading
import time
import urllib.parse

from serving import Quiet, serving

import zoo
from zoo import store

CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PAGE = b"\n<!DOCTYPE html><title>Log in</title>" + b" " * 400_000
BLOCK = bytes(2**16)


@contextlib.contextmanager
def failing():
    """Runs a server of `File`s, which logs the paths and ranges it is asked for."""
    state = {"files": {}, "log": [], "sent": 0, "lock": threading.Lock()}
    with serving(Handler, go_on=threading.Event(), **state) as server:
        yield server
        server.go_on.set()


@dataclasses.dataclass
class File:
    """What the server has under a path, and its replies before it sends just that."""

    content: bytes = CONTENT
    etag: str | None = '"one"'
    modified: str | None = None
    md5: bytes | None = None
    headers: dict = dataclasses.field(default_factory=dict)
    replies: list = dataclasses.field(default_factory=list)


class Handler(Quiet):
    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        file = self.server.files.get(path, File())
        self.range = self.headers.get("Range")
        with self.server.lock:
            self.server.log.append((path, self.range))
            reply = file.replies.pop(0) if file.replies else sent()
        self.close_connection = True
        if isinstance(reply, int):
            reply = refused(f"{reply} Refused", Retry_After=3600)
        with contextlib.suppress(OSError):
            for part in reply(self, file):
                self.wfile.write(part)
                self.server.sent += len(part)


def head(status="200 OK", **headers):
    """Spells the head of a response; a header that is None is left out."""
    headers = {name: text for name, text in headers.items() if text is not None}
    lines = [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin1")


def sent(content=None, *, ranges="right", more=0, total=None, pace=None):
    """Replies with the file, or with `content`.

    `ranges` are "right", "none", "blind" to If-Range, or "shifted" by a byte; `total`
    is the length that their header states, `more` the bytes that are promised but not
    sent (None promises no length), and `pace` yields the body.
    """

    def reply(request, file):
        body = file.content if content is None else content
        span = re.fullmatch(r"bytes=(\d+)-", request.range or "")
        known = request.headers.get("If-Range") in (file.etag, file.modified)
        resumes = ranges != "none" and (known or ranges != "right")
        start = int(span[1]) if span and resumes else 0
        first, last = start + (ranges == "shifted"), len(body) - 1
        span = f"bytes {first}-{last}/{total or len(body)}"
        own = {
            "Content_Range": span if start else None,
            "Content_Length": None if more is None else len(body) - start + more,
            "ETag": file.etag,
            "Last_Modified": file.modified,
            "x_goog_hash": file.md5 and f"crc32c=AAAAAA==,md5={md5(file.md5)}",
        }
        status = "206 Partial Content" if start else "200 OK"
        yield head(status, **own | file.headers)
        yield from [body[start:]] if pace is None else pace(request, body[start:])

    return reply


def md5(content):
    return base64.b64encode(hashlib.md5(content).digest()).decode()


def refused(status, body=b"", **headers):
    return lambda *_: [head(status, Content_Length=len(body), **headers), body]


def moved(target, status=302, **headers):
    return refused(f"{status} Found", Location=target, **headers)


def endless(head, block=BLOCK):
    return lambda *_: itertools.chain([head], itertools.repeat(block))


def trickled(head):
    """Replies with a head, and then a byte now and then."""

    def reply(request, _):
        yield head
        while not request.server.go_on.wait(0.05):
            yield b"a"

    return reply


CHUNKED = head(Transfer_Encoding="chunked")
CHUNK = b"10000\r\n" + BLOCK + b"\r\n"


def hung_up(*_):
    return []


def mute(request, _):
    request.server.go_on.wait()
    return []


def _half(_, body):
    yield body[: len(body) // 2]


def _half_and_wait(request, body):
    yield body[: len(body) // 2]
    request.server.go_on.wait()
    yield body[len(body) // 2 :]


def _slow(_, body):
    for begin in range(0, len(body), 50_000):
        yield body[begin : begin + 50_000]
        time.sleep(0.01)


CUT, WAITING = sent(pace=_half), sent(pace=_half_and_wait)
SLOW, WEB_PAGE = sent(pace=_slow), sent(PAGE, ranges="none")


def ranges(server):
    return [span for _, span in server.log]


def left(cache):
    """Returns the names of what is in the cache, but for empty locks."""
    paths = (path for path in cache.rglob("*") if path.is_file())
    return sorted(path.name for path in paths if path.suffix != ".lock")


def assert_right(cache, url, path, content=CONTENT):
    """The file is whole, recorded, and nothing else is there."""
    assert path.read_bytes() == content
    assert zoo.verify(path) == hashlib.sha256(content).hexdigest()
    assert [file.url for file in store.cached()] == [url]
    assert left(cache) == [path.name, f"{path.name}.json"]

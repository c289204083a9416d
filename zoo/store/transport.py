"""Resumable HTTP downloads.

`urllib3.Retry` is not used: between attempts it reads the refused page to its end,
however long it is. Nor are the redirects of requests, for the same reason.
"""

import contextlib
import functools
import gzip
import itertools
import queue
import sys
import threading
import time
import types
import urllib.parse
import zlib
from collections.abc import Iterator

import requests
import urllib3
import urllib3.exceptions

from zoo.common.regular_files import open_regular
from zoo.common.safe_text import printable
from zoo.store.part import Part, TransferError, content_length
from zoo.store.progress import progress_bar

# Attempts after the first; the pauses between them double.
RETRIES = 4
BACKOFF_SECONDS = 0.5
# The longest pause that a server may ask for.
RETRY_AFTER_SECONDS = 60
# To connect, and from one byte to the next.
TIMEOUTS = (10, 30)
# From the DNS lookup to the first byte of the body. Attempts share them, unless the
# server answered that it is busy.
FIRST_BYTE_SECONDS = 60
# Bytes per second, averaged over SPEED_SECONDS, below which a connection is given up.
LOWEST_SPEED = 1000
SPEED_SECONDS = 60
_BLOCK_BYTES = 2**16
_BLOCKS_AHEAD = 16
_MOST_REDIRECTS = 10
# Enough to recognise a web page.
_PAGE_BYTES = 512
_DAMAGED_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
_BUSY = (408, 429, 500, 502, 503, 504)


class _NoAnswerError(TransferError):
    """The first byte did not come in time."""


def download(part: Part, label: str | None, most_bytes: int) -> None:
    """Completes a part, resuming it if the server supports that.

    After a failure, the bytes so far stay in the part; it is deleted where the server
    promises or sends more than `most_bytes`. `label` is that of the progress bar on
    stderr, None shows none.
    """
    furthest, failures = part.size, 0
    if label is not None:
        # A network that is not there takes a while to be found out.
        print(printable(f"Downloading {part.url}"), file=sys.stderr)
    while True:
        begun = time.monotonic()
        try:
            reason = _resume(part, label, most_bytes)
        except _NoAnswerError:
            if not part.size:
                raise
            reason = f"no answer began within {FIRST_BYTE_SECONDS} seconds"
        if reason is None:
            return
        enough = max(1, LOWEST_SPEED * (time.monotonic() - begun))
        failures = 0 if part.size - furthest >= enough else failures + 1
        furthest = max(furthest, part.size)
        if failures > RETRIES:
            length, next_time = part.length, "it goes on from there"
            if not part.is_resumable:
                part.delete()
                next_time = "this server begins anew"
            raise TransferError(
                f"{part.url} broke off after {furthest} of {length} bytes, and "
                f"{failures} more attempts brought little or nothing ({reason}): "
                f"check the network and try again, {next_time}."
            )
        time.sleep(BACKOFF_SECONDS * 2**failures)


def _resume(part, label, most_bytes):
    """Adds what one response brings; returns why that was not all, else None."""
    if part.size and part.size == part.length:
        return None  # complete, and then the process was killed
    with _request_rest(part) as response:
        blocks = response.blocks()
        whole = (
            part.length if response.status == 206 else content_length(response.headers)
        )
        if whole is not None and whole > most_bytes:
            _refuse_size(part, most_bytes)
        try:
            if response.status == 200:
                start = b""
                while len(start) < _PAGE_BYTES and (block := next(blocks, b"")):
                    start += block
                # Before the bytes of an earlier response are dropped.
                if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
                    raise TransferError(
                        f"The server sent a web page instead of {part.url}: log in if "
                        "the network asks for it, or check the URL."
                    )
                part.begin(response.headers)
                blocks = itertools.chain([start], blocks)
            _append(part, blocks, label, most_bytes)
        except (urllib3.exceptions.HTTPError, *_DAMAGED_GZIP) as error:
            return str(error)
    if part.length not in (None, part.size):
        return f"the response ended at {part.size} bytes"
    return None


def _append(part, blocks, label, most_bytes):
    size = part.size
    bar = progress_bar(
        total=part.length,
        initial=size,
        unit="B",
        unit_scale=True,
        desc=label,
        disable=label is None,
    )
    with bar, open_regular(part.path, "ab") as file:
        for block in blocks:
            size += len(block)
            if size > most_bytes:
                _refuse_size(part, most_bytes)
            file.write(block)
            file.flush()  # a killed process leaves what it received
            bar.update(len(block))


def _refuse_size(part, most_bytes):
    part.delete()
    raise TransferError(
        f"{part.url} has more than {most_bytes} bytes, the most that it may have: it "
        "is another file, or its server is broken; check the URL."
    )


def _request_rest(part):
    """Returns a response with the rest if the server supports it, else the whole."""
    response = None
    if part.is_resumable and 0 < part.size < part.length:
        span = {"Range": f"bytes={part.size}-", "If-Range": part.validator}
        response = _get(part.url, span)
        if response.status == 206 and part.continues(response.headers):
            return response
        if response.status in (206, 416):
            response.close()
            response = None
    response = response or _get(part.url, {})
    status = response.status
    if status == 200:
        return response
    response.close()
    why = "there is no such file" if status == 404 else response.reason
    remedy = "check the URL, and KERAS_VIT_MIRROR if it is set"
    if status in _BUSY:
        why, remedy = f"{why}, {RETRIES + 1} times", "try again later"
    raise TransferError(
        f"The server refused {response.url} with status {status} ({why}): {remedy}."
    )


def _get(url, headers):
    """Sends a request, and again while the network fails or the server is busy."""
    deadline = time.monotonic() + FIRST_BYTE_SECONDS
    attempt = 0
    while True:
        attempt += 1
        last = attempt > RETRIES
        pause = BACKOFF_SECONDS * 2 ** (attempt - 1)
        try:
            response = _Response(url, headers, deadline)
            if last or response.status not in _BUSY:
                return response
            response.close()
            time.sleep(_retry_after(response.headers) or pause)
            deadline = time.monotonic() + FIRST_BYTE_SECONDS
        except requests.exceptions.SSLError as error:
            # A certificate that is refused stays so.
            raise TransferError(
                f"No safe connection to {url} ({_reason(error)}): check the computer's "
                "clock, and set REQUESTS_CA_BUNDLE if the network has a certificate of "
                "its own."
            ) from error
        except (requests.ConnectionError, requests.Timeout) as error:
            if last or time.monotonic() + pause >= deadline:
                what = f"The connection to {urllib.parse.urlsplit(url).netloc} failed"
                remedy = "the network and try again"
                if isinstance(error, requests.exceptions.ProxyError):
                    what = f"The proxy gave no connection to {url}"
                    remedy = "HTTPS_PROXY, HTTP_PROXY and NO_PROXY"
                raise TransferError(
                    f"{what}, {attempt} times ({_reason(error)}): check {remedy}."
                ) from error
            time.sleep(pause)
        except (requests.RequestException, ValueError) as error:
            raise TransferError(f"Cannot ask for {url} ({error}): check it.") from error


def _reason(error):
    """Returns what caused an error of requests, without the objects in its text."""
    while cause := error.__cause__ or (
        None if error.__suppress_context__ else error.__context__
    ):
        error = cause
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _retry_after(headers):
    """The seconds that a busy server asks for, bounded, or None."""
    try:
        response = urllib3.HTTPResponse(headers=dict(headers))
        seconds = urllib3.Retry().get_retry_after(response)
    except (urllib3.exceptions.HTTPError, ValueError, OverflowError):
        return None
    return None if seconds is None else min(seconds, RETRY_AFTER_SECONDS)


class _Response:
    """A response whose bytes are read by a thread.

    DNS, connecting, headers and the ends of chunks can each take for ever, a byte at a
    time, so that no timeout of a socket bounds them; here the thread is abandoned.
    """

    def __init__(self, url, headers, deadline):
        self._asked, self._deadline = url, deadline
        self._items = queue.Queue(_BLOCKS_AHEAD)
        self._left = threading.Event()
        self._response = None
        threading.Thread(target=self._work, args=(url, headers), daemon=True).start()
        try:
            response = self._next()
        except BaseException:
            self.close()
            raise
        self.url, self.headers = response.url, response.headers
        self.status, self.reason = response.status_code, response.reason

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        """Abandons the thread, and ends its reading where that is possible."""
        self._left.set()
        if self._response is not None:
            with contextlib.suppress(ValueError, RuntimeError, OSError, AttributeError):
                self._response.raw.shutdown()

    def blocks(self) -> Iterator[bytes]:
        """Yields the decompressed bytes as long as they come fast enough."""
        block = self._next()
        begun, received = time.monotonic(), 0
        while block:
            yield block
            received += len(block)
            seconds = time.monotonic() - begun
            if seconds > SPEED_SECONDS:
                if received < LOWEST_SPEED * seconds:
                    raise urllib3.exceptions.HTTPError(
                        f"{received} bytes came in {seconds:.0f} seconds"
                    )
                begun, received = time.monotonic(), 0
            block = self._next(max(SPEED_SECONDS, TIMEOUTS[1]))

    def _next(self, seconds=None):
        """Returns what the thread gives next, by default before the deadline."""
        left = self._deadline - time.monotonic() if seconds is None else seconds
        try:
            item = self._items.get(timeout=max(left, 0))
        except queue.Empty:
            if seconds is not None:
                raise urllib3.exceptions.HTTPError("nothing came for long") from None
            raise _NoAnswerError(
                f"{urllib.parse.urlsplit(self._asked).netloc} did not begin to send "
                f"{self._asked} within {FIRST_BYTE_SECONDS} seconds: check the network "
                "and try again later."
            ) from None
        if isinstance(item, BaseException):
            # As its cause, for its context becomes what the caller is handling.
            raise item from item.__cause__ or item.__context__
        return item

    def _work(self, url, headers):
        session = requests.Session()
        try:
            with session, _follow(session, url, headers) as response:
                self._response = response
                self._give(response)
                # The headers of a refusal are enough.
                if response.status_code in (200, 206):
                    block, read = response, _reader(response)
                    while block and not self._left.is_set():
                        block = read(_BLOCK_BYTES)
                        self._give(block)
        except BaseException as error:  # noqa: B036 - raised where it is waited for
            self._give(error)

    def _give(self, item):
        while not self._left.is_set():
            with contextlib.suppress(queue.Full):
                return self._items.put(item, timeout=0.1)
        return None


def _reader(response):
    """Returns the function that reads the decompressed body of a response."""
    read = functools.partial(response.raw.read1, decode_content=False)
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return read
    if encoding in ("gzip", "x-gzip"):

        def read_two(size):
            # GzipFile takes its two first bytes in one piece.
            content = more = read(size)
            while more and len(content) < min(size, 2):
                more = read(size - len(content))
                content += more
            return content

        file = gzip.GzipFile(fileobj=types.SimpleNamespace(read=read_two), mode="rb")
        if not file.peek(1):
            raise EOFError("the compressed body is empty")
        return file.read1
    raise TransferError(
        f"The server sent {response.url} compressed ({encoding}), which was not "
        "requested: download it from another server."
    )


def _follow(session, url, headers):
    """Returns the response where the redirects end, whose pages are not read."""
    target_of, session.get_redirect_target = session.get_redirect_target, lambda _: None
    # Compressed on the way, its length and checksum would not be the file's.
    headers = {**headers, "Accept-Encoding": "identity"}
    for _ in range(_MOST_REDIRECTS + 1):
        response = session.get(url, headers=headers, stream=True, timeout=TIMEOUTS)
        target = target_of(response)
        if target is None:
            return response
        response.close()
        target = urllib.parse.urljoin(response.url, target)
        scheme = urllib.parse.urlsplit(target).scheme.lower()
        safe = urllib.parse.urlsplit(response.url).scheme.lower() == "https"
        if scheme not in (("https",) if safe else ("https", "http")):
            why = "which is not as safe" if safe else "which is not an http(s) URL"
            raise TransferError(
                f"The server leads from {url} to {target}, {why}: take the file from "
                "another server, or ask this one's owner."
            )
        url = target
    raise TransferError(
        f"The server leads from one URL to the next, at last to {url}: check it."
    )

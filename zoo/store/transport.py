"""The bytes of a URL into a file, across broken connections and killed processes."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import pathlib
import queue
import re
import threading
import time
import urllib.parse
import zlib

import requests
import tqdm
import urllib3
import urllib3.exceptions

from zoo.text import PrintableError

# Attempts after the first, the growing pauses between them, and the longest pause that
# a server may ask for.
RETRIES = 4
BACKOFF_SECONDS = 0.5
RETRY_AFTER_SECONDS = 60
# To connect, and from one byte to the next.
TIMEOUTS = (10, 30)
# From the first question, to a name server, to the first byte of the file. Attempts
# share them, unless the server answered that it is busy.
FIRST_BYTE_SECONDS = 60
# Bytes a second, over so many seconds, below which a connection is as good as broken.
LOWEST_SPEED = 1000
SPEED_SECONDS = 60
_BLOCK_BYTES = 2**16
_BLOCKS_AHEAD = 16
_MOST_REDIRECTS = 10
# As much as it takes to know a web page.
_PAGE_BYTES = 512
_BUSY = (408, 429, 500, 502, 503, 504)
# A server that unpacks the stored file describes the packed one.
_PACKINGS = ("content-encoding", "x-goog-stored-content-encoding")
_IDENTITIES = ("etag", "last-modified", "x-goog-hash")


class TransferError(PrintableError, OSError):
    """A transfer that failed; its text says why and what to do."""


class _SilenceError(TransferError):
    """A server that did not begin to answer."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The bytes of a URL so far, and the headers of the answer they began with.

    Args:
        path: `pathlib.Path` of the bytes; the headers are kept beside it.
        url: str, where the bytes come from.

    Example:
        >>> import pathlib
        >>> from zoo import transport
        >>> part = transport.Part(pathlib.Path("none.part"), "https://host/file")
        >>> part.size, part.length
        (0, None)
    """

    path: pathlib.Path
    url: str

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def headers(self) -> dict[str, str]:
        """The kept headers, none where these are not the bytes of this URL."""
        try:
            note = json.loads(self._note.read_text())
            headers = note["headers"] if note["url"] == self.url else {}
            whole = all(isinstance(text, str) for text in headers.values())
            return headers if whole else {}
        except (
            FileNotFoundError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            return {}  # nothing to go on from: the transfer begins anew

    @property
    def length(self) -> int | None:
        """How many bytes the server promised, None where it did not."""
        return _length(self.headers)

    @property
    def md5s(self) -> list[str]:
        """The MD5 that the server promised, in base64; none where it did not."""
        headers = self.headers
        hashes = "" if _is_packed(headers) else headers.get("x-goog-hash", "")
        return re.findall(r"md5=([\w+/=]+)", hashes)

    @property
    def validator(self) -> str | None:
        """What lets a server go on with these bytes only if its file is the same."""
        etag = self.headers.get("etag")
        strong = etag if etag and not etag.startswith("W/") else None
        return strong or self.headers.get("last-modified")

    @property
    def can_go_on(self) -> bool:
        """Whether a server may be asked for the rest alone."""
        return self.validator is not None and self.length is not None

    def begin(self, headers) -> None:
        """Drops the bytes and keeps the headers of another answer."""
        self.delete()
        names = ("content-length", *_PACKINGS, *_IDENTITIES)
        kept = {name: headers[name] for name in names if name in headers}
        self._note.write_text(json.dumps({"url": self.url, "headers": kept}))

    def delete(self) -> None:
        """Removes the bytes and the headers."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    @property
    def _note(self):
        return self.path.with_name(self.path.name + ".json")


def _length(headers):
    length = headers.get("content-length", "")
    whole = re.fullmatch(r"[0-9]{1,18}", length) and not _is_packed(headers)
    return int(length) if whole else None


def _is_packed(headers):
    return any(headers.get(name, "identity") != "identity" for name in _PACKINGS)


def download(part: Part, label: str, most_bytes: int) -> None:
    """Brings a part to its full length, from where it is if the server can.

    What came before a failure stays in the part, where it can be continued.

    Args:
        part: `Part`.
        label: str, for the progress bar on stderr.
        most_bytes: int; a server that promises or sends more is left at once, and the
            part is deleted.

    Raises:
        TransferError: no network, the server refuses, sends a web page or too much,
            breaks off again and again, sends next to nothing, or leads from https
            to anything less.
        OSError: the part cannot be written.

    Example:
        >>> import pathlib
        >>> from zoo import transport
        >>> url = "https://storage.googleapis.com/vit_models/sam/ViT-B_16.npz"
        >>> part = transport.Part(pathlib.Path("ViT-B_16.part"), url)
        >>> transport.download(part, "ViT-B_16.npz", 400 * 10**6)  # doctest: +SKIP
    """
    furthest, failures = part.size, 0
    while True:
        begun = time.monotonic()
        try:
            reason = _go_on(part, label, most_bytes)
        except _SilenceError:
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
            if not part.can_go_on:
                part.delete()
                next_time = "this server begins anew"
            raise TransferError(
                f"{part.url} broke off after {furthest} of {length} bytes, and "
                f"{failures} more attempts brought little or nothing ({reason}): "
                f"check the network and try again, {next_time}."
            )
        time.sleep(BACKOFF_SECONDS * 2**failures)


def read(url: str, most_bytes: int) -> bytes:
    """Returns a small file as it is now.

    Args:
        url: str.
        most_bytes: int, more are refused.

    Returns:
        bytes.

    Raises:
        TransferError: no network, the server refuses, sends a web page, too much or
            breaks off.

    Example:
        >>> from zoo import transport
        >>> transport.read("http://host/registry.json", 1000)  # doctest: +SKIP
    """
    with _accept(_get(url, {})) as answer:
        try:
            content = bytearray()
            for block in answer.blocks():
                content += block
                if len(content) > most_bytes:
                    raise _too_much(url, most_bytes)
        except urllib3.exceptions.HTTPError as error:
            raise TransferError(
                f"{url} broke off ({error}): check the network and try again."
            ) from error
    _refuse_page(url, content[:_PAGE_BYTES])
    return bytes(content)


def _go_on(part, label, most_bytes):
    """Adds what one answer brings; returns why that was not all, or else None."""
    if part.size and part.size == part.length:
        return None  # all came, and then the process was killed
    with _ask(part) as answer:
        blocks = answer.blocks()
        whole = part.length if answer.status == 206 else _length(answer.headers)
        if whole is not None and whole > most_bytes:
            part.delete()
            raise _too_much(part.url, most_bytes)
        try:
            if answer.status == 200:
                start = b""
                while len(start) < _PAGE_BYTES and (block := next(blocks, b"")):
                    start += block
                # Before the bytes that came earlier are dropped.
                _refuse_page(part.url, start)
                part.begin(answer.headers)
                blocks = itertools.chain([start], blocks)
            _append(part, blocks, label, most_bytes)
        except urllib3.exceptions.HTTPError as error:
            return str(error)
    if part.length not in (None, part.size):
        return f"the answer ended at {part.size} bytes"
    return None


def _too_much(url, most_bytes):
    return TransferError(
        f"{url} has more than {most_bytes} bytes, the most that it may have: it is "
        "another file, or its server is broken; check the URL."
    )


def _append(part, blocks, label, most_bytes):
    size = part.size
    bar = tqdm.tqdm(
        total=part.length, initial=part.size, unit="B", unit_scale=True, desc=label
    )
    with bar, open(part.path, "ab") as file:
        for block in blocks:
            size += len(block)
            if size > most_bytes:
                part.delete()
                raise _too_much(part.url, most_bytes)
            file.write(block)
            file.flush()  # a killed process leaves what it received
            bar.update(len(block))


def _ask(part):
    """Returns the answer to a request for the rest if it fits, else for the whole."""
    if part.can_go_on and 0 < part.size < part.length:
        span = {"Range": f"bytes={part.size}-", "If-Range": part.validator}
        answer = _get(part.url, span)
        if _fits(answer, part):
            return answer
        if answer.status not in (206, 416):
            return _accept(answer)
        answer.close()
    return _accept(_get(part.url, {}))


def _fits(answer, part):
    """Whether an answer goes on with the same bytes."""
    headers = answer.headers
    return (
        answer.status == 206
        and headers.get("content-encoding", "identity") == "identity"
        and re.fullmatch(
            rf"bytes {part.size}-[0-9]+/{part.length}", headers.get("content-range", "")
        )
        and all(
            headers.get(name, part.headers.get(name)) == part.headers.get(name)
            for name in _IDENTITIES
        )
    )


def _accept(answer):
    """Returns an answer that holds the whole file, refusing any other."""
    status = answer.status
    if status == 200:
        return answer
    answer.close()
    why = "there is no such file" if status == 404 else answer.reason
    remedy = "check the URL, and KERAS_VIT_MIRROR if it is set"
    if status in _BUSY:
        why, remedy = f"{why}, {RETRIES + 1} times", "try again later"
    raise TransferError(
        f"The server refused {answer.url} with status {status} ({why}): {remedy}."
    )


def _refuse_page(url, start):
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise TransferError(
            f"The server sent a web page instead of {url}: log in if the network asks "
            "for it, or check the URL."
        )


def _get(url, headers):
    """Sends a request, and again while the network or the server fails."""
    deadline = time.monotonic() + FIRST_BYTE_SECONDS
    attempt = 0
    while True:
        attempt += 1
        last = attempt > RETRIES
        pause = BACKOFF_SECONDS * 2 ** (attempt - 1)
        try:
            answer = _Answer(url, headers, deadline)
            if last or answer.status not in _BUSY:
                return answer
            answer.close()
            time.sleep(_asked_to_wait(answer.headers) or pause)
            deadline = time.monotonic() + FIRST_BYTE_SECONDS
        except requests.exceptions.SSLError as error:
            # A certificate that is refused stays so.
            raise TransferError(
                f"No safe connection to {url} ({error}): check the computer's clock, "
                "and set REQUESTS_CA_BUNDLE if the network has a certificate of its "
                "own."
            ) from error
        except (requests.ConnectionError, requests.Timeout) as error:
            if last or time.monotonic() + pause >= deadline:
                raise _no_connection(url, error, attempt) from error
            time.sleep(pause)
        except (requests.RequestException, ValueError) as error:
            raise TransferError(f"Cannot ask for {url} ({error}): check it.") from error


def _no_connection(url, error, attempts):
    if isinstance(error, requests.exceptions.ProxyError):
        return TransferError(
            f"The proxy gave no connection to {url} ({error}): check HTTPS_PROXY, "
            "HTTP_PROXY and NO_PROXY."
        )
    host = urllib.parse.urlsplit(url).netloc
    return TransferError(
        f"The connection to {host} failed, {attempts} times ({error}): check the "
        "network and try again."
    )


def _asked_to_wait(headers):
    """Seconds that a busy server asks for, within reason; None if it does not."""
    try:
        answer = urllib3.HTTPResponse(headers=dict(headers))
        seconds = urllib3.Retry().get_retry_after(answer)
    except (urllib3.exceptions.HTTPError, ValueError, OverflowError):
        return None
    return None if seconds is None else min(seconds, RETRY_AFTER_SECONDS)


class _Answer:
    """What a server answers, asked for and read by a thread.

    Name servers, connections, headers and the ends of chunks can each take as long as
    they like, a byte at a time; nobody waits longer than a deadline for the thread.

    Args:
        url: str.
        headers: dict, of the request.
        deadline: float, of `time.monotonic`, for the first byte of the body.
    """

    def __init__(self, url, headers, deadline):
        self._deadline = deadline
        self._items = queue.Queue(_BLOCKS_AHEAD)
        self._left = threading.Event()
        self._response = None
        threading.Thread(target=self._work, args=(url, headers), daemon=True).start()
        try:
            response = self._take_first(url)
        except BaseException:
            self.close()
            raise
        self.url, self.headers = response.url, response.headers
        self.status, self.reason = response.status_code, response.reason

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Leaves the thread, and wakes it where that is possible."""
        self._left.set()
        if self._response is not None:
            with contextlib.suppress(ValueError, RuntimeError, OSError, AttributeError):
                self._response.raw.shutdown()

    def blocks(self):
        """Gives the bytes as long as they come fast enough, undoing a compression."""
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding in ("", "identity"):
            return self._packed_blocks()
        if encoding in ("gzip", "x-gzip"):
            return _unpacked(self._packed_blocks())
        raise TransferError(
            f"The server sent {self.url} compressed ({encoding}), which was not asked "
            "for: take it from another server."
        )

    def _packed_blocks(self):
        block = self._take_first(self.url)
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
            block = self._take(max(SPEED_SECONDS, TIMEOUTS[1]))
            if block is None:
                raise urllib3.exceptions.HTTPError("nothing came for long")

    def _take_first(self, url):
        item = self._take(self._deadline - time.monotonic())
        if item is None:
            host = urllib.parse.urlsplit(url).netloc
            raise _SilenceError(
                f"{host} did not begin to send {url} within {FIRST_BYTE_SECONDS} "
                "seconds: check the network and try again later."
            )
        return item

    def _take(self, seconds):
        """Returns what the thread gives next, None if it takes longer."""
        try:
            item = self._items.get(timeout=max(seconds, 0))
        except queue.Empty:
            return None
        if isinstance(item, BaseException):
            raise item
        return item

    def _work(self, url, headers):
        try:
            with _Session() as session, session.follow(url, headers) as response:
                self._response = response
                self._give(response)
                # Of a refusal the headers are enough.
                if response.status_code in (200, 206):
                    block = response
                    while block and not self._left.is_set():
                        block = response.raw.read1(_BLOCK_BYTES, False)
                        self._give(block)
        except BaseException as error:  # noqa: B036 - raised where it is waited for
            self._give(error)

    def _give(self, item):
        while not self._left.is_set():
            with contextlib.suppress(queue.Full):
                return self._items.put(item, timeout=0.1)
        return None


def _unpacked(blocks):
    """Gives the bytes of a gzip file, which must be whole, a block at a time."""
    unpacker, finished = zlib.decompressobj(31), False
    try:
        for block in blocks:
            while block:
                if unpacker.eof:
                    unpacker = zlib.decompressobj(31)
                if data := unpacker.decompress(block, _BLOCK_BYTES):
                    yield data
                block = unpacker.unconsumed_tail or unpacker.unused_data
        if data := unpacker.flush():
            yield data
        finished = unpacker.eof
    except zlib.error as error:
        raise urllib3.exceptions.HTTPError(f"its compression: {error}") from error
    if not finished:
        raise urllib3.exceptions.HTTPError("its compressed bytes ended early")


class _Session(requests.Session):
    """A session that follows redirects itself: requests reads the pages around them."""

    def __init__(self):
        super().__init__()
        # Compressed on the way, its length and checksum would not be the file's.
        self.headers["Accept-Encoding"] = "identity"

    def get_redirect_target(self, resp):
        """Returns None, so that requests follows none."""
        return

    def follow(self, url, headers):
        """Returns the answer where the redirects end, its body unread.

        Raises:
            TransferError: one leads from https to anything less, or they do not end.
        """
        for _ in range(_MOST_REDIRECTS + 1):
            response = self.get(url, headers=headers, stream=True, timeout=TIMEOUTS)
            target = super().get_redirect_target(response)
            if target is None:
                return response
            response.close()
            target = urllib.parse.urljoin(response.url, target)
            scheme = urllib.parse.urlsplit(target).scheme.lower()
            safe = urllib.parse.urlsplit(response.url).scheme.lower() == "https"
            if scheme not in (("https",) if safe else ("https", "http")):
                raise TransferError(
                    f"The server leads from {url} to {target}, "
                    f"{'which is not as safe' if safe else 'which is no http(s) URL'}: "
                    "take the file from another server, or ask this one's owner."
                )
            url = target
        raise TransferError(
            f"The server leads from one URL to the next, at last to {url}: check it."
        )

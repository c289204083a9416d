"""The bytes of a URL into a file, across broken connections and killed processes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import re
import time
import urllib.parse

import requests
import requests.adapters
import tqdm
import urllib3
import urllib3.exceptions

# Attempts after the first, the growing pauses between them, and the longest pause that
# a server may ask for.
RETRIES = 4
BACKOFF_SECONDS = 0.5
RETRY_AFTER_SECONDS = 60
# To connect, and from one byte to the next.
TIMEOUTS = (10, 30)
# Bytes a second, over so many seconds, below which a connection is as good as broken.
LOWEST_SPEED = 1000
SPEED_SECONDS = 60
_BLOCK_BYTES = 2**16
# As much as it takes to know a web page.
_PAGE_BYTES = 512
_BUSY = (408, 429, 500, 502, 503, 504)
# A server that unpacks the stored file describes the packed one.
_PACKINGS = ("content-encoding", "x-goog-stored-content-encoding")
_IDENTITIES = ("etag", "last-modified", "x-goog-hash")


class TransferError(OSError):
    """A transfer that failed; its text says why and what to do."""


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
            return note["headers"] if note["url"] == self.url else {}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}  # nothing to go on from: the transfer begins anew

    @property
    def length(self) -> int | None:
        """How many bytes the server promised, None where it did not."""
        length = self.headers.get("content-length", "")
        whole = re.fullmatch(r"[0-9]{1,18}", length) and not self._packed
        return int(length) if whole else None

    @property
    def md5s(self) -> list[str]:
        """The MD5 that the server promised, in base64; none where it did not."""
        hashes = "" if self._packed else self.headers.get("x-goog-hash", "")
        return re.findall(r"md5=([\w+/=]+)", hashes)

    @property
    def validator(self) -> str | None:
        """What lets a server go on with these bytes only if its file is the same."""
        etag = self.headers.get("etag")
        strong = etag if etag and not etag.startswith("W/") else None
        return strong or self.headers.get("last-modified")

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

    @property
    def _packed(self):
        return any(self.headers.get(n, "identity") != "identity" for n in _PACKINGS)


def download(part: Part, label: str) -> None:
    """Brings a part to its full length, from where it is if the server can.

    What came before a failure stays in the part, where it can be continued.

    Args:
        part: `Part`.
        label: str, for the progress bar on stderr.

    Raises:
        TransferError: no network, the server refuses, sends a web page, breaks off
            again and again or sends next to nothing.
        OSError: the part cannot be written.

    Example:
        >>> import pathlib
        >>> from zoo import transport
        >>> url = "https://storage.googleapis.com/vit_models/sam/ViT-B_16.npz"
        >>> part = transport.Part(pathlib.Path("ViT-B_16.part"), url)
        >>> transport.download(part, "ViT-B_16.npz")  # doctest: +SKIP
    """
    furthest, failures = part.size, 0
    with _session() as session:
        while True:
            begun = time.monotonic()
            reason = _go_on(session, part, label)
            if reason is None:
                return
            enough = max(1, LOWEST_SPEED * (time.monotonic() - begun))
            failures = 0 if part.size - furthest >= enough else failures + 1
            furthest = max(furthest, part.size)
            if failures > RETRIES:
                length, next_time = part.length, "it goes on from there"
                if part.validator is None:
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
    with _session() as session, _accept(_get(session, url, {})) as response:
        try:
            content = b""
            for block in _blocks(response):
                content += block
                if len(content) > most_bytes:
                    raise TransferError(
                        f"{url} has more than {most_bytes} bytes: check the URL."
                    )
        except urllib3.exceptions.HTTPError as error:
            raise TransferError(
                f"{url} broke off ({error}): check the network and try again."
            ) from error
    _refuse_page(url, content[:_PAGE_BYTES])
    return content


def _go_on(session, part, label):
    """Adds what one answer brings; returns why that was not all, or else None."""
    if part.size and part.size == part.length:
        return None  # all came, and then the process was killed
    with _ask(session, part) as response:
        blocks = _blocks(response)
        try:
            if response.status_code == 200:
                start = b""
                while len(start) < _PAGE_BYTES and (block := next(blocks, b"")):
                    start += block
                # Before the bytes that came earlier are dropped.
                _refuse_page(part.url, start)
                part.begin(response.headers)
                blocks = itertools.chain([start], blocks)
            _append(part, blocks, label)
        except urllib3.exceptions.HTTPError as error:
            return str(error)
    if part.length not in (None, part.size):
        return f"the answer ended at {part.size} bytes"
    return None


def _blocks(response):
    """Gives the bytes of an answer as long as they come fast enough."""
    begun, received = time.monotonic(), 0
    while block := response.raw.read1(_BLOCK_BYTES, True):
        yield block
        received += len(block)
        seconds = time.monotonic() - begun
        if seconds > SPEED_SECONDS:
            if received < LOWEST_SPEED * seconds:
                raise urllib3.exceptions.HTTPError(
                    f"{received} bytes came in {seconds:.0f} seconds"
                )
            begun, received = time.monotonic(), 0


def _append(part, blocks, label):
    bar = tqdm.tqdm(
        total=part.length, initial=part.size, unit="B", unit_scale=True, desc=label
    )
    with bar, open(part.path, "ab") as file:
        for block in blocks:
            file.write(block)
            file.flush()  # a killed process leaves what it received
            bar.update(len(block))


def _ask(session, part):
    """Returns the answer to a request for the rest if it fits, else for the whole."""
    if part.validator and part.length is not None and 0 < part.size < part.length:
        span = {"Range": f"bytes={part.size}-", "If-Range": part.validator}
        response = _get(session, part.url, span)
        if _fits(response, part):
            return response
        if response.status_code not in (206, 416):
            return _accept(response)
        response.close()
    return _accept(_get(session, part.url, {}))


def _fits(response, part):
    """Whether an answer goes on with the same bytes."""
    headers = response.headers
    return (
        response.status_code == 206
        and headers.get("content-encoding", "identity") == "identity"
        and re.fullmatch(
            rf"bytes {part.size}-[0-9]+/{part.length}", headers.get("content-range", "")
        )
        and all(
            headers.get(name, part.headers.get(name)) == part.headers.get(name)
            for name in _IDENTITIES
        )
    )


def _accept(response):
    """Returns an answer that holds the whole file, refusing any other."""
    status = response.status_code
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


def _refuse_page(url, start):
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise TransferError(
            f"The server sent a web page instead of {url}: log in if the network asks "
            "for it, or check the URL."
        )


def _get(session, url, headers):
    """Sends a request, and again while the network or the server fails."""
    try:
        return session.get(url, headers=headers, stream=True, timeout=TIMEOUTS)
    except requests.exceptions.SSLError as error:
        raise TransferError(
            f"No safe connection to {url} ({error}): check the computer's clock, and "
            "set REQUESTS_CA_BUNDLE if the network has a certificate of its own."
        ) from error
    except requests.exceptions.ProxyError as error:
        raise TransferError(
            f"The proxy gave no connection to {url} ({error}): check HTTPS_PROXY, "
            "HTTP_PROXY and NO_PROXY."
        ) from error
    except (requests.ConnectionError, requests.Timeout) as error:
        host = urllib.parse.urlsplit(url).netloc
        raise TransferError(
            f"The connection to {host} failed, {RETRIES + 1} times ({error}): check "
            "the network and try again."
        ) from error
    except (requests.RequestException, ValueError) as error:
        raise TransferError(f"Cannot ask for {url} ({error}): check it.") from error


def _session():
    retry = _Retry(
        RETRIES,
        other=0,  # a certificate that is refused stays so
        status_forcelist=_BUSY,
        backoff_factor=BACKOFF_SECONDS,
        raise_on_status=False,
    )
    session = requests.Session()
    # Compressed on the way, its length and checksum would not be the file's.
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=retry))
    return session


class _Retry(urllib3.Retry):
    """Waits as long as the server asks, within reason."""

    def get_retry_after(self, response):
        seconds = super().get_retry_after(response)
        return None if seconds is None else min(seconds, RETRY_AFTER_SECONDS)

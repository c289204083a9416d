"""A partly downloaded file, and the headers of its first response."""

import contextlib
import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping

from zoo.common import limits
from zoo.common.regular_files import read_text
from zoo.common.safe_text import PrintableError
from zoo.libraries.description import MALFORMED

# If these headers say that the server decompresses a stored file, its length and
# checksum are those of the compressed one.
_ENCODINGS = ("content-encoding", "x-goog-stored-content-encoding")
_IDENTITIES = ("etag", "last-modified", "x-goog-hash")


class TransferError(PrintableError, OSError):
    """A transfer that failed; its text says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The bytes so far of a URL at a path, and a note of the headers beside them.

    Once they are whole, `record` is where that of the file is written first.
    """

    path: pathlib.Path
    url: str

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def headers(self) -> dict[str, str]:
        """The stored headers, empty where they are damaged or of another URL."""
        with contextlib.suppress(FileNotFoundError, *MALFORMED):
            note = json.loads(read_text(self._note, limits.NOTE_BYTES))
            are_text = all(type(text) is str for text in note["headers"].values())
            return note["headers"] if are_text and note["url"] == self.url else {}
        return {}

    @property
    def length(self) -> int | None:
        """Bytes of the whole file, None where the server did not say."""
        return content_length(self.headers)

    @property
    def md5s(self) -> list[str]:
        """The base64 MD5 sums that the server sent; one or none."""
        hashes = self.headers.get("x-goog-hash", "")
        sums = re.findall(r"md5=([\w+/=]+)", hashes)
        return [] if _is_encoded(self.headers) else sums

    @property
    def validator(self) -> str | None:
        """The `If-Range` value with which a server resumes only the same file."""
        etag = self.headers.get("etag")
        strong = etag if etag and not etag.startswith("W/") else None
        return strong or self.headers.get("last-modified")

    @property
    def is_resumable(self) -> bool:
        return self.validator is not None and self.length is not None

    def continues(self, headers: Mapping[str, str]) -> bool:
        """Returns whether a response holds the bytes that follow these."""
        span = rf"bytes {self.size}-[0-9]+/{self.length}"
        return (
            headers.get("content-encoding", "identity") == "identity"
            and re.fullmatch(span, headers.get("content-range", "")) is not None
            and all(
                headers.get(name, self.headers.get(name)) == self.headers.get(name)
                for name in _IDENTITIES
            )
        )

    def begin(self, headers: Mapping[str, str]) -> None:
        """Deletes the bytes and stores the headers of a new response."""
        self.delete()
        names = ("content-length", *_ENCODINGS, *_IDENTITIES)
        kept = {name: headers[name] for name in names if name in headers}
        self._note.write_text(json.dumps({"url": self.url, "headers": kept}))

    def delete(self) -> None:
        for path in (self.path, self._note, self.record):
            path.unlink(missing_ok=True)

    @property
    def record(self) -> pathlib.Path:
        return self.path.with_name(f"{self.path.name}.record")

    @property
    def _note(self):
        return self.path.with_name(f"{self.path.name}.json")


def content_length(headers: Mapping[str, str]) -> int | None:
    """Returns the bytes that headers promise, None where they do not."""
    length = headers.get("content-length", "")
    whole = re.fullmatch(r"[0-9]{1,18}", length) and not _is_encoded(headers)
    return int(length) if whole else None


def _is_encoded(headers):
    return any(headers.get(name, "identity") != "identity" for name in _ENCODINGS)

"""A server on this machine that answers for a dataset repository, as the Hub does."""

import json
import os
import pathlib
import re
import urllib.parse

from serving import Quiet, serving

REPOSITORY = "datasets/someone/photos"
_ROUTES = re.compile(
    rf"/(?:api/)?{REPOSITORY}(?:/(revision|tree|resolve)/main(?:/(.*))?)?"
)


class Hub(Quiet):
    """Lists and sends the files of a folder.

    `faults` of the server says what goes wrong: lists by paths, whose first item is the
    status of the next answer, "cut" for a connection that is closed after half of a
    file, or "short" for half of a file that is said to be all.
    """

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = urllib.parse.unquote(self.path.partition("?")[0])
        faults = self.server.faults.get(path) if self.command == "GET" else None
        fault = faults.pop(0) if faults else None
        route = _ROUTES.fullmatch(path)
        if route is None:
            self.refuse(404, "RepoNotFound")
            return
        kind, file = route[1], pathlib.Path(self.server.folder, route[2] or "")
        if isinstance(fault, int):
            self.refuse(fault, "")
        elif not file.exists():
            self.refuse(404, "EntryNotFound")
        elif kind == "tree":
            self.answer(json.dumps(self.tree(file)).encode())
        elif kind == "resolve":
            self.send(file.read_bytes(), fault)
        else:
            self.answer(b'{"id": "someone/photos", "sha": "1f"}')

    def tree(self, folder):
        """Returns what is in a folder, or below it."""
        entries = (
            folder.rglob("*")
            if "recursive=true" in self.path.lower()
            else folder.iterdir()
        )
        return [
            {
                "path": path.relative_to(self.server.folder).as_posix(),
                "type": "directory" if path.is_dir() else "file",
                "size": os.path.getsize(path),
                "oid": "1f",
            }
            for path in sorted(entries)
        ]

    def send(self, content, fault):
        start, end = 0, len(content)
        if span := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or ""):
            start, end = int(span[1]), min(int(span[2] or end) + 1, end)
        content = content[start:end]
        if fault == "short":
            content = content[: len(content) // 2]
        status = 206 if span else 200
        self.answer(content, status, len(content) // 2 if fault == "cut" else None)

    def answer(self, content, status=200, most=None, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:most])

    def refuse(self, status, code):
        self.answer(b"", status, X_Error_Code=code)


def serving_hub(folder):
    """Runs a server of a folder, whose files are at `HUB/resolve/main/` of its URL."""
    return serving(Hub, folder=str(folder), faults={})

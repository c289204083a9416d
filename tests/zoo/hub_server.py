"""A hub on this machine that answers what `huggingface_hub` asks to read models."""

import dataclasses
import hashlib
import json
import urllib.parse

from serving import Quiet, serving

TOKEN = "hf_of_somebody"


@dataclasses.dataclass
class Repository:
    """The files of each revision, and who may read them."""

    revisions: dict[str, dict[str, bytes]]
    gated: bool = False
    private: bool = False

    def commit(self, revision):
        files = self.revisions[revision]
        parts = [name.encode() + content for name, content in sorted(files.items())]
        return hashlib.sha1(b"\0".join(parts)).hexdigest()

    def find(self, revision):
        """Returns the commit of a branch, tag or commit, and its files, or None."""
        for name, files in self.revisions.items():
            if revision in (name, self.commit(name)):
                return self.commit(name), files
        return None, None


class Handler(Quiet):
    def do_HEAD(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        self.server.requests.append(path)
        if self.server.broken:
            return self._refuse(self.server.broken, None, "Out of order")
        parts = path.removeprefix("/api/models").strip("/").split("/")
        name, action, rest = "/".join(parts[:2]), parts[2:3], parts[3:]
        repository = self.server.repositories.get(name)
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.private and not known):
            return self._refuse(404 if known else 401, "RepoNotFound", "Not found")
        revision = rest[0] if action == ["resolve"] else "/".join(rest) or "main"
        commit, files = repository.find(revision)
        if files is None:
            return self._refuse(404, "RevisionNotFound", "Invalid rev id")
        if action == ["tree"]:
            return self._answer(200, [self._entry(*item) for item in files.items()])
        if action != ["resolve"]:
            siblings = [{"rfilename": file} for file in files]
            info = {"id": name, "sha": commit, "siblings": siblings, "tags": []}
            return self._answer(200, info)
        if repository.gated:
            return self._refuse(401, "GatedRepo", f"Access to {name} is restricted")
        return self._resolve(commit, files, "/".join(rest[1:]))

    do_GET = do_HEAD

    def do_POST(self):
        """Creates a repository, which whoever has the token may."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._refuse(401, None, "Invalid credentials")
        if asked["organization"] != "somebody":
            return self._refuse(403, None, "You don't have the rights")
        name = f"{asked['organization']}/{asked['name']}"
        answer = {"url": f"{self.server.url}/{name}", "name": name}
        if name in self.server.repositories:
            return self._answer(409, answer | {"error": "You already have it"})
        private = asked.get("visibility", asked.get("private")) in ("private", True)
        self.server.repositories[name] = Repository({}, private=private)
        return self._answer(200, answer)

    def _resolve(self, commit, files, file):
        if file not in files:
            return self._refuse(404, "EntryNotFound", "Entry not found")
        digest = hashlib.sha1(files[file]).hexdigest()
        headers = {"X-Repo-Commit": commit, "ETag": f'"{digest}"'}
        return self._answer(200, files[file], headers)

    def _entry(self, path, content):
        digest = hashlib.sha1(content).hexdigest()
        return {"type": "file", "path": path, "size": len(content), "oid": digest}

    def _refuse(self, status, code, message):
        headers = {"X-Error-Message": message, "X-Error-Code": code}
        self._answer(status, {"error": message}, headers)

    def _answer(self, status, content=b"", headers=()):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(status)
        headers = {**dict(headers), "Content-Length": len(content)}
        for name, text in headers.items():
            if text is not None:
                self.send_header(name, str(text))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def running():
    """Runs a server with `repositories`; `requests` has the paths that were asked."""
    return serving(Handler, broken=None, repositories={}, requests=[])

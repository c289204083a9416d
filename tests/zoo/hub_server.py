"""A hub on this machine that answers what `huggingface_hub` asks the real one.

Small files lie in the repository itself; large ones, by their name, elsewhere, where a
redirect leads: Git LFS, as `HF_HUB_DISABLE_XET=1` has it.
"""

import base64
import dataclasses
import hashlib
import http.server
import json
import urllib.parse

from servers import serving

LARGE = (".safetensors", ".npz", ".h5", ".bin", ".keras")
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

    def files(self, revision):
        """The files of a branch, a tag or a commit, None where there is none."""
        for name, files in self.revisions.items():
            if revision in (name, self.commit(name)):
                return files
        return None


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads, as everybody; writes, with the token."""

    def do_HEAD(self):
        self._read()

    def do_GET(self):
        self._read()

    def do_PUT(self):
        self.server.requests.append(("PUT", self.path))
        self.server.large[self.path.rpartition("/")[2]] = self._body()
        self._answer(200)

    def do_POST(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        self.server.requests.append(("POST", path))
        body = self._body()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._refuse(401, None, "Invalid credentials")
        if path == "/api/validate-yaml":
            return self._answer(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path.endswith("/info/lfs/objects/batch"):
            return self._batch(json.loads(body))
        if "/preupload/" in path:
            return self._answer(200, {"files": self._modes(json.loads(body))})
        return self._commit(path, [json.loads(line) for line in body.splitlines()])

    def log_message(self, *_):
        """Keeps quiet."""

    def _read(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        self.server.requests.append((self.command, path))
        if self.server.broken:
            return self._refuse(self.server.broken, None, "Out of order")
        if path.startswith("/large/"):
            assert "Authorization" not in self.headers
            return self._answer(200, self.server.large[path.rpartition("/")[2]])
        parts = path.removeprefix("/api/models").strip("/").split("/")
        name, action, rest = "/".join(parts[:2]), parts[2:3], parts[3:]
        repository = self.server.repositories.get(name)
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.private and not known):
            return self._refuse(404 if known else 401, "RepoNotFound", "Not found")
        revision = rest[0] if action == ["resolve"] else "/".join(rest) or "main"
        files = repository.files(revision)
        if files is None:
            return self._refuse(404, "RevisionNotFound", "Invalid rev id")
        if action == ["tree"]:
            return self._answer(200, [self._entry(*item) for item in files.items()])
        if action != ["resolve"]:
            commit = next(
                repository.commit(key)
                for key, value in repository.revisions.items()
                if value is files
            )
            siblings = [{"rfilename": file} for file in files]
            info = {"id": name, "sha": commit, "siblings": siblings, "tags": []}
            return self._answer(200, info)
        if repository.gated:
            return self._refuse(401, "GatedRepo", f"Access to {name} is restricted")
        return self._resolve(revision, files, "/".join(rest[1:]))

    def _resolve(self, commit, files, file):
        if file not in files:
            return self._refuse(404, "EntryNotFound", "Entry not found")
        content = files[file]
        digest = hashlib.sha256(content).hexdigest()
        headers = {"X-Repo-Commit": commit}
        if not file.endswith(LARGE):
            return self._answer(200, content, headers | {"ETag": f'"{digest[:40]}"'})
        self.server.large[digest] = content
        headers |= {
            # Another host to the library, which then keeps the token to itself.
            "Location": f"http://localhost:{self.server.server_port}/large/{digest}",
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(content)),
        }
        return self._answer(302, b"", headers)

    def _entry(self, path, content):
        digest = hashlib.sha256(content).hexdigest()
        entry = {"type": "file", "path": path, "size": len(content), "oid": digest[:40]}
        if path.endswith(LARGE):
            entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 130}
        return entry

    def _create(self, wanted):
        name = f"{wanted['organization']}/{wanted['name']}"
        if wanted["organization"] != "somebody":
            return self._refuse(403, None, "You don't have the rights")
        url = f"{self.server.url}/{name}"
        if name in self.server.repositories:
            return self._answer(409, {"error": "You already have it", "url": url})
        private = wanted.get("visibility", wanted.get("private")) in ("private", True)
        self.server.repositories[name] = Repository({"main": {}}, private=private)
        return self._answer(200, {"url": url, "name": name})

    def _modes(self, asked):
        def mode(path):
            way = "lfs" if path.endswith(LARGE) else "regular"
            return {"path": path, "uploadMode": way, "shouldIgnore": False, "oid": None}

        return [mode(file["path"]) for file in asked["files"]]

    def _batch(self, asked):
        def upload(oid):
            return {"upload": {"href": f"{self.server.url}/large/{oid}"}}

        objects = [one | {"actions": upload(one["oid"])} for one in asked["objects"]]
        return self._answer(200, {"transfer": "basic", "objects": objects})

    def _commit(self, path, lines):
        name = "/".join(path.split("/")[3:5])
        repository = self.server.repositories[name]
        files = repository.revisions["main"]
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.server.messages.append(value["summary"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            else:
                files[value["path"]] = base64.b64decode(value["content"])
        commit = repository.commit("main")
        url = f"{self.server.url}/{name}/commit/{commit}"
        self._answer(200, {"commitUrl": url, "commitOid": commit})

    def _body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _refuse(self, status, code, message):
        headers = {"X-Error-Message": message, "X-Error-Code": code}
        headers = {name: text for name, text in headers.items() if text}
        self._answer(status, {"error": message}, headers)

    def _answer(self, status, content=b"", headers=()):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers = {**dict(headers), "Content-Type": "application/json"}
        self.send_response(status)
        for name, text in dict(headers).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def running():
    """Gives a server with `repositories`; `requests` and `messages` tell of its use."""
    held = {"repositories": {}, "large": {}, "requests": [], "messages": []}
    return serving(Handler, broken=None, **held)

"""Photos and shards at URLs, over sockets of this machine: the rows of local files."""

import io
import os
import shutil
import sys

import fsspec
import hub
import pytest
from photo_folder import rows_of, tar_of
from serving import Files, serving_files

from train.common.errors import RunError
from train.predict import in_parts, remote
from train.predict.photo_list import Photos
from train.predict.prediction import predict

HUB = f"hf://{hub.REPOSITORY}"
FILES = f"/{hub.REPOSITORY}/resolve/main"


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """Reads are tried again without pauses; returns how often."""
    monkeypatch.setattr(remote, "_PAUSES", (0, 0, 0, 0))
    return 4


@pytest.fixture
def server(folder, monkeypatch):
    """A server of the folder that answers for a dataset repository."""
    pytest.importorskip("huggingface_hub")
    tar_of("a.tar", ["0.png", "1.png"])
    for path in ("cats/old/a #1 50%.png", ".hidden/1.png", "cats/.one.png"):
        os.makedirs(os.path.dirname(f"photos/{path}"), exist_ok=True)
        shutil.copy("photos/1.png", f"photos/{path}")
    with hub.serving_hub(folder) as one:
        options = {"endpoint": one.url, "token": False}
        monkeypatch.setitem(fsspec.config.conf, "hf", options)
        yield one


def go(*places, out="out"):
    return in_parts.predict("stub", list(places), out, show_progress=False)


def answers(folder, top=""):
    """Returns the answers of all parts, by files below `top`."""
    return {row.pop("file").removeprefix(top): row for row in rows_of(folder)}


@pytest.mark.parametrize(
    "place", ["photos", "photos/", "photos/*", "photos/**", "photos/*/*", "a.tar", ""]
)
def test_a_repository_has_the_rows_of_a_local_folder(place, stub, server):
    stub()
    here = go(place or ".", out="here")
    there = go(f"{HUB}/{place}", out="there")
    assert (there.answered, there.unreadable) == (here.answered, here.unreadable)
    assert here.answered >= 1
    local = {file.removeprefix("./"): row for file, row in answers("here").items()}
    assert answers("there", f"{HUB}/") == local


def test_a_list_of_urls_has_the_rows_of_local_files(stub, server, monkeypatch):
    stub()
    names = ["photos/1.png", "photos/cats/old/a #1 50%.png", "a.tar"]
    lines = "".join(f"{HUB}/{name}\n" for name in [*names, "photos/none.png"])
    lines += "see no://where\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    found = go("-", out="there")
    assert (found.answered, found.unreadable) == (4, 2)
    assert f"{HUB}/photos/none.png" in found.reasons[0]
    assert "see no://where" in found.reasons[1]
    go(*names, out="here")
    assert answers("there", f"{HUB}/") == answers("here")


@pytest.mark.parametrize("name", ["photos", "photos/", "photos/*.png", "none/*.png"])
def test_a_folder_or_a_pattern_in_a_list_is_to_be_an_argument(
    name, stub, server, monkeypatch
):
    stub()
    line = f"{HUB}/{name}\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line)))
    [reason] = go("-").reasons
    assert f"{HUB}/{name} is a folder or a pattern, and photos in a list" in reason
    assert "pass it as an argument" in reason


def test_what_is_not_there_is_named(stub, server):
    stub()
    for place in ("hf://datasets/someone/other", f"{HUB}/photos/none"):
        with pytest.raises(RunError, match=f"no photo or folder {place}: .*"):
            go(place)


def test_files_that_are_cut_are_read_by_the_same_command(stub, server, pauses):
    pytest.importorskip("aiohttp")
    stub()
    url = f"{server.url}{FILES}"
    places = [f"{url}/photos/{number}.png" for number in range(3)]
    server.faults[f"{FILES}/photos/1.png"] = ["cut"] * (pauses + 1)
    assert (go(*places).answered, go(*places).answered) == (2, 3)
    server.faults[f"{FILES}/a.tar"] = ["cut"] * (pauses + 1)
    with pytest.raises(RunError, match=r"a\.tar.* cannot be read: .*goes on once it"):
        go(f"{url}/a.tar", out="shard")
    assert go(f"{url}/a.tar", out="shard").answered == 2


def test_a_photo_that_ends_early_is_named(stub, server):
    stub()
    place, path = f"{HUB}/photos/1.png", f"{FILES}/photos/1.png"
    server.faults[path] = ["short"] * 99
    [reason] = go(place).reasons
    assert "photos/1.png: it ends after" in reason
    server.faults[path] = []
    assert go(place).answered == 1


@pytest.mark.parametrize(
    "path", [f"{FILES}/photos/1.png", f"/api/{hub.REPOSITORY}/tree/main/photos"]
)
def test_a_server_that_fails_once_is_asked_again(path, stub, server):
    stub()
    server.faults[path] = [500]
    assert go(f"{HUB}/photos").answered == 11
    assert server.faults[path] == []


@pytest.mark.parametrize(
    ("scheme", "name"), [("hf", "a.tar"), ("http", "a.tar"), ("http", "photos/1.png")]
)
def test_a_file_is_tried_again_after_errors_that_may_pass_alone(
    scheme, name, stub, server
):
    pytest.importorskip("aiohttp")
    stub()
    url = f"{HUB if scheme == 'hf' else f'{server.url}{FILES}'}/{name}"
    faults = server.faults[f"{FILES}/{name}"] = [500, 503, 429]
    assert go(url).answered == (2 if name == "a.tar" else 1)
    assert faults == []
    read = {
        "a.tar": lambda url: remote.local_file(url).__enter__(),
        "photos/1.png": remote.content_of,
    }
    for status in (403, 404):
        faults = server.faults[f"{FILES}/{name}"] = [status] * 5
        with pytest.raises(OSError, match="40[34]|not there"):
            read[name](url)
        assert len(faults) == 4


class Refused(Exception):
    def __init__(self, status):
        super().__init__(status)
        self.status = status


def test_errors_that_may_pass_are_told_from_others_by_their_causes(monkeypatch):
    slept = []
    monkeypatch.setattr(remote, "_PAUSES", (1, 2, 4))
    monkeypatch.setattr(remote.time, "sleep", slept.append)

    def number_of_tries(error, cause=None):
        tries = []

        def read():
            tries.append(1)
            raise error from cause

        with pytest.raises(type(error)):
            remote._tried(read)
        return len(tries)

    assert number_of_tries(Refused(502)) == number_of_tries(TimeoutError()) == 4
    assert slept == [1, 2, 4] * 2
    assert number_of_tries(FileNotFoundError("url"), Refused(500)) == 4
    for error in (Refused(401), FileNotFoundError("url"), PermissionError(13, "no")):
        assert number_of_tries(error) == 1
    assert number_of_tries(FileNotFoundError("url"), Refused(404)) == 1


def test_a_file_that_a_server_refuses_is_not_called_missing():
    for status, reason in ((500, r"it is not sent \(500\)"), (404, "it is not there")):
        with pytest.raises(OSError, match=reason), remote._explained("http://h/a.png"):
            raise FileNotFoundError("http://h/a.png") from Refused(status)


def test_a_file_that_ends_early_is_named(folder, monkeypatch):
    files = fsspec.filesystem("memory")
    files.pipe("/early/a.tar", bytes(1024))
    info = {"size": 2048, "type": "file", "contentEncoding": "gzip"}
    monkeypatch.setattr(type(files), "info", lambda *_: info)
    with remote.local_file("memory://early/a.tar") as path:
        assert os.path.getsize(path) == 1024
    del info["contentEncoding"]
    expected = "it ends after 1,024 of 2,048 bytes"
    with pytest.raises(OSError, match=expected):
        remote.local_file("memory://early/a.tar").__enter__()


def test_a_photo_that_the_storage_has_packed_is_whole(monkeypatch):
    files = fsspec.filesystem("memory")
    files.pipe("/packed/1.png", b"photo")
    info = {"size": 5, "type": "file", "contentEncoding": "gzip"}
    monkeypatch.setattr(type(files), "info", lambda *_: info)
    monkeypatch.setattr(fsspec.implementations.memory.MemoryFile, "size", 9)
    assert remote.content_of("memory://packed/1.png") == b"photo"
    del info["contentEncoding"]
    with pytest.raises(OSError, match="it ends after 5 of 9 bytes"):
        remote.content_of("memory://packed/1.png")


class Gone(Files):
    """Says that a folder is not there, which another one has a link to."""

    def do_GET(self):
        if self.path == "/photos/cats/":
            self.send_error(404)
        else:
            super().do_GET()


def test_a_folder_that_cannot_be_listed_is_named(folder):
    pytest.importorskip("aiohttp")
    os.makedirs("photos/cats")
    with serving_files(folder, Gone) as server:
        for place in (f"{server.url}/photos/", f"{server.url}/photos/**"):
            with pytest.raises(RunError, match=r"/photos/.*: it is not there"):
                Photos([place])


def test_file_systems_that_others_use_stay_as_they_are():
    files = fsspec.filesystem("memory")
    files.pipe("/others/1.png", b"")
    assert list(Photos(["memory://others/"])) == ["memory:///others/1.png"]
    assert list(files.walk("/others/none")) == []


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("trip [2]/*", ["trip 2/b.jpg", "trip [2]/a.jpg"]),
        ("trip [2]/**", ["trip 2/b.jpg", "trip [2]/a.jpg"]),
        ("trip [13]/*", []),
    ],
)
def test_brackets_of_a_pattern_are_as_in_local_ones(pattern, names, folder):
    files = fsspec.filesystem("memory")
    for name in ("trip 2/b.jpg", "trip [2]/a.jpg"):
        os.makedirs(os.path.dirname(name))
        open(name, "w").close()
        files.pipe(f"/{name}", b"")
    for top, found in (("", names), ("memory:///", [f"memory:///{n}" for n in names])):
        if names:
            assert list(Photos([f"{top}{pattern}"])) == found
        else:
            with pytest.raises(RunError, match=r"check the (pattern|URL)"):
                Photos([f"{top}{pattern}"])


def test_hidden_files_at_the_root_of_a_storage_are_left_out():
    paths = [".a.png", ".b/1.png", "c/.d.png", "c/2.png", "3.png"]
    assert remote._visible(paths, "") == ["c/2.png", "3.png"]


@pytest.mark.parametrize("place", ["zip://1.png::a.zip", "simplecache::http://h/*"])
def test_chained_urls_are_refused_by_name(place):
    with pytest.raises(RunError, match=r"::.*: chained URLs \(::\) are not read"):
        Photos([place], with_shards=True)
    with pytest.raises(ValueError, match="chained URLs"):
        remote.content_of(place)


def test_an_archive_at_a_url_is_read_as_a_shard_alone(folder, stub, server):
    with pytest.raises(RunError, match="a.tar is an archive at a URL: pass --out=FOL"):
        predict("stub", [f"{HUB}/a.tar"], out="whole.csv")


def test_a_missing_package_is_named_with_its_pip_line(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(RunError, match="gs://b/photos/.*: pip install gcsfs"):
        Photos(["gs://b/photos/"])


def test_files_in_folders_that_are_left_out_are_counted(server):
    with open("photos/notes.txt", "w") as file:
        file.write("text")
    photos = Photos([f"{HUB}/photos"])
    assert len(list(photos)) == 12
    assert "1 file with the endings of no photo (.txt)" in photos.note()


def test_photos_and_shards_of_a_page_of_links(folder, stub):
    pytest.importorskip("aiohttp")
    stub()
    tar_of("a.tar", ["0.png", "1.png"])
    with serving_files(folder) as server:
        places = [f"{server.url}/{name}" for name in ("photos/", "a.tar", "none.png")]
        found = go(*places)
        predict("stub", places[:1], out="whole.csv")
    assert (found.answered, found.unreadable) == (12, 2)
    assert any("none.png" in reason for reason in found.reasons)
    rows = answers("out", f"{server.url}/")
    assert rows["photos/1.png"] == rows["a.tar/set/1.png"]
    with open("whole.csv") as file:
        assert len(file.readlines()) == 11

"""The photos that a command line names."""

import glob
import io
import os
import types

import pytest

from train.common.errors import RunError
from train.predict.photo_list import Photos


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.jpg", "a.JPG", "c[1].png", "notes.txt", ".hidden.jpg", "Thumbs.db"):
        touch(f"photos/{name}")
    touch("photos/cat/1.webp")
    touch("photos/cat/deep/2.bmp")
    touch("photos/.trash/3.jpg")
    touch("photos/sorted/cat/b.jpg")
    touch("alone.dat")
    return tmp_path


def touch(path):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    open(path, "w").close()


def test_folders_and_files(folder, monkeypatch):
    found = Photos(["photos", "alone.dat"], without=["photos/sorted"])
    names = [
        "photos/a.JPG",
        "photos/b.jpg",
        "photos/c[1].png",
        "photos/cat/1.webp",
        "photos/cat/deep/2.bmp",
        "alone.dat",
    ]
    assert list(found) == names and list(found) == names
    assert found.count() == 6 and found.count(lambda path: "cat" in path) == 4
    assert found.others == {".txt": 1, ".db": 1}
    assert found.note() == "left out 2 files with the endings of no photo (.db, .txt)"
    touch("photos/1.HEIC")
    monkeypatch.setattr("zoo.photos.files.reads_heic", lambda: False)
    found = Photos(["photos"])
    assert "photos/1.HEIC" not in list(found)
    told = "(.db, .heic, .txt); pip install pillow-heif reads HEIC photos"
    assert found.note().endswith(told)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("photos/ca*", ["photos/cat/1.webp", "photos/cat/deep/2.bmp"]),
        ("photos/cat/**", ["photos/cat/1.webp", "photos/cat/deep/2.bmp"]),
        # Brackets of a name.
        ("trip [2024]/*.jpg", ["trip 2/b.jpg", "trip [2024]/a.jpg"]),
        ("trip [2024]/**/c.*", ["trip [2024]/sub/c.jpg"]),
        ("photos/c[1].png", ["photos/c[1].png"]),
        ("photos/c[1]*", ["photos/c[1].png"]),
        ("photos/[bc].jpg", ["photos/b.jpg"]),
        *((missing, None) for missing in ("no.jpg", "photos/no", "photos/*.tif", "")),
    ],
)
def test_patterns_that_the_shell_has_left(folder, pattern, found):
    for name in ("trip [2024]/a.jpg", "trip [2024]/sub/c.jpg", "trip 2/b.jpg"):
        touch(name)
    if found is None:
        with pytest.raises(RunError, match="check the"):
            Photos(["photos", pattern])
    else:
        assert list(Photos([pattern])) == found


@pytest.mark.parametrize(
    "pattern", ["**", "ph*/**/*.*", "photos/**/cat/**", "**/d*/**/*.bmp", "./**/1.webp"]
)
def test_two_stars_are_as_glob_has_them(folder, pattern):
    files = filter(os.path.isfile, glob.glob(pattern, recursive=True))
    assert list(Photos([pattern])) == sorted(set(files)) != []


def test_links_to_folders_are_followed_once(folder):
    touch("elsewhere/x.jpg")
    touch("elsewhere/in/y.jpg")
    os.symlink("../elsewhere", "photos/linked")
    os.symlink("../elsewhere/in", "photos/linked again")
    # To a folder above, to itself, to one that is read, and to one that is hidden.
    os.symlink(".", "photos/cat/up")
    os.symlink("../..", "photos/cat/higher")
    os.symlink("loop", "photos/loop")
    os.symlink("cat/deep", "photos/deep")
    os.symlink(".trash", "photos/trash")
    found = list(Photos(["photos"], without=["photos/sorted"]))
    real = [os.path.relpath(os.path.realpath(path)) for path in found]
    assert len(set(real)) == len(real)
    expected = {"b.jpg", "a.JPG", "c[1].png", "cat/1.webp", "cat/deep/2.bmp"}
    expected = {f"photos/{name}" for name in expected | {".trash/3.jpg"}}
    assert {*real} == expected | {"elsewhere/x.jpg", "elsewhere/in/y.jpg"}
    # All of them once if they are given, too, and by a pattern.
    found = Photos(["photos", "elsewhere", "photos/cat"], without=["photos/sorted"])
    assert sorted(map(os.path.realpath, found)) == sorted(map(os.path.realpath, real))
    assert len(list(Photos(["photos/**/*.webp"]))) == 1


def test_a_folder_that_cannot_be_read(folder, monkeypatch):
    scandir = os.scandir

    def refuse(path):
        if path == "photos/cat/deep":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for places in (["photos/cat", "photos/cat/deep"], ["photos/cat/**"]):
        assert list(Photos(places)) == ["photos/cat/1.webp", "photos/cat/deep"]


def test_a_list_on_standard_input(folder, monkeypatch):
    lines = b"photos/b.jpg\n\nnone \xe9.jpg\r\nphotos/cat"
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(lines)))
    found = Photos(["alone.dat", "-"])
    assert found.count() is None
    assert list(map(os.fsencode, found)) == [
        b"alone.dat",
        b"photos/b.jpg",
        b"none \xe9.jpg",
        b"photos/cat/1.webp",
        b"photos/cat/deep/2.bmp",
    ]

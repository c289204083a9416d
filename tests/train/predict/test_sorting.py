"""Copies by class: nothing is overwritten, names are safe."""

import concurrent.futures
import os
import re

import pytest

from train.common.errors import RunError
from train.predict.sorting import SortedCopies, folder_names


@pytest.fixture(params=["links", "no links"])
def copies(request, tmp_path, monkeypatch):
    if request.param == "no links":

        def refuse(*_):
            raise OSError("a disk without links")

        monkeypatch.setattr(os, "link", refuse)
    return SortedCopies(tmp_path / "sorted", ["cat", "a/b"])


def test_marks_have_folders_that_no_class_has(tmp_path):
    copies = SortedCopies(tmp_path / "sorted", ["cat", "_unsure", "unsure"], ["unsure"])
    path = photo(tmp_path, "x", "x")
    places = [copies.add(path, name) for name in ("cat", "_unsure", "unsure")]
    places.append(copies.add(path, "cat", "unsure"))
    found = [place.parent.name for place in places]
    assert found == ["cat", "_unsure", "unsure", "_unsure-2"]
    assert copies.add(path, "cat", "") == places[0]


def photo(tmp_path, folder, content, name="1.jpg"):
    path = tmp_path / folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return str(path)


def test_a_name_that_is_taken_gets_a_digest(copies, tmp_path, monkeypatch):
    places = []
    for folder in ("x", "y", "z"):
        places.append(copies.add(photo(tmp_path, folder, folder), "cat"))
    names = [place.name for place in places]
    assert names[0] == "1.jpg" and len(set(names)) == 3
    assert all(re.fullmatch(r"1-[0-9a-f]{16}\.jpg", name) for name in names[1:])
    assert [place.read_text() for place in places] == ["x", "y", "z"]
    # Copied again, as after an interruption, from another directory too.
    monkeypatch.chdir(tmp_path / "y")
    for path in (tmp_path / "y" / "1.jpg", "1.jpg"):
        assert copies.add(str(path), "cat") == places[1]
    assert sorted(os.listdir(places[0].parent)) == sorted(names)
    # As long as disks take it, or no text.
    long = "x" * 251 + ".jpg"
    for folder in ("x", "y"):
        for name in (long, os.fsdecode(b"\xe9.jpg")):
            where = copies.add(photo(tmp_path, folder, folder, name), "a/b")
            assert where.parent.name == "a_b" and where.read_text() == folder
    shown = {name for name in os.listdir(tmp_path / "sorted") if name[0] != "."}
    assert shown == {"a_b", "cat"}


def test_many_photos_of_one_name_take_constant_time(tmp_path, monkeypatch):
    copies, checked = SortedCopies(tmp_path / "sorted", ["cat"]), []
    lexists = os.path.lexists
    monkeypatch.setattr(os.path, "lexists", lambda p: checked.append(p) or lexists(p))
    for number in range(50):
        copies.add(photo(tmp_path, str(number), str(number)), "cat")
    assert len(os.listdir(tmp_path / "sorted" / "cat")) == 50
    assert 50 <= len(checked) <= 4 * 50


def test_folders_of_other_things_are_not_touched(copies, tmp_path):
    (tmp_path / "sorted" / "cat" / "1.jpg").mkdir(parents=True)
    path = photo(tmp_path, "x", "x")
    where = copies.add(path, "cat")
    assert where.name.startswith("1-") and where.read_text() == "x"
    where.unlink()
    os.symlink("nowhere", where)
    with pytest.raises(RunError, match=r"are other files. Move them away, or pass"):
        copies.add(path, "cat")
    assert os.readlink(where) == "nowhere"
    with pytest.raises(RunError, match=r"Cannot copy .*gone\.jpg"):
        copies.add(str(tmp_path / "gone.jpg"), "cat")


def test_safe_names_are_distinct():
    given = ["", ".", "..", " x", "con", "NUL.txt", "a\nb", "a:b", "A?B", "x" * 300]
    given += ["x" * 301, "雪" * 100, "crane", "crane", "\u202egnp", ".hidden", "end. "]
    names = folder_names(given)
    assert list(names) == list(dict.fromkeys(given))
    assert len({name.casefold() for name in names.values()}) == len(names)
    for name in names.values():
        assert name == os.path.basename(name) and name not in ("", ".", "..")
        assert name[0] != "." and name[-1] not in ". " and len(name.encode()) < 255
        assert name.isprintable()
    assert names["NUL.txt"] == "_NUL.txt" and names["crane"] == "crane"


def test_what_killed_processes_left_goes_and_what_others_have_stays(tmp_path):
    folder = tmp_path / "sorted"
    folder.mkdir()
    (folder / ".keras-vit-123456.tmp").write_text("half a photo")
    others = [".keras-vit-mine.tmp", "notes.tmp", ".keras-vit-7.tmp"]
    for name in others[:2]:
        (folder / name).write_text("mine")
    (folder / others[2]).symlink_to("notes.tmp")
    SortedCopies(folder, ["cat"])
    assert set(os.listdir(folder)) == {*others, ".keras-vit.lock"}


def test_several_that_copy_the_same_photos_copy_nothing_twice(tmp_path):
    photos = [photo(tmp_path, "x", str(n) * 1000, f"{n}.jpg") for n in range(30)]

    def copy(_):
        copies = SortedCopies(tmp_path / "sorted", ["cat"])
        return [copies.add(path, "cat").name for path in photos]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(copy, range(4)))
    assert found == 4 * [[os.path.basename(path) for path in photos]]
    assert sorted(os.listdir(tmp_path / "sorted" / "cat")) == sorted(found[0])
    assert {*os.listdir(tmp_path / "sorted")} == {"cat", ".keras-vit.lock"}

"""Copies by class: nothing is overwritten, names are safe."""

import os

import pytest

from train.common.errors import RunError
from train.predict import sorting
from train.predict.sorting import SortedCopies, folder_names


@pytest.fixture(params=["links", "no links"])
def copies(request, tmp_path, monkeypatch):
    if request.param == "no links":

        def refuse(*_):
            raise OSError("a disk without links")

        monkeypatch.setattr(os, "link", refuse)
    return SortedCopies(tmp_path / "sorted", ["cat", "a/b"])


def photo(tmp_path, folder, content, name="1.jpg"):
    path = tmp_path / folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return str(path)


def test_a_name_that_is_taken_gets_a_number(copies, tmp_path):
    names = []
    for folder in ("x", "y", "z"):
        names.append(copies.add(photo(tmp_path, folder, folder), "cat").name)
    assert names == ["1.jpg", "1-2.jpg", "1-3.jpg"]
    # Copied again, as after an interruption.
    assert copies.add(str(tmp_path / "y" / "1.jpg"), "cat").name == "1-2.jpg"
    found = sorted((tmp_path / "sorted" / "cat").iterdir())
    assert [path.read_text() for path in found] == ["y", "z", "x"]
    assert os.listdir(tmp_path / "sorted") == ["cat"]


def test_folders_of_other_things_are_not_touched(copies, tmp_path):
    (tmp_path / "sorted" / "cat" / "1.jpg").mkdir(parents=True)
    os.symlink("nowhere", tmp_path / "sorted" / "cat" / "1-2.jpg")
    where = copies.add(photo(tmp_path, "x", "x"), "cat")
    assert where.name == "1-3.jpg" and where.read_text() == "x"


def test_names_of_classes_stay_in_the_folder(copies, tmp_path):
    where = copies.add(photo(tmp_path, "x", "x", os.fsdecode(b"\xe9.jpg")), "a/b")
    assert os.fsencode(where.relative_to(tmp_path)) == b"sorted/a_b/\xe9.jpg"


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


def test_a_photo_that_is_gone(copies, tmp_path):
    with pytest.raises(RunError, match=r"Cannot copy .*gone\.jpg"):
        copies.add(str(tmp_path / "gone.jpg"), "cat")
    assert sorting.os.listdir(tmp_path / "sorted" / "cat") == []

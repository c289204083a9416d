"""Files of answers: hostile names, kills in a line, settings."""

import csv
import json
import os

import pytest
from full_disk import full_disk

from train.common.errors import RunError
from train.predict.answers import FORMATS, Answer, AnswerFile, spelled
from zoo.common.safe_text import of_plain_cell

SETTINGS = {"weights": "1f", "image_size": [8, 8]}
# Line breaks, what CSV needs, another coding, and a formula.
NAMES = ["a,b.jpg", 'quote".jpg', "two\nlines\r.jpg", "café.jpg", "=1+1.jpg", " .jpg"]
NAMES += ["'=1.jpg", "''a.jpg", "\r,\n.jpg", '@"']
PATHS = [*NAMES, os.fsdecode(b"caf\xe9\n.jpg"), "\u2028\x85\x0c.jpg"]
ANSWERS = [
    Answer(spelled(path), (("+müßig, 'a'", 0.5), ('"b"\r\n', 0.25), ("c", 1e-7)))
    for path in PATHS
]


@pytest.fixture(params=FORMATS)
def path(request, tmp_path):
    return tmp_path / f"answers{request.param}"


def write(path, answers, resume=False, settings=SETTINGS):
    file = AnswerFile(path, resume)
    file.open(settings)
    file.append(answers)
    file.close()
    return file


def test_other_readers_find_the_names(path):
    write(path, ANSWERS)
    with path.open(newline="", encoding="utf-8") as file:
        if path.suffix == ".csv":
            rows = list(csv.DictReader(file))
        else:
            rows = [json.loads(line) for line in file]
    files, labels = ([row[column] for row in rows] for column in ("file", "label"))
    if path.suffix == ".csv":
        # No cell is a formula.
        assert not [cell for cell in files + labels if cell[0] in "=+-@\t\r"]
        files, labels = (list(map(of_plain_cell, cells)) for cells in (files, labels))
    assert files == [spelled(path) for path in PATHS]
    assert set(labels) == {"+müßig, 'a'"}
    assert [float(row["probability"]) for row in rows] == [0.5] * len(PATHS)
    if path.suffix == ".csv":
        assert rows[0]["label_2"] == '"b"\r\n' and rows[0]["probability_3"] == "1e-07"
        assert rows[0]["label_4"] == rows[0]["probability_5"] == ""
    else:
        assert rows[0]["top"][2] == {"label": "c", "probability": 1e-7}
    assert list(AnswerFile(path, resume=True)) == ANSWERS


def test_a_kill_at_any_byte_is_gone_on_with(path):
    answers, paths = ANSWERS[1:4], PATHS[1:4]
    write(path, answers)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        file = AnswerFile(path, resume=True)
        assert file.count <= len(answers)
        done = [file.has(one) for one in paths]
        assert done == [True] * file.count + [False] * (len(paths) - file.count)
        file.open(SETTINGS)
        file.append(answers[file.count :])
        file.close()
        assert path.read_bytes() == whole


def test_many_photos_are_known(path):
    count = 3000
    write(path, [Answer(f"{n}.jpg", (("a", 1.0),)) for n in range(count)])
    file = AnswerFile(path, resume=True)
    assert file.count == count and not file.has(f"{count}.jpg")
    assert all(file.has(f"{n}.jpg") for n in range(count))


def test_paths_are_found_from_another_directory_and_after_a_move(path, monkeypatch):
    project, photo = path.parent / os.fsdecode(b"caf\xe9"), os.fsdecode(b"\xe9.jpg")
    (project / "photos").mkdir(parents=True)
    (project / "photos" / photo).touch()
    monkeypatch.chdir(project)
    answers = [
        Answer(spelled(f"photos/{photo}"), (("a", 1.0),)),
        Answer("/elsewhere/1.jpg", (("b", 1.0),)),
    ]
    write(project / path.name, answers)
    moved = project.rename(path.parent / os.fsdecode(b"moved\xe9"))
    for folder, name in ((moved, path.name), (moved / "photos", f"../{path.name}")):
        monkeypatch.chdir(folder)
        file = AnswerFile(name, resume=True)
        true = os.path.relpath(moved / "photos" / photo)
        assert file.has(true) and file.has(os.path.abspath(true))
        assert file.has("/elsewhere/1.jpg") and not file.has("../1.jpg")
        assert os.path.samefile(file.path_of(answers[0].file), true)
        assert file.path_of("/elsewhere/1.jpg") == "/elsewhere/1.jpg"
        # New lines are like the first ones.
        assert file.spell(true) == answers[0].file
        assert file.spell("/x.jpg") == "/x.jpg"


def test_an_existing_file_is_refused_by_name(path):
    write(path, ANSWERS)
    with pytest.raises(RunError, match=rf"{path.name} exists: pass --resume"):
        AnswerFile(path)
    file = AnswerFile(path, resume=True)
    with pytest.raises(RunError, match="settings: other weights"):
        file.open(SETTINGS | {"weights": "2e"})
    path.with_name(f"{path.name}.settings.json").unlink()
    with pytest.raises(RunError, match="its settings are not known"):
        AnswerFile(path, resume=True)


@pytest.mark.parametrize("content", ["a;b\n1;2\n", '{"file": 1}\n', "x\n" * 40])
def test_a_file_of_others_is_refused(path, content):
    write(path, [])
    path.write_text(content)
    with pytest.raises(RunError, match="was changed"):
        AnswerFile(path, resume=True)


def test_a_quotation_mark_without_end_is_refused(tmp_path):
    path = tmp_path / "answers.csv"
    write(path, ANSWERS)
    with path.open("a") as file:
        file.write('"' + "no end\n" * 200_000)
    with pytest.raises(RunError, match="a quotation mark has no end"):
        AnswerFile(path, resume=True)


def test_a_full_disk_is_named_and_the_file_ends_in_a_whole_line(path):
    file = write(path, ANSWERS[:1])
    whole = path.read_bytes()
    file = AnswerFile(path, resume=True)
    file.open(SETTINGS)
    with full_disk(len(whole) + 7), pytest.raises(RunError) as caught:
        file.append(ANSWERS[1:])
    told = str(caught.value)
    assert f"{path}: File too large" in told and "--resume" in told
    file.close()
    assert path.read_bytes() == whole
    assert AnswerFile(path, resume=True).count == 1

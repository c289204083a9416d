"""The check of a table of several labels: counts, copies and what is not sought."""

import json
import pathlib
import shutil

import labelled_photos
import pytest
from in_process import run_command


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))


def test_several_labels_are_counted_and_copies_compared(tmp_path, capsys):
    names, labels, _ = labelled_photos.photos(tmp_path)
    rows = [
        (name, "|".join(own) or "none") for name, own in zip(names, labels, strict=True)
    ]
    for place, own in ((2, "red"), (3, "red|blue")):
        # The first has the labels of its photo, the second has others.
        shutil.copyfile(tmp_path / names[place], tmp_path / f"copy{place}.png")
        rows.append((f"copy{place}.png", own))
    table = labelled_photos.write(tmp_path / "table.csv", ("path", "label"), rows)
    run_command("check", table, f"--out={tmp_path / 'out'}")
    told = capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "check.json").read_text())
    assert found["classes"] == ["blue", "none", "rare", "red"]
    whole = [sum(one) for one in zip(*found["class_counts"].values(), strict=True)]
    given = [row[1].split("|") for row in rows]
    assert whole == [sum(name in own for own in given) for name in found["classes"]]
    assert " of 4 labels, 2 (rare) to " in told
    assert "label errors: not sought in data of --task=labels" in told
    assert [sorted(group) for group in found["contradictions"]] == [
        ["03.png", "copy3.png"]
    ]
    assert len(found["identical"]) == 2 and not found["label_errors"]
    page = (pathlib.Path(tmp_path) / "out" / "check.html").read_text("utf-8")
    assert "blue, red" in page


def test_columns_of_labels_are_read(tmp_path, capsys):
    table = labelled_photos.table(tmp_path, "labels")
    run_command("check", table, "--model=none", f"--out={tmp_path / 'out'}")
    assert " of 3 labels, 2 (rare) to 12 (red) each" in capsys.readouterr().out

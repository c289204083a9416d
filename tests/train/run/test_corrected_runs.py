"""Runs on data that the user has corrected."""

import json

import pytest
from copied_photos import encoded, photo

from train.common.errors import RunError
from train.data import sources
from train.models.run_directory import RunDirectory
from train.run import training


def test_a_run_records_corrections_and_goes_on_with_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    for part, name, seed in [
        *(("train", name, seed) for name in "ab" for seed in range(3)),
        *(("test", name, 9) for name in "ab"),
    ]:
        path = tmp_path / "photos" / part / name / f"{seed}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(photo(seed + 50 * (name == "b"), (40, 40)), "PNG"))
    out, new = tmp_path / "out.csv", tmp_path / "new.csv"
    out.write_text("path\ntrain/a/0.png\n")
    new.write_text("path,label\ntrain/a/1.png,b\n")

    def begin(**files):
        source = sources.load(str(tmp_path / "photos"), log=str, **files)
        training.check_source(source, directory, is_decoded=True)

    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    begin(without=out, relabel=new)
    recorded = {"left_out": ["train/a/0.png"], "relabelled": {"train/a/1.png": "b"}}
    assert json.loads(directory.corrections.read_text()) == recorded
    directory.model.touch()
    # The record is a file for the same flags.
    again = dict.fromkeys(("without", "relabel"), directory.corrections)
    begin(without=out, relabel=new)
    begin(**again)
    for others in ({}, {"without": out}, {"relabel": new}):
        with pytest.raises(RunError, match="a run with other --without or"):
            begin(**others)

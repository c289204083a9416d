"""The photos that are read, and the jobs that read them."""

import json

import pytest
from PIL import Image

from benchmarks import input_jobs, listing, overlap, photos
from benchmarks.worker import load

SETTINGS = {"image_size": 32, "batch": 2}
# Its processes would be copies of this one, with TensorFlow's threads in it.
JOBS = {**input_jobs.OURS, **input_jobs.PEERS}
del JOBS["torchvision"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    photos.fill(folder, 4)
    return folder


def contents(folder):
    return [path.read_bytes() for path in sorted(folder.glob("train/*/*.jpg"))]


def test_made_photos_are_distinct_and_always_alike(folder, tmp_path):
    photos.fill(tmp_path, 4)
    assert contents(tmp_path) == contents(folder)
    assert len(set(contents(folder))) == 4
    sizes = [Image.open(path).size for path in folder.glob("train/*/*.jpg")]
    assert sorted(sizes) == [(375, 500), (500, 375), (500, 375), (500, 375)]
    assert len(list(folder.glob("test/*/*.jpg"))) == 1


def test_given_photos_are_taken_again_and_again(folder, tmp_path):
    photos.fill(tmp_path, 10, images=folder / "originals")
    originals = contents(folder)
    assert contents(tmp_path) == [*originals, *originals, *originals[:2]]


@pytest.mark.parametrize("choice", JOBS.values(), ids=JOBS)
def test_jobs_read_all_photos_each_time(folder, choice, monkeypatch):
    seen = []
    monkeypatch.setattr(
        input_jobs, "_pass", lambda batches: lambda: seen.append(len(list(batches)))
    )
    step = load(choice.job)(folder=str(folder), **SETTINGS)
    for _ in range(2):
        step()
    assert seen == ([] if choice.name.startswith("Pillow") else [2, 2])


def test_listings_find_all_files(tmp_path):
    listing.fill(tmp_path, 201)
    (tmp_path / "class00002" / "another.jpg").touch()
    for choice in (listing.OURS["sources"], listing.PEERS["walk"]):
        assert load(choice.job)(folder=str(tmp_path))() == 202


def test_waits_leave_the_warm_up_out(tmp_path):
    path = tmp_path / "waits"
    lines = [{"seconds": 9, "waited": 8}, {"seconds": 2, "waited": 0.5}] * 2
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    waited = overlap.waited(path)
    assert waited == [0.25, 8 / 9, 0.25]
    [note] = overlap.notes(waited)
    assert note.endswith("25.00% of the time, 88.89% in the worst turn.")
    assert overlap.notes([]) == []
    reading, in_memory = overlap.contenders({**SETTINGS, "folder": "photos"}, steps=3)
    assert not reading.settings["in_memory"] and in_memory.settings["in_memory"]
    assert reading.items == in_memory.items == 3 * SETTINGS["batch"]
    assert reading.ours and in_memory.ours

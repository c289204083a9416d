"""The check of a data set: each kind of finding planted, and clean data."""

import html
import json
import pathlib

import chromium
import pytest
from copied_photos import COPIES, encoded, photo
from html_page import Page
from in_process import run_command

from train.check import checking
from train.common.errors import RunError
from train.data.sources import load


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path_factory.mktemp("cache")))


def lay_out(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def clean():
    """Twelve photos of each of two classes for training, and two for the test."""
    files = {}
    for number, name in enumerate(("daisy", "rose")):
        for seed in range(14):
            part = "test" if seed > 11 else "train"
            image = photo(100 * number + seed)
            files[f"{part}/{name}/{seed}.jpg"] = encoded(image, quality=90)
    return files


def checked(folder, **settings):
    return checking.check(str(folder), out=folder.parent / "out", **settings)


def test_clean_data_have_no_findings(tmp_path):
    lay_out(tmp_path / "photos", clean())
    found = checked(tmp_path / "photos")
    kinds = ("identical", "near", "contradictions", "leaks", "label_errors", "unread")
    assert not any(found[kind] for kind in kinds)
    assert found["lines"] == [
        f"{tmp_path / 'photos'}: 28 photos (4 test, 24 train) of 2 classes, 14 each",
        "files: 28 JPEG; 160 x 120 pixels",
    ]
    assert found["train"] == []
    assert found["class_counts"] == {"test": [2, 2], "train": [12, 12]}


@pytest.fixture
def planted(tmp_path):
    files = clean()
    files["train/daisy/same.jpg"] = files["train/daisy/3.jpg"]
    files["train/daisy/near.jpg"] = COPIES["resized"](photo(4))
    files["train/rose/other.jpg"] = COPIES["cropped at one side"](photo(5))
    files["train/rose/leak.png"] = COPIES["another format"](photo(112))
    files["train/rose/gray.png"] = encoded(photo(77).convert("I;16"), "PNG")
    files["train/rose/cut.jpg"] = files["train/rose/0.jpg"][:900]
    files["train/rose/notes.txt"] = b"no photo"
    lay_out(tmp_path / "photos", files)
    return tmp_path / "photos"


def test_each_kind_is_found(planted):
    found = checked(planted, json=planted.parent / "found.json")
    assert found["identical"] == [["train/daisy/3.jpg", "train/daisy/same.jpg"]]
    assert found["near"] == [
        ["test/rose/12.jpg", "train/rose/leak.png"],
        ["train/daisy/4.jpg", "train/daisy/near.jpg"],
        ["train/daisy/5.jpg", "train/rose/other.jpg"],
    ]
    assert found["leaks"] == found["near"][:1]
    assert found["contradictions"] == found["near"][2:]
    assert [*found["unread"]] == ["train/rose/cut.jpg"]
    assert found["ignored"] == ("train/rose/notes.txt",)
    saved = json.loads((planted.parent / "found.json").read_text())
    assert saved["near"] == found["near"] and saved["unread"] == found["unread"]
    text = "\n".join(found["lines"])
    for words in (
        "34 photos (4 test, 30 train)",
        "2 PNG",
        "1 of 16 bits",
        "1 gray",
        "identical: 2 photos in 1 group",
        "near-identical: 6 photos in 3 groups",
        "leaks: 2 photos in 1 group, copies in several parts: test/rose/12.jpg = ",
        "unread: 1 photo cannot be decoded: train/rose/cut.jpg",
    ):
        assert words in text, text
    page = Page(planted.parent / "out" / "check.html")
    # Photos are called as --relabel and --without take them.
    groups = [found[kind] for kind in ("identical", "near", "contradictions", "leaks")]
    named = {path for own in groups for group in own for path in group}
    assert {*page.values("data-path")} == named and page.count("option") > 1
    assert not any(map(page.count, ("link", "iframe", "object")))
    assert page.count("img") == 2 * (1 + 3 + 1 + 1)
    for title in ("Contradictions 1", "Leaks 1", "Near-identical 3", "Not read 1"):
        assert title in page.text
    # The photos found can be left out.
    file = planted.parent / "found.json"
    assert found["train"] == ["--bits=12", f"--without={file}"]
    assert found["lines"][-1] == (
        f"--without={file} leaves out 6 photos: of copies all but one, all of "
        "contradictions, those unread"
    )
    source = load(str(planted), without=planted.parent / "found.json", log=str)
    assert source.test.num_examples == 4
    assert len(source.left_out) == 6 and source.train.num_examples == 24


def test_uneven_and_undivided_data_have_advice(tmp_path):
    files = {f"daisy/{seed}.jpg": encoded(photo(seed)) for seed in range(36)}
    files |= {f"rose/{seed}.jpg": encoded(photo(50 + seed)) for seed in range(4)}
    lay_out(tmp_path / "photos", files)
    lines = checked(tmp_path / "photos")["lines"]
    assert "few: 1 class of fewer than 10 photos to train on" in lines[2]
    assert "the largest class has 9.7 times the training photos" in lines[3]
    lay_out(tmp_path / "photos", {"tulip/1.jpg": encoded(photo(90))})
    found = checked(tmp_path / "photos")
    assert found["lines"][2].startswith("not divided: ") and found["train"] is None
    assert "'tulip' has one image" in found["lines"][2] and found["photos"] == 41


def test_labels_in_doubt_are_found(tmp_path, goldens):
    """Photos whose brightness is their class, some of which lie in the other one."""
    files = {}
    for seed in range(60):
        name = "dark" if seed % 2 else "light"
        image = photo(seed, (64, 64)).point(
            [n // 2 + 120 * (1 - seed % 2) for n in range(256)] * 3
        )
        wrong = seed in (10, 11, 30)
        label = {"dark": "light", "light": "dark"}[name] if wrong else name
        files[f"{label}/{seed}.png"] = encoded(image, "PNG")
    lay_out(tmp_path / "photos", files)
    found = checked(tmp_path / "photos", model=str(goldens / "token.npz"))
    errors = {row["path"]: row["label"] for row in found["label_errors"]}
    planted = {"dark/10.png": "light", "light/11.png": "dark", "dark/30.png": "light"}
    assert planted.items() <= errors.items() and len(errors) < 9
    count = len(errors)
    assert f"label errors: {count} labels in doubt, some of whi" in found["lines"][-1]
    page = Page(tmp_path / "out" / "check.html")
    assert "Labels in doubt" in page.text and page.count("img") == len(errors)
    relabelled = load(
        str(tmp_path / "photos"), relabel=tmp_path / "out" / "check.json", log=str
    )
    assert relabelled.relabelled == errors


def test_the_command(planted, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_command("check", "photos/", "--model=none", "--json=found.json")
    output, printed = capsys.readouterr()
    assert "leaks: 2 photos in 1 group" in output and "label errors" not in output
    assert "page runs/checks/photos/check.html\njson found.json\n" in output
    assert "finetune photos/ --bits=12 --without=found.json" in printed
    assert json.loads((tmp_path / "found.json").read_text())["photos"] == 34
    run_command("check", "photos/", "--model=none", "--bits=16", "--data_dir=tfds")
    printed = capsys.readouterr().err
    assert "finetune photos/ --bits=16 --data_dir=tfds --without=runs/" in printed


def test_other_data_of_the_same_name_have_a_check_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {f"{name}/{seed}.png": b"no photo" for name in "ab" for seed in range(2)}
    for folder in ("one/photos", "two/photos"):
        lay_out(tmp_path / folder, files)
    page = pathlib.Path("runs/checks/photos/check.html")
    for _ in range(2):
        checking.check("one/photos", json="found.json")
        assert page.exists()
    page.unlink()
    with pytest.raises(RunError, match="check of other data, .*one/photos: pass --out"):
        checking.check("two/photos")
    assert not page.exists()
    checking.check("two/photos", out="runs/checks/photos")
    assert page.exists()
    # The project was moved, with its data.
    (tmp_path / "two").rename(tmp_path / "three")
    checking.check("three/photos")
    with pytest.raises(RunError, match="check of other data, .*three/photos: pass"):
        checking.check("one/photos")
    # A data set by a name has no path that could be gone.
    record = page.with_name("check.json")
    record.write_text(json.dumps({"data": "photos"}))
    with pytest.raises(RunError, match="check of other data, photos: pass"):
        checking.check("one/photos")


def test_the_next_command_has_the_model_that_was_given(
    tmp_path, capsys, monkeypatch, goldens
):
    lay_out(tmp_path / "photos", clean())
    monkeypatch.chdir(tmp_path)
    weights = goldens.resolve() / "token.npz"
    run_command("check", "photos/", f"--model={weights}")
    assert f"finetune photos/ --model={weights}" in capsys.readouterr().err


def test_a_model_that_is_not_available_is_named_with_the_way_out(tmp_path):
    with pytest.raises(RunError, match="none.npz.*--model=none"):
        checked(tmp_path / "photos", model=str(tmp_path / "none.npz"))


# A frame as wide as a phone.
FRAME = """
<iframe style="width: 400px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<script>onload = () => {{
  const d = document.querySelector("iframe").contentDocument;
  document.title = d.documentElement.scrollWidth;
}};</script>
"""


@pytest.mark.slow
def test_the_page_fits_a_phone(planted, tmp_path):
    page = checked(planted)["page"]
    outer = tmp_path / "outer.html"
    outer.write_text(FRAME.format(page=html.escape(pathlib.Path(page).read_text())))
    dom, printed = chromium.opened(outer, tmp_path, "window-size=800,1000")
    assert "CONSOLE" not in printed, printed
    assert "<title>400</title>" in dom

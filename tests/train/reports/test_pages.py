"""report.html beside report.md: photos, figures, and the page in a browser."""

import csv
import html
import json
import os
import re
import shutil

import chromium
import numpy as np
import pytest
from html_page import Page
from PIL import Image

from train.data import sources
from train.data.sources.folder_source import file_split
from train.reports import gallery
from train.reports.answers import answers_of
from train.reports.report import write_report
from train.scoring.metrics import classification_summary
from train.scoring.ranked import ranked

NAMES = ("<b>cat</b> & co", "dog", "a rather long name of a class")
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!-- </style><img src=x> ]]> &lt;b&gt; {{ 7 * 7 }} {% raw %}",
    '"\' onload=alert(1) x="\x00\x07\x1b[2J\x7f\x85\u202e\u2028\udcff',
)


@pytest.fixture
def photos(tmp_path):
    """A split of 36 image files, and their labels."""
    paths = []
    for number in range(36):
        path = tmp_path / "photos" / "abc"[number % 3] / f"<i>&{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (200, 400 + number), (7 * number, 0, 0)).save(path)
        paths.append(str(path))
    return file_split("photos", paths, np.arange(36) % 3)


def written(out, split, *, mistakes=30, names=NAMES, part="test", in_training=None):
    """Writes the report of answers of which the first ones are wrong."""
    labels = split.labels()
    guesses = (labels + (np.arange(len(labels)) < mistakes)) % 3
    chances = np.full((len(labels), len(names)), 0.1 / (len(names) - 1))
    chances[np.arange(len(labels)), guesses] = np.linspace(0.5, 0.9, len(labels))
    chances /= chances.sum(axis=1, keepdims=True)
    summary = classification_summary(ranked(labels, chances), names)
    summary["notes"] = [*names]
    results = write_report(
        out,
        config={"model": names[0], "dataset": names[1], "mixing": {names[2]: names}},
        summary=summary,
        results={"command": "\n".join(names), "loss_function": names[2]},
        split=part,
        answers=answers_of(split, ranked(labels, chances), names),
        in_training=in_training,
    )
    return results, (out / "report.html").read_text(), (out / "report.md").read_text()


def files_in(page):
    found = re.findall(r"<code>(.*?)</code>\n</figcaption>", page)
    return [html.unescape(re.sub("</?bdi>", "", name)) for name in found]


def test_the_pages_show_the_same_photos_in_order(tmp_path, photos):
    out = tmp_path / "out"
    results, page, text = written(out, photos)
    with (out / "mistakes.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 36
    # The most confident of 30 mistakes, then 6 correct answers, the least certain.
    expected = [row["file"] for row in (*rows[:24], *rows[30:])]
    shown = files_in(page)
    assert shown[:30] == [os.path.relpath(one, tmp_path / "photos") for one in expected]
    cells = re.findall(r"^\| (.*?\.png) \|", text, re.MULTILINE)
    assert [re.sub(r"\\(.)", r"\1", cell) for cell in cells] == shown
    for both in (page, text):
        assert "24 of 30: more would be too many for this page." in both
        assert f"Files are in {tmp_path}/photos." in both.replace("\\", "")
        assert "30 of 36 answers are mistakes." in both
    assert page.count('<li class="mistake"') == len(shown) - 6
    # Photos that are files can be corrected.
    paths = [html.unescape(path) for path in re.findall('data-path="(.*?)"', page)]
    assert paths[:30] == list(map(os.path.abspath, expected))
    suspected = (out / "label_errors.csv").read_text().splitlines()
    assert results["test_suspected_label_errors"] == len(suspected) - 1
    # No markup of others, no address, and all pictures described.
    assert "<i>" not in page and "<b>" not in page
    assert not re.search(r"(src|href)=\"(?!data:image/|#)|url\(|@import", page)
    assert page.count("<img ") == page.count(' alt="') and 'alt=""' not in page


def test_no_name_breaks_out_of_the_page(tmp_path, photos):
    pages = []
    for names in (NAMES, HOSTILE):
        written(tmp_path, photos, names=names)
        pages.append(Page(tmp_path / "report.html"))
    plain, hostile = ([(tag, *at) for tag, at in page.tags] for page in pages)
    assert hostile == plain
    found = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert tuple(found["notes"]) == HOSTILE
    values = [value for _, at in pages[1].tags for value in at.values() if value]
    text = "".join([*pages[1].data, *values])
    for name in HOSTILE[:2]:
        assert text.count(name) > 10
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", text)
    assert r'x="\x00\x07\x1b[2J' in text


def test_photos_are_whole_and_small_and_examples_that_are_no_files_have_names(photos):
    labels = photos.labels()
    answers = answers_of(photos, ranked(labels, np.eye(3)[labels]), NAMES)
    found = gallery.Gallery(answers, photos.names(), [35, 0, 0])
    assert found.pixels[0].shape == (320, 160, 3) and not found.missing
    assert list(found.pixels) == [0, 35]
    (photo,) = found.group("Title", np.array([35]), 3).photos
    assert not photo.is_tiny and photo.is_correct
    assert photo.file == "c/<i>&35.png" and len(photo.uri) < 60_000

    digits = sources.load("digits").test
    labels = digits.labels()
    answers = answers_of(digits, ranked(labels, np.eye(10)[labels]), "0123456789")
    found = gallery.Gallery(answers, digits.names(), [3])
    assert found.folder is None
    (photo,) = found.group("Title", np.array([3]), 1).photos
    assert photo.file == "example 3 of digits test" and photo.is_tiny


def test_a_photo_that_is_left_out_says_why(tmp_path, photos):
    # The most confident mistake is 29, the next one 28.
    names = photos.names()
    os.remove(names[29])
    with open(names[28], "wb") as file:
        file.write(b"no image")
    _, page, text = written(tmp_path / "out", photos)
    assert files_in(page)[:2] == ["c/<i>&29.png", "b/<i>&28.png"]
    assert page.index("no longer there") < page.index("no longer be decoded")
    assert "mistakes.png" in text
    shutil.rmtree(tmp_path / "photos")
    _, page, text = written(tmp_path / "out", photos)
    assert page.count("no longer there") >= 30
    assert "mistakes.png" not in text
    assert not (tmp_path / "out" / "mistakes.png").exists()


@pytest.mark.parametrize(
    ("part", "in_training", "why_not"),
    [
        ("train", None, "the model may have been trained on these images"),
        ("test", 7, "the model may have been trained on these images"),
        ("test", "it is gone", "which of the images the model was trained on is not"),
        ("test", np.arange(36) >= 12, "images that the model was not trained on."),
    ],
)
def test_no_label_errors_in_training_images(
    tmp_path, photos, part, in_training, why_not
):
    (tmp_path / "label_errors.csv").touch()  # of an earlier report
    results, *both = written(tmp_path, photos, part=part, in_training=in_training)
    assert not (tmp_path / "label_errors.csv").exists()
    assert f"{part}_suspected_label_errors" not in results
    for page in both:
        told = page.replace("fewer than two classes have 5 ", "")
        assert f"Not sought: {why_not}" in told


def test_label_errors_are_sought_among_images_outside_of_training(tmp_path, photos):
    written(tmp_path, photos, part="train", in_training=np.arange(36) < 3)
    found = (tmp_path / "label_errors.csv").read_text()
    assert len(found.splitlines()) > 1
    assert not any(name in found for name in photos.names()[:3])
    assert len((tmp_path / "mistakes.csv").read_text().splitlines()) == 1 + 36


def test_without_mistakes_and_with_other_pictures(tmp_path, photos):
    Image.new("RGB", (4000, 20)).save(tmp_path / "wide one.png")
    (tmp_path / "damaged.png").write_bytes(b"no image")
    for number in range(30):
        (tmp_path / f"z{number:02}.png").touch()
    _, page, text = written(tmp_path, photos, mistakes=0)
    assert re.search(r'width="1280" height="6" alt="Wide one"', page)
    assert "damaged.png cannot be decoded." in page
    assert "![wide one](wide%20one.png)" in text
    for both in (page, text):
        assert "And 8 more, too many for this page." in both
        assert "0 of 36 answers are mistakes." in both
        assert "Most confident mistakes" not in both
        assert "Least certain correct answers" in both
        assert "None. The model contradicts" in both


def test_only_classes_that_occur(tmp_path, photos, figures):
    written(tmp_path, photos, names=(*NAMES, *map(str, range(997))))
    labels = [text.get_text() for text in figures[0].axes[0].get_yticklabels()]
    assert labels == ["<b>cat</b> & co", "dog", "a rather long name of a…"]
    assert figures[0].get_suptitle() == "Examples by true and predicted class"


# A frame so wide, in which the classes are sorted by name.
FRAME = """
<iframe style="width: 360px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<script>onload = () => {{
  const d = document.querySelector("iframe").contentDocument;
  const rows = () => [...d.querySelectorAll(".sortable tbody tr")]
    .map((row) => row.cells[0].textContent);
  const button = d.querySelector(".sortable button"), found = {{}};
  found.first = rows(); button.click(); found.up = rows();
  button.click(); found.down = rows();
  found.sorted = button.parentNode.getAttribute("aria-sort");
  found.width = d.documentElement.scrollWidth;
  document.title = JSON.stringify(found);
}};</script>
"""


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path, photos, drawn):
    names = ("dog", "cat", "a_" + 60 * "very_" + "long_name")
    _, page, _ = written(tmp_path, photos, names=names)
    outer = tmp_path / "outer.html"
    outer.write_text(FRAME.format(page=html.escape(page)))
    dom, printed = chromium.opened(outer, tmp_path, "window-size=1400,1000")
    assert "CONSOLE" not in printed, printed
    found = json.loads(html.unescape(re.search("<title>(.*?)</title>", dom)[1]))
    assert found["width"] == 360
    assert found["up"] == sorted(found["first"])
    assert found["down"] == found["up"][::-1] and found["sorted"] == "descending"
    page = tmp_path / "report.html"
    assert chromium.cut_off(page, tmp_path) == []
    # Its tables fit, too.
    assert chromium.cut_off(page, tmp_path, tables_scroll=False) == []

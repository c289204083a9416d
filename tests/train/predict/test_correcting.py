"""Pages whose photos can be given other classes, in a browser."""

import csv
import html
import io
import json
import re

import chromium
import pytest
from html_page import Page
from PIL import Image

from train.predict.answers import Answer
from train.predict.gallery import Gallery

NAMES = ("<b>cat</b>", 'a "rose", red', "7")
FILES = ('a,"b".png', "<i>.png", "plain.png", "d.png")


@pytest.fixture
def gallery(tmp_path):
    gallery = Gallery(tmp_path / "page.html")
    for file in FILES:
        Image.new("RGB", (8, 8)).save(tmp_path / file)
        gallery.add(str(tmp_path / file), Answer(file, (("7", 0.9),)))
    return gallery


@pytest.fixture
def page(gallery):
    gallery.write("model", NAMES)
    return gallery.path


def test_a_page_has_the_classes_and_the_whole_paths(page, tmp_path):
    found = Page(page)
    assert found.count("option") == len(NAMES)
    assert all(name in found.text for name in NAMES)
    paths = [str(tmp_path / file) for file in FILES]
    assert sorted(found.values("data-path")) == sorted(paths)


# Gives classes to photos, and reads what is downloaded.
FRAME = """
<iframe style="width: 400px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<script>onload = async () => {{
  const frame = document.querySelector("iframe"), d = frame.contentDocument;
  const files = [], found = {{}};
  const {{ URL }} = frame.contentWindow, make = URL.createObjectURL;
  URL.createObjectURL = (blob) => (files.push(blob), make(blob));
  const bar = d.getElementById("corrections");
  found.hidden = bar.hidden;
  const choose = (place, text) => {{
    const photo = d.querySelectorAll("li[data-path]")[place];
    photo.querySelector(".correct-it button")?.click();
    const select = photo.querySelector("select");
    select.value = text;
    select.dispatchEvent(new Event("change"));
  }};
  {steps}
  found.said = bar.querySelector("output").textContent;
  found.marked = d.querySelectorAll(".corrected").length;
  for (const button of bar.querySelectorAll("button")) button.click();
  found.files = await Promise.all(files.map((file) => file.text()));
  found.width = d.documentElement.scrollWidth;
  document.title = JSON.stringify(found);
}};</script>
"""


# The first photo is corrected twice.
CORRECTIONS = """
  choose(0, {names}[0]);
  found.choices = d.querySelectorAll("li select option").length;
  choose(0, {names}[1]);
  choose(1, "not sure");
  choose(2, "remove");
  choose(3, {names}[2]);
  choose(3, "as it is");
"""
LABELS = """
  choose(0, {names}[1]);
  found.choices = d.querySelectorAll("li select option").length;
  choose(3, {names}[2]);
  choose(3, "no label");
"""


def chosen(page, tmp_path, steps):
    """Returns what a browser finds after some steps on a page."""
    outer = tmp_path / "outer.html"
    names = json.dumps(NAMES).replace("<", "\\u003c")
    steps = steps.format(names=names)
    outer.write_text(FRAME.format(page=html.escape(page.read_text()), steps=steps))
    flags = ("window-size=1400,1000", "virtual-time-budget=10000")
    dom, printed = chromium.opened(outer, tmp_path, *flags)
    assert "CONSOLE" not in printed, printed
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", dom)[1]))


@pytest.mark.slow
def test_chosen_classes_are_downloaded_as_two_files(page, tmp_path):
    found = chosen(page, tmp_path, CORRECTIONS)
    assert (found["hidden"], found["choices"]) == (True, len(NAMES) + 3)
    assert found["said"] == "3 photos corrected." and found["marked"] == 3
    assert found["width"] == 400
    relabel, without = (list(csv.reader(io.StringIO(one))) for one in found["files"])
    paths = Page(page).values("data-path")
    assert relabel == [["path", "label"], [paths[0], NAMES[1]]]
    assert without == [["path"], [paths[1]], [paths[2]]]


@pytest.mark.slow
def test_photos_that_are_asked_for_are_labelled(gallery, tmp_path):
    gallery.write("model", NAMES, asks=True)
    assert " to label</h1>" in gallery.path.read_text("utf-8")
    found = chosen(gallery.path, tmp_path, LABELS)
    assert (found["hidden"], found["choices"]) == (True, len(NAMES) + 1)
    assert found["said"] == "1 photo labelled." and found["marked"] == 1
    [relabel] = (list(csv.reader(io.StringIO(one))) for one in found["files"])
    path = Page(gallery.path).values("data-path")[0]
    assert relabel == [["path", "label"], [path, NAMES[1]]]

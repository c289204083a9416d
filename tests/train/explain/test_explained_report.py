"""The report that the command writes: files, numbers, and its page in a browser."""

import contextlib
import csv
import html
import io
import json
import re

import chromium
import keras
import numpy as np
import PIL.Image
import pytest
from explained import (
    NAMES,
    OF_ALL,
    OF_MODEL,
    OF_PHOTOS,
    check,
    check_map,
    numbers,
    prepared,
)
from html_page import Page
from in_process import run_command

from keras_vit import explain

# Each file once, in the order given, folders sorted; none that is hidden.
SEEN = ("wide.png", "<i>&tall.jpg", "deep/grey.bmp", "deep/square.gif")
SHOWN = {"01-wide": "wide.png", "02-square": "deep/square.gif"}


@pytest.fixture(scope="module")
def report(model_file, photos, tmp_path_factory):
    """What the command leaves."""
    folder = tmp_path_factory.mktemp("work")
    words = [model_file, photos / "wide.png", photos, "--shown=2", "--out=new/report"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            run_command("explain", *words)
    ignored = f"ignored, no images by their names (1): {photos / 'notes.txt'}"
    first, *answers, last = output.getvalue().splitlines()
    assert (first, last) == (ignored, "report new/report/report.html")
    classes = "|".join(map(re.escape, NAMES))
    for answer, name in zip(answers, SEEN, strict=True):
        assert re.fullmatch(rf"{re.escape(name)}: ({classes}) \d+\.\d%", answer)
    assert [path.name for path in folder.glob("*/*")] == ["report"]
    return folder / "new" / "report"


@pytest.mark.slow
def test_files_of_the_command(report):
    names = {f"{photo}-{kind}" for photo in SHOWN for kind in OF_PHOTOS}
    names |= {*OF_ALL, *OF_MODEL}
    for ending, start in ((".png", b"\x89PNG\r\n\x1a\n"), (".pdf", b"%PDF-")):
        drawn = list((report / "figures").glob(f"*{ending}"))
        assert {path.stem for path in drawn} == names
        assert all(path.read_bytes().startswith(start) for path in drawn)
    found = {path.stem for path in (report / "numbers").iterdir()}
    assert found == names | {"predictions"}
    facts = json.loads((report / "report.json").read_text())
    assert [photo["name"] for photo in facts["photos"]] == list(SEEN)
    files = {p.relative_to(report).as_posix() for p in report.rglob("*.*")}
    assert set(facts["files"]) == files and facts["missing"] == {}


@pytest.mark.slow
def test_numbers_of_the_command(report, model_file, photos):
    model = keras.saving.load_model(model_file)
    every = np.concatenate([prepared(photos / name) for name in SEEN])
    probabilities = keras.ops.softmax(model(every)).numpy()
    check(report, "predictions", probabilities=probabilities)
    predictions = numbers(report, "predictions")
    assert tuple(predictions["class_names"]) == NAMES
    assert tuple(predictions["photos"]) == SEEN
    with (report / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(SEEN) * 5
    for row, name, chances in zip(rows[::5], SEEN, probabilities, strict=True):
        best = chances.argmax()
        assert row["photo"] == str(photos / name) and row["rank"] == "1"
        assert (int(row["class_number"]), row["class"]) == (best, NAMES[best])
        assert float(row["probability"]) == pytest.approx(chances[best], 1e-4)

    photo, image = "01-wide", every[:1]
    attention = explain.attention_maps(model, image)[:, 0]
    for kind, matrix in (("layers", attention.mean(axis=1)), ("heads", attention)):
        found = numbers(report, f"{photo}-{kind}")
        assert str(found["photo"]) == "wide.png" and str(found["unit"])
        check_map(report, f"{photo}-{kind}", model, matrix, key="maps")
    features = explain.token_features(model, image)
    colors = explain.principal_colors(features.patches)[0]
    expected = {"patches": features.patches[0], "colors": colors}
    expected["class_token"] = features.class_token[0]
    check(report, f"{photo}-features", rtol=1e-3, atol=1e-3, **expected)
    for whole, kind in (("attention", "rollout"), ("answers", "gradient")):
        maps = [numbers(report, f"{photo}-{kind}")["map"] for photo in SHOWN]
        np.testing.assert_array_equal(numbers(report, whole)["maps"], maps)
    assert list(numbers(report, "answers")["photos"]) == list(SHOWN.values())

    filters = explain.embedding_filters(model)
    ratio = filters.explained_variance_ratio
    similarity = explain.position_embedding_similarity(model)
    distance = explain.attention_distance(model, every)
    for kind, expected in (
        ("filters", {"components": filters.components}),
        ("filters", {"explained_variance_ratio": ratio}),
        ("position_similarity", {"similarity": similarity}),
        ("attention_distance", {"distance": distance}),
    ):
        check(report, kind, **expected)
        check(report, "figure_7", **expected)
    assert tuple(numbers(report, "attention_distance")["photos"]) == SEEN


@pytest.mark.slow
def test_page_needs_nothing_else(report):
    page, text = Page(report / "report.html"), (report / "report.html").read_text()
    references = page.values("src", "href", "srcset", "action", "data", "poster")
    assert len(references) > 20
    for reference in references:
        if not reference.startswith("data:image/webp;base64,"):
            assert reference[0] == "#" and reference[1:] in page.values("id")
    # Styles have no address either.
    assert not re.search(r"url\(|@import", text)
    assert not any(map(page.count, ("link", "iframe", "object", "base")))
    assert page.count("img") == len(page.values("alt")) == 2 + 2 * 5 + 2 + 4
    assert all(page.values("alt"))
    # Names that people give are text, not markup.
    assert not page.count("i") and not page.count("b")
    assert "<i>&tall.jpg" in page.text and "<b>owl</b> & co" in html.unescape(text)
    assert "keras-vit explain " in page.text
    assert len(text) < 5e6


@pytest.fixture
def opened(tmp_path):
    """Opens a page in a browser; returns its pixels, its DOM, and what was printed."""

    def opened(page):
        shot = tmp_path / "shot.png"
        flags = "window-size=1200,1500", f"screenshot={shot}"
        dom, printed = chromium.opened(page, tmp_path, *flags)
        return np.asarray(PIL.Image.open(shot).convert("RGB"), int), dom, printed

    return opened


@pytest.mark.slow
def test_page_in_a_browser(report, opened, tmp_path):
    pixels, dom, printed = opened(report / "report.html")
    assert "CONSOLE" not in printed and "Content Security" not in printed, printed
    # Text and figures: neither blank nor of few colours.
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1000
    assert chromium.cut_off(report / "report.html", tmp_path) == []
    # The script ran, which the policy allows by its hash.
    assert dom.count("<canvas") == 2 and '<div class="controls">' in dom

    # A layer is chosen: another map is over the photo than that of the answer.
    text = (report / "report.html").read_text()
    [main] = re.findall("<main .*?>", text)
    first = re.search(r'(<article.*?)class="answer"', text, re.DOTALL).start(1)
    only = tmp_path / "chosen.html"
    only.write_text(text[: text.index('<nav id="contents"')] + main + text[first:])
    photo, _, printed = opened(only)
    assert "Content Security" not in printed
    # Another script than ours does not run.
    slider = re.compile(r'(<input class="layer"[^>]*) value="0"')
    chosen, count = slider.subn(r'\1 value="1"', only.read_text())
    only.write_text(chosen.replace("</body>", "<script>document.title=1</script>"))
    pixels, _, printed = opened(only)
    changed = np.abs(pixels - photo).max(axis=2) > 8
    assert count and 0.005 < changed.mean() < 0.5
    assert "Content Security Policy" in printed

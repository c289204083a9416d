"""The report that the command writes: files, numbers, and its page in a browser."""

import contextlib
import csv
import html
import io
import json
import pathlib
import re
import shutil
import subprocess

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
from train.explain.report import explain as write_report

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

    for photo, name in SHOWN.items():
        image = every[SEEN.index(name)][None]
        attention = explain.attention_maps(model, image)[:, 0]
        best = int(model(image).numpy().argmax())
        features = explain.token_features(model, image)
        for kind, key, matrix in (
            ("rollout", "map", explain.attention_rollout(model, image)[0]),
            ("gradient", "map", explain.gradient_attention(model, image, best)[0]),
            ("layers", "maps", attention.mean(axis=1)),
            ("heads", "maps", attention),
        ):
            found = numbers(report, f"{photo}-{kind}")
            assert str(found["photo"]) == name and str(found["unit"])
            check_map(report, f"{photo}-{kind}", model, matrix, key=key)
        assert numbers(report, f"{photo}-gradient")["class_name"] == NAMES[best]
        check(
            report,
            f"{photo}-features",
            rtol=1e-3,
            atol=1e-3,
            patches=features.patches[0],
            class_token=features.class_token[0],
            colors=explain.principal_colors(features.patches)[0],
        )
    for whole, kind in (("attention", "rollout"), ("answers", "gradient")):
        maps = [numbers(report, f"{photo}-{kind}")["map"] for photo in SHOWN]
        np.testing.assert_array_equal(numbers(report, whole)["maps"], maps)
    assert list(numbers(report, "answers")["photos"]) == list(SHOWN.values())

    filters = explain.embedding_filters(model)
    similarity = explain.position_embedding_similarity(model)
    parts = {
        "filters": {
            "components": filters.components,
            "explained_variance_ratio": filters.explained_variance_ratio,
        },
        "position_similarity": {"similarity": similarity},
        "attention_distance": {"distance": explain.attention_distance(model, every)},
    }
    for name, expected in parts.items():
        check(report, name, **expected)
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
    # What people name is text, not markup.
    assert not page.count("i") and not page.count("b")
    assert "<i>&tall.jpg" in page.text and "<b>owl</b> & co" in html.unescape(text)
    assert "keras-vit explain " in page.text
    assert len(text) < 5e6


@pytest.fixture
def chromium(tmp_path):
    """Opens a page; returns its pixels, its DOM, and what the browser printed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(names)} is installed")
    flags = "headless no-sandbox disable-gpu hide-scrollbars enable-logging=stderr "
    flags += f"user-data-dir={tmp_path / 'profile'} window-size=1200,1500 dump-dom "
    flags += f"screenshot={tmp_path / 'shot.png'}"

    def opened(page):
        done = subprocess.run(
            [browser, *(f"--{flag}" for flag in flags.split()), page.as_uri()],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        pixels = np.asarray(PIL.Image.open(tmp_path / "shot.png").convert("RGB"), int)
        return pixels, done.stdout, done.stderr

    return opened


@pytest.mark.slow
def test_page_in_a_browser(report, chromium, tmp_path):
    def without_errors(page):
        pixels, dom, printed = chromium(page)
        assert "CONSOLE" not in printed and "Content Security" not in printed, printed
        return pixels, dom

    page = report / "report.html"
    pixels, dom = without_errors(page)
    # Text and figures: neither blank nor of few colours.
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1000
    # The script ran, which the policy allows by its hash.
    assert dom.count("<canvas") == 2 and '<div class="controls">' in dom

    # A layer is chosen: another map is over the photo than that of the answer.
    text = page.read_text()
    [main] = re.findall("<main .*?>", text)
    first = re.search(r'(<article.*?)class="answer"', text, re.DOTALL).start(1)
    only = tmp_path / "chosen.html"
    start = text.index('<nav id="contents"')
    short = text[:start] + main + "<section>" + text[first:]
    only.write_text(short)
    photo, _ = without_errors(only)
    slider = re.compile(r'(<input class="layer"[^>]*) value="0"')
    assert slider.search(short)
    # Another script than ours does not run.
    chosen = slider.sub(r'\1 value="1"', short)
    only.write_text(chosen.replace("</body>", "<script>document.title=1</script>"))
    pixels, _, printed = chromium(only)
    changed = np.abs(pixels - photo).max(axis=2) > 8
    assert 0.005 < changed.mean() < 0.5
    assert "Content Security Policy" in printed


@pytest.mark.soak
def test_real_weights(shared, tmp_path):
    out = tmp_path / "out"
    [weights] = (shared / "weights").glob("ViT-Ti_16-*-224.npz")
    files = sorted((shared / "photos" / "imagenet").glob("*.jpg"))[:64]
    facts = write_report(str(weights), files, out, shown=2, class_name="0")
    assert facts["missing"] == {} and facts["patches"] == [14, 14]
    synsets = (shared / "labels" / "imagenet_synsets.txt").read_text().split()
    right = [
        synsets[photo["predictions"][0][0]] == pathlib.Path(photo["name"]).stem
        for photo in facts["photos"]
    ]
    assert len(right) == 64 and np.mean(right) > 0.7
    distance = numbers(out, "attention_distance")["distance"].mean(axis=1)
    # Some heads are local in the first layers; all look far in the last ones.
    assert distance[:3].min() < 40 < 100 < distance[-1].min()
    assert (out / "report.html").stat().st_size < 5e6

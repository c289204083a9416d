"""The page of photos: one file, nothing of a name runs in it, bounded."""

import base64
import io

import chromium
import numpy as np
import pytest
from html_page import Page
from PIL import Image

import zoo.photos
from train.predict import gallery
from train.predict.answers import Answer
from train.predict.gallery import Gallery, Spread

HOSTILE = "<script>alert(1)</script>{{ 7 }}\n.jpg"


def save(path, seed=0, size=(30, 40), **options):
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), "uint8")
    Image.fromarray(pixels).save(path, **options)
    return str(path)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8, 9, 1000])
def test_spread_is_even_and_bounded(count):
    spread = Spread(4)
    for number in range(count):
        spread.add(number)
    kept = spread.kept
    assert spread.count == count and len(kept) == len(set(kept)) <= 4
    assert len(kept) >= min(count, 2) and kept[:1] == [0][:count]
    assert len({after - one for one, after in zip(kept, kept[1:], strict=False)}) <= 1


def test_a_page_that_needs_nothing_else(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    photos = [
        save(tmp_path / "turned.jpg", size=(300, 600), exif=exif),
        save(tmp_path / "plain.png"),
        str(tmp_path / HOSTILE),
    ]
    page = Gallery(tmp_path / "pages" / "gallery.html")
    for number, photo in enumerate(photos):
        top = ((f"<b>{number % 2}", 0.9 - 0.1 * number), ("other", 0.05))
        page.add(photo, Answer(photo, top))
    page.write("a <model>", ["<b>0", "<b>1"])
    found = Page(page.path)
    assert not any(map(found.count, ("link", "iframe", "object", "b")))
    assert found.count("script") == 1
    for link in found.values("src", "href"):
        assert link.startswith(("data:image/webp;base64,", "#class-"))
    pictures = [at for tag, at in found.tags if tag == "img"]
    # Upright, and at most so large.
    assert [(at["width"], at["height"]) for at in pictures] == [
        ("120", "240"),
        ("40", "30"),
    ]
    assert "no longer there" in found.text and "<b>0 2" in found.text
    assert HOSTILE in "".join(found.data)
    assert found.text.index("90.0%") < found.text.index("70.0%")
    assert "3 photos, answered by a <model>" in found.text
    monkeypatch.setattr(gallery, "SHOWN", 2)
    page = Gallery(page.path)
    for number in range(20):
        page.add("x.jpg", Answer("x.jpg", ((f"class {number % 7}", 0.5),)))
    page.write("model", [])
    found = Page(page.path)
    assert "20 photos, answered by model" in found.text
    shown = found.count("figure")
    assert 1 <= shown <= 2 and f"{shown} photos are shown" in found.text


def test_a_thumbnail_shows_what_the_model_saw(goldens, tmp_path, monkeypatch):
    """Pillow inverts the ink of a JPEG without the marker of Adobe."""
    path = goldens / "photos" / "cmyk_without_adobe_marker.jpg"
    uri = gallery._thumbnail(path)["uri"]
    shown = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
    assert abs(np.asarray(shown).mean() - zoo.photos.decode(path).mean()) < 5
    # One that cannot be read any more has none.
    (tmp_path / "text.jpg").write_text("no photo")
    assert gallery._thumbnail(tmp_path / "text.jpg") is None
    large = save(tmp_path / "large.jpg", size=(60, 80))
    assert gallery._thumbnail(large) is not None
    # As large as a decompression bomb.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert gallery._thumbnail(large) is None


@pytest.mark.slow
def test_the_page_on_a_phone(tmp_path):
    page = Gallery(tmp_path / "gallery.html")
    for number in range(4):
        name = "a_" + 60 * "very_" + f"long_name_{number}"
        photo = save(tmp_path / f"{name[:80]}{number}.png", size=(40, 400))
        page.add(photo, Answer(photo, ((name, 0.9), ("other", 0.05))))
    page.write("a_" + 60 * "very_" + "long_model", [name, "other"])
    assert chromium.cut_off(page.path, tmp_path) == []

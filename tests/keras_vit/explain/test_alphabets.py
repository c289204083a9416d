import io
import sys
import types
import warnings

import matplotlib.figure
import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

from keras_vit.explain import figures
from keras_vit.explain.figures import alphabets


def drawn(title):
    """A figure with a title, fitted, and what was spelled otherwise."""
    figure = figures.draw_attention_distance(np.ones((2, 1, 3)), title)
    return figure, figures.fit_alphabets(figure)


def check_glyphs(figure):
    """Every text has its glyphs, and drawing it says nothing of missing ones."""
    for text in figure.findobj(Text):
        fonts = [
            FT2Font(findfont(FontProperties(family=[family])))
            for family in text.get_fontfamily()
        ]
        for character in text.get_text().replace("\n", ""):
            assert any(ord(character) in font.get_charmap() for font in fonts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("png", "pdf"):
            figure.savefig(io.BytesIO(), format=kind)


@pytest.mark.parametrize("name", ["cat", "猫", "हिन", "ไทย", "عربي", "é✓"])
def test_every_text_has_its_glyphs(name):
    figure, spelled = drawn(f"ViT: {name}")
    check_glyphs(figure)
    assert (figure.get_supxlabel() == alphabets.NOTE) == bool(spelled)
    assert figure.get_suptitle() == spelled.get(f"ViT: {name}", f"ViT: {name}")


def test_a_font_that_has_the_letters_is_added(monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "font.family", ["STIXGeneral"])
    monkeypatch.setattr(alphabets, "_shapes_text", lambda: True)
    figure, spelled = drawn("عربي")
    assert not spelled
    [title] = [t for t in figure.findobj(Text) if not t.get_text().isascii()]
    assert title.get_fontfamily()[0] == "STIXGeneral" and title.get_fontfamily()[1:]
    check_glyphs(figure)


@pytest.mark.parametrize("name", ["عربي", "חתול"])
def test_without_shaping_it_is_spelled(monkeypatch, name):
    monkeypatch.setattr(alphabets, "_shapes_text", lambda: False)
    figure, spelled = drawn(name)
    assert spelled == {name: figure.get_suptitle()} and not set(name) & set(
        figure.get_suptitle()
    )


def test_characters_without_a_font_or_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "anyascii", None)
    assert alphabets.latin("café猫") == "cafe[U+732B]"
    # Eight letters for one would leave no room.
    assert alphabets.latin("猫" * 9) == "[U+732B]" * 5 + "[U+732B\u2026"


def test_anyascii_spells_where_it_is_installed(monkeypatch):
    module = types.SimpleNamespace(anyascii=lambda word: f"<{len(word)}>")
    monkeypatch.setitem(sys.modules, "anyascii", module)
    # Only words that have no font, and these whole.
    figure, _ = drawn("✗ \U00010480a 98%\nไทยx")
    assert figure.get_suptitle() == "✗ <2> 98%\n<4>"


def test_labels_of_ticks_stay_spelled(monkeypatch):
    # What is spelled is long, whether or not anyascii is installed.
    module = types.SimpleNamespace(anyascii=lambda word: f"<{len(word)} letters>")
    monkeypatch.setitem(sys.modules, "anyascii", module)
    figure = matplotlib.figure.Figure()
    axes = figure.subplots()
    axes.set_xticks([0, 1], ["cat", "\U00010480"], fontsize=9)
    spelled = figures.fit_alphabets(figure)
    check_glyphs(figure)
    labels = axes.get_xticklabels()
    assert [label.get_text() for label in labels] == [
        "cat",
        spelled["\U00010480"],
    ]
    # What is longer than before is smaller, for the room.
    assert labels[0].get_fontsize() == 9 and 5 < labels[1].get_fontsize() < 9
    assert figure.get_supxlabel() == alphabets.NOTE


LETTER = "\U000f1234"


@pytest.fixture
def font(tmp_path):
    """The file of a font that has a single letter, of a private use area."""
    builder = pytest.importorskip("fontTools.fontBuilder").FontBuilder(1000)
    pens = pytest.importorskip("fontTools.pens.ttGlyphPen")
    glyphs = {}
    for name in (".notdef", "letter"):
        pen = pens.TTGlyphPen(None)
        pen.moveTo((100, 0))
        for corner in ((100, 700), (500, 700)):
            pen.lineTo(corner)
        pen.closePath()
        glyphs[name] = pen.glyph()
    builder.setupGlyphOrder([*glyphs])
    builder.setupCharacterMap({ord(LETTER): "letter"})
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (600, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Ours Alone", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    path = tmp_path / "ours" / "fonts" / "alone.ttf"
    path.parent.mkdir(parents=True)
    builder.save(path)
    return path


@pytest.fixture
def forgotten(monkeypatch):
    """Leaves fonts and what is remembered of them as they were."""
    manager = font_manager.fontManager
    monkeypatch.setattr(manager, "ttflist", [*manager.ttflist])
    remembered = (alphabets._register_fonts, alphabets._fonts_for)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


@pytest.mark.parametrize("by", ["package", "machine"])
def test_a_font_that_a_package_brings_or_that_is_new(
    monkeypatch, tmp_path, font, forgotten, by
):
    if by == "package":
        information = tmp_path / "ours-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Name: ours\nVersion: 1.0\n")
        # One that is gone, and one that is no font.
        (tmp_path / "ours" / "broken.ttf").write_text("no font")
        files = ("ours/fonts/alone.ttf", "ours/gone.otf", "ours/broken.ttf")
        (information / "RECORD").write_text("".join(f"{name},,\n" for name in files))
        monkeypatch.syspath_prepend(str(tmp_path))
    else:
        monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(font)])
    figure, spelled = drawn(f"ViT: {LETTER}")
    assert not spelled and figure.get_supxlabel() != alphabets.NOTE
    [title] = [text for text in figure.findobj(Text) if LETTER in text.get_text()]
    assert title.get_fontfamily()[-1] == "Ours Alone"
    check_glyphs(figure)


def test_without_that_font_it_is_spelled(forgotten):
    _, spelled = drawn(f"ViT: {LETTER}")
    assert [*spelled] == [f"ViT: {LETTER}"]

import importlib.metadata
import io
import pathlib
import shutil
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
    module = types.SimpleNamespace(anyascii=lambda word: f"<{len(word)} letters>")
    monkeypatch.setitem(sys.modules, "anyascii", module)
    figure = matplotlib.figure.Figure()
    axes = figure.subplots()
    axes.set_xticks([0, 1], ["cat", "\U00010480"], fontsize=9)
    spelled = figures.fit_alphabets(figure)
    check_glyphs(figure)
    labels = axes.get_xticklabels()
    assert [label.get_text() for label in labels] == ["cat", spelled["\U00010480"]]
    # Longer text is smaller, to fit its room.
    assert labels[0].get_fontsize() == 9 and 5 < labels[1].get_fontsize() < 9
    assert figure.get_supxlabel() == alphabets.NOTE


LETTER = "\u1d81"


@pytest.fixture
def one_font(monkeypatch):
    """Matplotlib knows one font alone, which does not have the letter."""
    manager = font_manager.fontManager
    listed = [font for font in manager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(manager, "ttflist", listed)
    monkeypatch.setattr("importlib.metadata.distributions", list)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    remembered = (alphabets._register_fonts, alphabets._fonts_for)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


@pytest.mark.parametrize("by", ["package", "machine", None])
def test_a_font_that_a_package_brings_or_that_is_new(
    monkeypatch, tmp_path, one_font, by
):
    if by == "package":
        package = importlib.metadata.distribution("matplotlib")
        monkeypatch.setattr("importlib.metadata.distributions", lambda: [package])
    elif by == "machine":
        # One that is gone, one that is no font, and one that has the letter.
        gone, broken, font = (tmp_path / f"{number}.ttf" for number in range(3))
        broken.write_text("no font")
        fonts = pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        shutil.copy(fonts / "STIXGeneral.ttf", font)
        fonts = [str(gone), str(broken), str(font)]
        monkeypatch.setattr(font_manager, "findSystemFonts", lambda: fonts)
    figure, spelled = drawn(f"ViT: {LETTER}")
    assert [*spelled] == ([] if by else [f"ViT: {LETTER}"])
    check_glyphs(figure)

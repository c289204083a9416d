"""Names in all alphabets: fonts that have them, or Latin letters instead."""

import functools
import re
import unicodedata
from typing import TYPE_CHECKING

from zoo.common.safe_text import shorten, width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTE = (
    "Some names are spelled in Latin letters: theirs cannot be drawn with the fonts "
    "that are installed."
)
_NOTE_SIZE = 7
# The smallest scale of a text that becomes longer, and the most letters of a word that
# is spelled in codes.
_SMALLEST, _LETTERS = 0.65, 12
# Fonts of boxes, and of bitmaps that files of matplotlib cannot hold.
_UNFIT = ("Last Resort", "Color Emoji")
_FONT_FILES = (".ttf", ".otf", ".ttc")


def fit_alphabets(figure: "Figure") -> dict[str, str]:
    """Gives each text of a figure fonts that have all its characters.

    Of the fonts that the machine or an installed Python package has, those are added
    that have the characters which the text's own font lacks. A word that none can show
    is spelled in Latin letters, by the package anyascii if it is installed, and a note
    below the figure says so. Call it before the figure is drawn or saved.

    Args:
        figure: `matplotlib.figure.Figure`.

    Returns:
        Dict from the texts that are spelled in Latin letters to what is drawn.

    Source:
        https://matplotlib.org/stable/users/explain/text/fonts.html, font fallback.

    Example:
        >>> figure = draw_attention_distance(np.ones((2, 1, 3)), "猫")
        >>> spelled = fit_alphabets(figure)
    """
    from matplotlib.axis import Axis
    from matplotlib.text import Text

    spelled = {}
    for text in figure.findobj(Text):
        content = text.get_text()
        if content.isascii():
            continue
        families = tuple(text.get_fontfamily())
        added, missing = _fonts_for(frozenset(content), families, _shapes_text())
        if added:
            text.set_fontfamily([*families, *added])
        if missing:
            spelled[content] = _spelled(content, missing)
            text.set_text(spelled[content])
            # In no more room, but readable.
            share = _lines_width(content) / _lines_width(spelled[content])
            text.set_fontsize(text.get_fontsize() * min(1, max(share, _SMALLEST)))
    for axis in figure.findobj(Axis):
        # An axis sets its labels anew when it is drawn.
        names = [label.get_text() for label in axis.get_ticklabels()]
        if not spelled.keys().isdisjoint(names):
            axis.set_ticklabels([spelled.get(name, name) for name in names])
    if spelled:
        figure.supxlabel(NOTE, fontsize=_NOTE_SIZE, parse_math=False)
    return spelled


def _spelled(text, missing):
    """Returns a text whose words with missing characters are in Latin letters."""
    words = re.split(r"(\s+)", text)
    return "".join(word if missing.isdisjoint(word) else latin(word) for word in words)


def _lines_width(text):
    return max(1, *map(width, text.split("\n")))


def latin(word: str) -> str:
    """Returns a word in ASCII: transliterated, or characters as U+ and their number."""
    try:
        from anyascii import anyascii
    except ImportError:
        # Eight letters for one.
        return shorten("".join(map(_ascii, word)), 2 * width(word) + _LETTERS)
    return anyascii(word)


def _ascii(character):
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    if plain or _is_invisible(character):
        return plain
    return f"[U+{ord(character):04X}]"


def _is_invisible(character):
    return unicodedata.category(character) in ("Cc", "Cf", "Mn", "Zs", "Zl", "Zp")


def _is_shaped(character):
    """Whether a letter's look or place depends on its neighbours, as of Arabic."""
    return (
        unicodedata.bidirectional(character) in ("R", "AL")
        or unicodedata.category(character) == "Mc"
        or unicodedata.combining(character) == 9
    )


def _shapes_text():
    """Whether matplotlib joins letters and draws from the right, as 3.11 and later."""
    import matplotlib

    return tuple(map(int, matplotlib.__version__.split(".")[:2])) >= (3, 11)


@functools.lru_cache
def _fonts_for(characters, families, shapes):
    """Returns fonts to add to families, and the characters that none can show."""
    from matplotlib import font_manager

    shaped = set() if shapes else set(filter(_is_shaped, characters))
    missing = {one for one in characters if not _needs_no_glyph(one)} - shaped
    for family in families:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        missing -= _characters(path)
    added, lacking = _added_fonts(missing)
    if lacking and _register_fonts():
        added, lacking = _added_fonts(missing)
    return added, lacking | shaped


def _added_fonts(missing):
    """Returns fonts that have missing characters, and those that no font has."""
    from matplotlib import font_manager

    added = []
    while missing:
        # Prefer fonts with many other characters: they serve other names as well.
        covered, *_, family = max(
            (
                (
                    len(missing & _characters(font.fname)),
                    _is_plain(font),
                    len(_characters(font.fname)),
                    font.name,
                )
                for font in font_manager.fontManager.ttflist
                if not any(unfit in font.name for unfit in _UNFIT)
            ),
            default=(0, ""),
        )
        if not covered:
            break
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        if not missing & _characters(path):
            break
        missing = missing - _characters(path)
        added.append(family)
    return added, missing


def _is_plain(font):
    """Whether a font is upright, and of even strokes by its name."""
    return font.style == "normal" and not any(
        kind in font.name for kind in ("Serif", "Mono", "Ming", "Song", "Unifont")
    )


@functools.cache
def _register_fonts():
    """Tells matplotlib of fonts that it has not listed; returns how many there are.

    Those are fonts that Python packages bring, and those installed after matplotlib
    wrote its list.
    """
    from importlib.metadata import distributions

    from matplotlib import font_manager

    files = {*map(str, font_manager.findSystemFonts())}
    for distribution in distributions():
        for file in distribution.files or ():
            if file.suffix.lower() in _FONT_FILES:
                files.add(str(distribution.locate_file(file)))
    listed = {font.fname for font in font_manager.fontManager.ttflist}
    count = 0
    for path in sorted(files - listed):
        try:
            font_manager.fontManager.addfont(path)
        except (OSError, RuntimeError, ValueError):
            # A damaged font, or one that only lists bitmaps.
            continue
        count += 1
    return count


def _needs_no_glyph(character):
    # Variation selectors choose a look of the character before them.
    is_selector = 0xFE00 <= ord(character) <= 0xFE0F
    return is_selector or unicodedata.category(character) in ("Cc", "Cf")


@functools.cache
def _characters(path):
    """Returns the characters that a font file has, none where it cannot be drawn."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()

"""A page of photos with their answers, one HTML file that needs no network."""

import collections
import os
from collections.abc import Sequence
from typing import Any

from train.common.files import make_folder, write_text
from train.predict.answers import Answer
from train.predict.doubts import UNLIKE, UNSURE
from train.reports import html
from zoo.common import limits
from zoo.common.regular_files import expand_home, read_bytes
from zoo.common.safe_text import class_text
from zoo.photos import read_ahead
from zoo.photos.thumbnails import reduced

# At most this many photos are shown, each with a longer side of this many pixels.
SHOWN, LONGER_SIDE = 500, 240
_TITLES = {UNSURE: "Unsure", UNLIKE: "Unlike the photos of the training"}


class Spread:
    """Keeps at most `most` items of any number, evenly spread.

    >>> spread = Spread(4)
    >>> for number in range(10):
    ...     spread.add(number)
    >>> spread.kept
    [0, 4, 8]
    """

    def __init__(self, most):
        self.most, self.kept = most, []
        self.count, self._step = 0, 1

    def add(self, item: Any) -> None:
        """Counts an item, and keeps it if its turn has come."""
        if self.count % self._step == 0:
            if len(self.kept) == self.most:
                self.kept = self.kept[::2]
                self._step *= 2
            if self.count % self._step == 0:
                self.kept.append(item)
        self.count += 1


class Gallery:
    """The page, which shows at most `SHOWN` photos, evenly spread, and counts all."""

    def __init__(self, path, bits=None):
        self.path, self._bits = expand_home(path), bits
        self._shown = Spread(SHOWN)
        self._counts = collections.Counter()
        make_folder(self.path.parent, "--gallery")

    def add(self, photo: str, answer: Answer) -> None:
        """Adds a photo, a path, and its `train.predict.answers.Answer`."""
        self._shown.add((photo, answer))
        self._counts[_section(answer)] += 1

    def write(self, model: str, class_names: Sequence[str], asks: bool = False) -> None:
        """Writes the page; `model` is the name of the model, of these classes.

        `asks` says whether the photos are shown to be labelled.
        """
        shown = sorted(self._shown.kept, key=lambda item: -item[1].top[0][1])
        by_section = collections.defaultdict(list)
        read = read_ahead(shown, lambda item: _thumbnail(item[0], self._bits))
        for (photo, answer), picture in read:
            place = os.path.abspath(photo), picture
            by_section[_section(answer)].append((answer, *place))
        page = html.render(
            "train.predict",
            "gallery",
            ["corrections"],
            model=model,
            class_names=class_names,
            asks=asks,
            sections=[
                {
                    "title": _TITLES.get(mark) or class_text(name),
                    "has_classes": bool(mark),
                    "count": count,
                    "photos": by_section.get((mark, name), []),
                }
                for (mark, name), count in sorted(
                    self._counts.most_common(), key=lambda item: not item[0][0]
                )
            ],
            count=self._shown.count,
            shown=len(shown),
        )
        write_text(self.path, page, "--gallery")


def _section(answer):
    """Returns the section of an answer: its mark, or without one its class."""
    return (answer.mark, "") if answer.mark else ("", answer.top[0][0])


def _thumbnail(photo, bits=None):
    """Returns a small photo for a page, None if it is no longer there."""
    try:
        encoded = read_bytes(photo, limits.PHOTO_BYTES)
        small = reduced(encoded, 2 * LONGER_SIDE, bits)
    except (OSError, ValueError, MemoryError):
        return None
    small.thumbnail((LONGER_SIDE, LONGER_SIDE))
    return {"uri": html.uri(small), "width": small.width, "height": small.height}

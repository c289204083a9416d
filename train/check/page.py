"""The page of a check: groups of copies and labels in doubt as pictures, one file."""

from collections.abc import Sequence

import numpy as np

from train.data.photo_names import relative
from train.data.review import Review, ordered
from train.data.sources.splits import Source
from train.reports import gallery, html
from train.scoring.label_errors import LabelErrors

# The most groups of a section, photos of a group, and labels in doubt on the page.
_GROUPS, _OF_GROUP, _DOUBTS = 40, 8, 60
_SECTIONS = {
    "contradictions": (
        "Contradictions",
        "The same photo under several labels: a model cannot learn both.",
    ),
    "leaks": (
        "Leaks",
        "The same photo in several parts: what a model is tested on it has learned.",
    ),
    "identical": ("Identical", "Files that are equal to the byte."),
    "near": (
        "Near-identical",
        "Photos that were resized, saved again, made brighter, mirrored or cut.",
    ),
}


def render(
    source: Source,
    review: Review,
    errors: LabelErrors | None,
    results: dict,
    lines: Sequence[str],
) -> str:
    """Returns the page as HTML; `lines` are what the command prints."""
    groups = {name: getattr(review, name)[:_GROUPS] for name in _SECTIONS}
    doubts = [] if errors is None else errors.places[:_DOUBTS]
    shown = [group[:_OF_GROUP] for own in groups.values() for group in own]
    photos = _Photos(source, review, np.unique(np.concatenate([[], *shown, doubts])))
    sections = [
        {
            "id": name,
            "title": title,
            "about": about,
            "total": len(results[name]),
            "groups": [
                {
                    "photos": [photos.shown(place) for place in group[:_OF_GROUP]],
                    "total": len(group),
                }
                for group in groups[name]
            ],
        }
        for name, (title, about) in _SECTIONS.items()
    ]
    rows = zip(doubts, results["label_errors"], strict=False)
    return html.render(
        "train.check",
        "check",
        ["corrections"],
        class_names=source.class_names,
        results=results,
        lines=lines,
        sections=sections,
        doubts=[(photos.shown(place)[0], row) for place, row in rows],
    )


class _Photos:
    """The photos at some places of a review, decoded again and reduced."""

    def __init__(self, source, review, places):
        self._review = review
        self._names = relative(review.names, source.name)
        self._pixels, self._missing = {}, {}
        start = 0
        for split in ordered(source).values():
            is_own = (places >= start) & (places < start + split.num_examples)
            own = places[is_own].astype(int) - start
            pixels, missing = gallery.decoded(split, own)
            self._pixels |= {start + place: one for place, one in pixels.items()}
            self._missing |= {start + place: one for place, one in missing.items()}
            start += split.num_examples

    def shown(self, place):
        """Returns a `train.reports.gallery.Photo` and its part of the data set."""
        place, review = int(place), self._review
        photo = gallery.Photo(
            file=self._names[place],
            truth=review.truth(place),
            answers=(),
            pixels=self._pixels.get(place),
            why_not=self._missing.get(place),
        )
        return photo, review.parts[place]

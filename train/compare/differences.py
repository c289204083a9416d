"""The test images on which two runs differ, and what the difference amounts to."""

from dataclasses import dataclass

import numpy as np

from train.compare.answers import Answered, Image
from train.scoring import paired


@dataclass(frozen=True)
class Pair:
    """Two runs on the same images.

    Attributes:
        first, second: the names of the runs.
        difference: the `train.scoring.paired.Difference`.
        first_only: the images that the first run alone answers correctly, those first
            where both are most certain.
        second_only: those of the second.
        both_wrong: images with different wrong answers.
    """

    first: str
    second: str
    difference: paired.Difference
    first_only: list[Image]
    second_only: list[Image]
    both_wrong: list[Image]


def pair_of(
    first: str,
    second: str,
    answers: dict[str, dict[Image, Answered]],
) -> Pair:
    """Compares two runs, whose `answers` are to the same images.

    Example:
        >>> right, wrong = Answered("a", 0.9, True), Answered("b", 0.8, False)
        >>> images = [(f"{number}.jpg", "a", 0) for number in range(3)]
        >>> found = pair_of("one", "two", {
        ...     "one": dict(zip(images, (right, right, wrong))),
        ...     "two": dict(zip(images, (right, wrong, wrong))),
        ... })
        >>> found.first_only, found.second_only, found.both_wrong
        ([('1.jpg', 'a', 0)], [], [])
    """
    ours, theirs = answers[first], answers[second]

    def certainty(image: Image) -> float:
        return -(ours[image].probability + theirs[image].probability)

    kinds = {"first": [], "second": [], "both": [], "": []}
    for image in sorted(ours, key=certainty):
        kinds[_kind(ours[image], theirs[image])].append(image)
    hits = (
        np.array([one[image].is_correct for image in ours]) for one in (ours, theirs)
    )
    return Pair(
        first,
        second,
        paired.difference(*hits),
        kinds["first"],
        kinds["second"],
        kinds["both"],
    )


def _kind(ours, theirs):
    if ours.is_correct != theirs.is_correct:
        return "first" if ours.is_correct else "second"
    return "both" if ours.name != theirs.name else ""

"""What is notable about a data set: copies, contradictions, leaks, unread photos."""

import collections
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from train.data import copies
from train.data.fingerprint_cache import known
from train.data.fingerprints import Fingerprint
from train.data.labels import counts
from train.data.sources.splits import Source, Split
from zoo.photos.headers import Header

# The parts of a data set, the one first whose photos are worth most: of copies in
# several parts, the photo that is kept is of the first of these.
_PARTS = ("test", "validation", "train", "all")


@dataclasses.dataclass(frozen=True)
class Review:
    """A data set, photo by photo: of all its parts, one after the other.

    Attributes:
        class_names: tuple of str.
        parts: the part of each photo, a list of str.
        names: the names of the photos, such as files, a list of str.
        labels: integers (photos,), or of other tasks as `Split.labels` has them.
        fingerprints: a list of `train.data.fingerprints.Fingerprint`; empty where there
            are too many photos for a short look, which then finds `identical` alone.
        identical: groups of places whose photos are the same to the byte.
        near: groups of places whose photos show the same, and are not all identical.
        groups: integers (photos,), see `train.data.copies.groups`.
    """

    class_names: tuple[str, ...]
    parts: list[str]
    names: list[str]
    labels: np.ndarray
    fingerprints: list[Fingerprint]
    identical: list[np.ndarray]
    near: list[np.ndarray]
    groups: np.ndarray

    @property
    def contradictions(self) -> list[np.ndarray]:
        """The groups of copies with several labels; masks in files are not compared."""
        if self.labels.dtype == object:
            return []
        return self._copies_of_several([one.tobytes() for one in self.labels])

    def truth(self, place: int) -> str:
        """Returns the label of a photo as text, with commas between several."""
        label = self.labels[place]
        if not np.ndim(label):
            return self.class_names[label]
        names = [self.class_names[one] for one in np.flatnonzero(label)]
        return ", ".join(names) or "(none)"

    @property
    def leaks(self) -> list[np.ndarray]:
        """The groups of copies in several parts of the data set."""
        return self._copies_of_several(self.parts)

    @property
    def unread(self) -> dict[str, str]:
        """The names of the photos that cannot be decoded, and why."""
        pairs = zip(self.names, self.fingerprints, strict=False)
        return {name: one.unread for name, one in pairs if one.unread}

    def class_counts(self, part: str | None = None) -> np.ndarray:
        """Counts the photos of each class, of one part or all: integers (classes,).

        Numbers and masks in files have none.
        """
        is_in = [part in (None, own) for own in self.parts]
        if self.labels.dtype.kind in "fO":
            return np.zeros(0, int)
        return counts(self.labels[is_in], len(self.class_names))

    def counted(self, what: Callable[[Header], object]) -> collections.Counter:
        """Counts the values that a function has of the headers that are known."""
        return collections.Counter(
            what(one.header) for one in self.fingerprints if one.header is not None
        )

    def _copies_of_several(self, values: Sequence) -> list[np.ndarray]:
        groups = copies.grouped(self.groups)
        return [
            group for group in groups if len({values[place] for place in group}) > 1
        ]


def ordered(source: Source) -> dict[str, Split]:
    """Returns the splits of a source in the order of a `Review`."""
    splits = source.splits()
    return {part: splits[part] for part in _PARTS if part in splits}


def review(source: Source, is_short: bool = False) -> Review:
    """Looks at every photo of a data set; a progress bar shows how far it is.

    A short look decodes no more photos than `train.data.copies.groups` does.
    """
    splits = ordered(source)
    count = sum(split.num_examples for split in splits.values())
    looked_at: list[Fingerprint] = []
    if is_short and count > copies.MOST_DECODED:
        digests = copies.digests([*splits.values()])
    else:
        looked_at = [one for split in splits.values() for one in known(split)]
        digests = [one.digest for one in looked_at]
    identical = copies.identical(digests)
    pairs = copies.near(looked_at)
    groups = copies.joined(count, [*identical, *pairs])
    near = [
        group
        for group in copies.grouped(groups)
        if len({digests[place] for place in group}) > 1
    ]
    return Review(
        source.class_names,
        [part for part, split in splits.items() for _ in range(split.num_examples)],
        [name for split in splits.values() for name in split.names()],
        np.concatenate([split.labels() for split in splits.values()]),
        fingerprints=looked_at,
        identical=identical,
        near=near,
        groups=groups,
    )

"""The photos of a report: some of the images with their answers, small, as JPEG."""

import base64
import io
import os
from dataclasses import dataclass

import numpy as np

# A group has at most this many photos.
MISTAKES, UNCERTAIN, SUSPECTED = 24, 12, 12
# The longer side of a photo in pixels.
LONGER_SIDE = 320
# Photos below this side are shown with their pixels as squares.
_PIXELATED = 64


@dataclass(frozen=True)
class Photo:
    """A photo of a group, with the names of its true class and of one beside it.

    `pixels` are uint8 (height, width, 3), the whole photo reduced, None where it is not
    shown: `why_not` says why.
    """

    file: str
    truth: str
    answer: str
    probability: float
    is_correct: bool
    pixels: np.ndarray | None
    why_not: str | None

    @property
    def uri(self) -> str:
        """The photo as a data URI."""
        from PIL import Image

        buffer = io.BytesIO()
        options = {"quality": 95, "subsampling": 0} if self.is_tiny else {"quality": 80}
        Image.fromarray(self.pixels).save(buffer, "JPEG", **options)
        return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"

    @property
    def is_tiny(self) -> bool:
        """Whether it is shown with its pixels as squares."""
        return max(self.pixels.shape[:2]) < _PIXELATED


@dataclass(frozen=True)
class Group:
    """Some photos under a title, the first ones of `total`.

    `truth` and `answer` are what the two classes of each photo are called.
    """

    title: str
    photos: list
    total: int
    truth: str = "Truth"
    answer: str = "Answer"

    @property
    def why_not(self) -> str | None:
        """Why the others are not shown, None where all are."""
        if self.total == len(self.photos):
            return None
        shown = len(self.photos)
        return f"{shown} of {self.total:,}: more would be too many for this page."


class Gallery:
    """Photos of a report, decoded again for it.

    `answers` and `names` are those of all images; groups may show those at `places`.
    `pixels` has them by place, uint8 (height, width, 3), reduced to `LONGER_SIDE`, and
    `missing` why there is none. `folder` is what all images are files in, None where
    they are no files, or of several disks.
    """

    def __init__(self, answers, names, places):
        self.answers, self.names = answers, names
        self.folder = _folder_of(names)
        self.pixels, self.missing = _decode(answers.split, np.unique(places))

    def group(
        self,
        title: str,
        places: np.ndarray,
        most: int,
        suggested: np.ndarray | None = None,
    ) -> Group:
        """Returns a `Group` of the first images at some places, at most `most`.

        `suggested` are classes, integers (images,), that are compared with the labels
        instead of the answers.
        """
        is_answer = suggested is None
        classes = self.answers.predicted[places] if is_answer else suggested
        pairs = zip(places[:most].tolist(), classes[:most].tolist(), strict=True)
        photos = [self._photo(*pair) for pair in pairs]
        titles = () if is_answer else ("Label", "Suggested")
        return Group(title, photos, len(places), *titles)

    def _photo(self, place, other):
        answers, name = self.answers, self.names[place]
        label = answers.labels[place]
        return Photo(
            file=name if self.folder is None else os.path.relpath(name, self.folder),
            truth=answers.class_names[label],
            answer=answers.class_names[other],
            probability=float(answers.probability_of(place, other)),
            is_correct=bool(other == label),
            pixels=self.pixels.get(place),
            why_not=self.missing.get(place),
        )


def _decode(split, places):
    """Returns dicts of places of a split to pixels, and to why there are none."""
    import tensorflow as tf
    from PIL import Image

    from train.data.sources.splits import pick

    pixels, missing = {}, {}
    records = pick(split, places).records()
    for place, (record, _) in zip(places.tolist(), records, strict=True):
        try:
            photo = Image.fromarray(split.decode(record).numpy())
        except tf.errors.NotFoundError:
            missing[place] = "The file is no longer there."
        except tf.errors.OpError:
            missing[place] = "The image can no longer be decoded."
        else:
            photo.thumbnail((LONGER_SIDE, LONGER_SIDE))
            pixels[place] = np.asarray(photo)
    return pixels, missing


def _folder_of(names):
    try:
        folder = os.path.commonpath(map(os.path.dirname, names))
    except ValueError:
        return None
    return folder if os.path.isdir(folder) else None

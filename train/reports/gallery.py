"""The photos of a report: some of the images with their answers, small, as JPEG."""

import base64
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from train.data.sources.splits import Split

# A group has at most this many photos.
MISTAKES, UNCERTAIN, SUSPECTED = 24, 12, 12
# The longer side of a photo in pixels.
LONGER_SIDE = 320
# Photos below this side are shown with their pixels as squares.
_PIXELATED = 64


@dataclass(frozen=True)
class Answer:
    """A class beside the true one, with its probability.

    A number has no probability, None. `by` is the name of the model that it is the
    answer of, where there are several.
    """

    name: str
    probability: float | None
    is_correct: bool
    by: str = ""

    @property
    def text(self) -> str:
        """The class with its probability, or the number."""
        if self.probability is None:
            return self.name
        return f"{self.name} ({self.probability:.2%})"


@dataclass(frozen=True)
class Photo:
    """A photo of a group, with its true class and the answers to it.

    `pixels` are uint8 (height, width, 3), the whole photo reduced, None where it is not
    shown: `why_not` says why. `path` is that of a photo whose class can be corrected,
    absolute, None of what is no file.
    """

    file: str
    truth: str
    answers: tuple[Answer, ...]
    pixels: np.ndarray | None
    why_not: str | None
    path: str | None = None

    @property
    def is_correct(self) -> bool:
        """Whether all answers are the true class."""
        return all(answer.is_correct for answer in self.answers)

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

    `truth` and `answer` are what the two classes of each photo are called. Of several
    models the answers are called by their names.
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

    @property
    def header(self) -> tuple[str, ...]:
        """The titles of `rows`."""
        answers = self.photos[0].answers
        return ("File", self.truth, *(one.by or self.answer for one in answers))

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The rows of a table of the photos."""
        return [
            (
                photo.file,
                photo.truth,
                *(one.text for one in photo.answers),
            )
            for photo in self.photos
        ]


class Gallery:
    """Photos of a report, decoded again for it.

    `answers` and `names` are those of all images; groups may show those at `places`.
    `pixels` has them by place, uint8 (height, width, 3), reduced to `LONGER_SIDE`, and
    `missing` why there is none. `folder` is what all images are files in, None where
    they are no files, or of several disks.
    """

    def __init__(self, answers, names, places):
        self.answers, self.names = answers, names
        self.folder = folder_of(names)
        self.pixels, self.missing = decoded(answers.split, np.unique(places))

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
        label, is_file = answers.labels[place], self.folder is not None
        answer = Answer(
            answers.class_names[other],
            float(answers.probability_of(place, other)),
            bool(other == label),
        )
        return Photo(
            file=os.path.relpath(name, self.folder) if is_file else name,
            path=os.path.abspath(name) if is_file else None,
            truth=answers.class_names[label],
            answers=(answer,),
            pixels=self.pixels.get(place),
            why_not=self.missing.get(place),
        )


def decoded(split: "Split", places: np.ndarray) -> tuple[dict, dict]:
    """Returns dicts of places of a split to pixels, and to why there are none.

    The places are distinct and ascending; pixels are uint8 (height, width, 3), reduced
    to `LONGER_SIDE`.
    """
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


def folder_of(names: Sequence[str]) -> str | None:
    """Returns the folder that files are in, None where they are no files."""
    try:
        folder = os.path.commonpath(map(os.path.dirname, names))
    except ValueError:
        return None
    return folder if os.path.isdir(folder) else None

"""Photos in, answers out: what every process that predicts calls."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from train.common.errors import RunError
from train.models.finding import bits_of, find
from train.predict import classifiers, remote
from train.predict.answers import (
    LABELS,
    SEPARATOR,
    THRESHOLDS,
    TOP,
    columns_of,
    spelled,
)
from train.predict.doubts import Doubts, check_answers
from zoo.common import regular_files
from zoo.network.head import NUMBERS
from zoo.network.preparation import ModelBits
from zoo.photos import batches, prepare


class Passing(str):
    """A reason why a photo cannot be read that may be gone at another time."""


class Answered(NamedTuple):
    """The answers to a batch of photos.

    `tops` has the names and probabilities of each, the best first, or all numbers of a
    model for these in their order; `marks` a mark of `train.predict.doubts` for each,
    None where nothing is judged. `labels` are the names of the classes that reach their
    thresholds, None of a model without. Without classes `values` are None and both
    empty; `features` are None unless they were asked for.
    """

    values: np.ndarray | None
    features: np.ndarray | None
    tops: list[tuple[tuple[str, float], ...]]
    marks: Sequence[str | None]
    labels: list[tuple[str, ...]] | None = None


@dataclasses.dataclass
class PhotoPredictor:
    """A model that answers photos, loaded where it is first used.

    It pickles to its settings, so that other processes and machines get it in a
    message; each loads the model by itself. An exported `.tflite` or `.onnx` file needs
    neither TensorFlow nor Keras there.

    Args:
        model: str, a run, a `.keras` file, a name or path that `keras_vit.load_model`
            takes, or the path of an exported file.
        features: bool, whether rows have the features of their photos.
        unsure: float, the accuracy that answers should have, see
            `train.predict.prediction.predict`; None for no marks.
        image_size: as there, like those that follow.
        central_crop: bool, or None.
        bits: int, or None.
        batch_size: int, or None.
        engine: str.
        precision: str.
        trust: bool.
        num_photos: int, how many photos will be answered in this process, by which the
            engine "auto" chooses; None where that is not known.

    Call arguments:
        photos: sequence of str, paths or URLs that fsspec opens, and of bytes, the
            content of files.
        names: sequence of str, how rows call the photos; by default paths and URLs, and
            "" for bytes.
        progress: function that is called with a number of photos once these are
            answered, or cannot be read.

    Returns:
        List of dicts, one for each photo in their order: `file`; `label`,
        `probability`, `label_2`, `probability_2` and so on, the best first (of a model
        for numbers `label`, `value` and so on); `labels`, all that reach their
        thresholds with | between them, of a model that has these; `mark` with `unsure`;
        `features`, float32 (size,), if asked for; and `error`, a str where the photo
        cannot be read, whose answers are None, else None.

    Raises:
        RunError: the model cannot be used.

    Example:
        >>> predictor = PhotoPredictor("runs/digits")
        >>> predictor(["a.png", b"..."])  # doctest: +SKIP
    """

    model: str
    _: dataclasses.KW_ONLY
    features: bool = False
    unsure: float | None = None
    image_size: int | tuple[int, int] | None = None
    central_crop: bool | None = None
    bits: int | None = None
    batch_size: int | None = None
    engine: str = "auto"
    precision: str = "float32"
    trust: bool = False
    num_photos: int | None = None

    def __post_init__(self):
        self._has_answered = False
        if self.unsure is not None:
            _refuse_changes(image_size=self.image_size, central_crop=self.central_crop)

    def __getstate__(self):
        # The model that was loaded stays in its process.
        names = [field.name for field in dataclasses.fields(self)]
        state = {name: getattr(self, name) for name in names}
        return state | {"_has_answered": False}

    @functools.cached_property
    def doubts(self) -> Doubts | None:
        """What marks answers, None without `unsure`."""
        if self.unsure is None:
            return None
        return Doubts(find(self.model, exports=True), self.unsure)

    @functools.cached_property
    def classifier(self) -> classifiers.Classifier:
        """The model, which is loaded here."""
        needs_features = self.doubts is not None and self.doubts.needs_features
        classifier = classifiers.load(
            self.model,
            image_size=self.image_size,
            central_crop=self.central_crop,
            batch_size=self.batch_size,
            features=self.features or needs_features,
            engine=self.engine,
            precision=self.precision,
            trust=self.trust,
        )
        if self.doubts is not None:
            check_answers(classifier.name, classifier.answers, "--unsure")
        classifier.expect(self.num_photos or None)
        return classifier

    def expect(self, num_photos: int | None) -> None:
        """Sets how many photos will be answered, of a model that may be loaded."""
        self.num_photos = num_photos
        if "classifier" in vars(self):
            self.classifier.expect(num_photos or None)

    def load(self) -> "PhotoPredictor":
        """Loads the model now, not at the first call; returns this."""
        _ = self.classifier
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes or numbers."""
        return self.classifier.answers.names

    @property
    def has_numbers(self) -> bool:
        """Whether the model answers with numbers in place of classes."""
        return self.classifier.answers.problem_type == NUMBERS

    @functools.cached_property
    def _bits(self):
        return bits_of(self.model, self.classifier.bits, self.bits)

    @property
    def photo_bits(self) -> int | None:
        """How many bits the values of photos of 16 bits have, see `zoo.photos`."""
        return self._bits[0]

    @property
    def notes(self) -> list[str]:
        """What users should know of the answers."""
        judged = [self.doubts.note] if self.doubts is not None else []
        return [*self.classifier.notes, *judged, *self._bits[1]]

    @functools.cached_property
    def digest(self) -> str:
        """A text that other weights and another precision change."""
        return self.classifier.digest()

    def settings(self) -> dict[str, Any]:
        """Returns what the answers depend on, for JSON."""
        classifier, bits = self.classifier, self.photo_bits
        height, width, _ = classifier.image_shape
        if isinstance(bits, ModelBits):
            # A file's own bits come before those of a model only.
            bits = f"{bits} of the model"
        digest = hashlib.blake2b(json.dumps(self.names).encode(), digest_size=16)
        return {
            "weights": self.digest,
            "problem_type": classifier.answers.problem_type,
            "classes": len(self.names),
            "class_names": digest.hexdigest(),
            "bits": bits,
            "image_size": [height, width],
            "preparation": classifier.preparation,
            "features": self.features,
            **self._thresholds(),
            **({} if self.unsure is None else {"unsure": self.unsure}),
        }

    def _thresholds(self):
        thresholds = self.classifier.answers.thresholds
        return {THRESHOLDS: list(thresholds)} if thresholds else {}

    def read(self, photo: str | bytes) -> np.ndarray | str:
        """Returns a photo as the model takes it, or why it cannot be read."""
        height, width, channels = self.classifier.image_shape
        try:
            return prepare(
                remote.content_of(photo),
                (height, width),
                self.classifier.preparation,
                channels,
                self.photo_bits,
            )
        except (OSError, ValueError, MemoryError) as error:
            text = str(error) or type(error).__name__
            # A file that is not there may be on a disk that is not mounted yet.
            is_lasting = isinstance(error, (ValueError, regular_files.NotRegularError))
            return text if is_lasting else Passing(text)

    def answer(self, images: np.ndarray, files: Sequence[str]) -> Answered:
        """Returns the answers to images by `read`, at most `batch_size` of them.

        `files` say in errors which photos these are.
        """
        outputs, features = self.classifier.compute(images)
        tops, values = [], None
        marks: Sequence[str | None] = []
        labels = None
        if outputs is not None:
            values = self.classifier.answers.values(outputs)
            self._check(values, files, len(self.names))
            self._check_head(values)
            tops = self._tops(values)
            if self.classifier.answers.thresholds:
                given = self.classifier.answers.given(values)
                labels = [tuple(spelled(self.names[at]) for at in own) for own in given]
            marks = [None] * len(files)
            if self.doubts is not None:
                marks = self.doubts.marks(values, features)
        if self.features:
            self._check(features, files, self.classifier.num_features)
        self._has_answered = True
        kept = features if self.features else None
        return Answered(values, kept, tops, marks, labels)

    def __call__(
        self,
        photos: Sequence[str | bytes],
        names: Sequence[str] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> list[dict[str, Any]]:
        if names is None:
            names = [spelled(one) if isinstance(one, str) else "" for one in photos]
        empty = dict.fromkeys(self.columns)
        rows = [empty | {"file": name} for name in names]

        def unread(place: int, reason: str) -> None:
            rows[place]["error"] = reason
            if progress is not None:
                progress(1)

        def read(place: int) -> np.ndarray | str:
            return self.read(photos[place])

        size = self.classifier.batch_size
        for places, images in batches(range(len(photos)), read, size, unread):
            answered = self.answer(images, [names[place] for place in places])
            for row, place in enumerate(places):
                rows[place] |= self.row_of(answered, row)
            if progress is not None:
                progress(len(places))
        return rows

    @property
    def columns(self) -> tuple[str, ...]:
        """The names in a row of a call."""
        return ("file", *self.answer_columns, *["features"] * self.features, "error")

    @property
    def answer_columns(self) -> tuple[str, ...]:
        """Those that have the answer: pairs of a name and a number, and the mark."""
        problem_type = self.classifier.answers.problem_type
        pairs = columns_of(problem_type, len(self.names)) if self.names else ()
        if self.classifier.answers.thresholds:
            pairs = (LABELS, *pairs)
        return (*pairs, *["mark"] * (self.unsure is not None))

    def row_of(self, answered: Answered, place: int) -> dict[str, Any]:
        """Returns the answer to one photo of a batch, as in a row of a call."""
        row = {}
        if answered.tops:
            cells = [cell for pair in answered.tops[place] for cell in pair]
            if answered.labels is not None:
                cells.insert(0, SEPARATOR.join(answered.labels[place]))
            has_marks = self.unsure is not None
            cells += [None] * (len(self.answer_columns) - has_marks - len(cells))
            if has_marks:
                cells.append(answered.marks[place] or "")
            row = dict(zip(self.answer_columns, cells, strict=True))
        if answered.features is not None:
            row["features"] = answered.features[place]
        return row

    def _tops(self, values):
        best = self.classifier.answers.best(values, TOP)
        return [
            tuple((spelled(self.names[at]), float(f"{one:.6g}")) for at, one in row)
            for row in best
        ]

    def _check_head(self, values):
        """Refuses a head that gives all classes of the first photos the same."""
        is_flat = len(self.names) > 1 and not np.ptp(values, axis=1).any()
        if is_flat and not (self.has_numbers or self._has_answered):
            raise RunError(
                f"The model {self.classifier.name} gives every class the same "
                "probability, as a new head does: fine-tune it first, or pass a model "
                "with a trained head."
            )

    def _check(self, outputs, files, size):
        name = self.classifier.name
        if outputs.shape != (len(files), size):
            raise RunError(
                f"The model {name} gives outputs of shape {outputs.shape} for "
                f"{len(files)} photos, where {(len(files), size)} are expected: "
                "export it again, or pass another model."
            )
        finite = np.isfinite(outputs).all(axis=1)
        if not finite.all():
            raise RunError(
                f"The model's outputs for {files[int(finite.argmin())]} are not "
                "finite: it has diverged in training, or its precision is too small "
                "for it. Pass another model."
            )


def _refuse_changes(**settings):
    """Refuses settings under which the answers are not those of the run's test."""
    for name, value in settings.items():
        if value is not None:
            raise RunError(
                f"--{name} changes the answers, and --unsure judges them by the test "
                "of the run: leave one of them out."
            )

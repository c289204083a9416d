"""Predictions for any number of photos, written as they are made."""

import collections
import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable, Sequence

from train.common import packages
from train.common.errors import RunError, explaining_full_memory
from train.common.files import locked, make_folder
from train.models.finding import find
from train.predict import labelling
from train.predict.answers import (
    FORMATS,
    Answer,
    AnswerFile,
    named_reason,
    of_spelled,
    spelled,
)
from train.predict.asking import Asking
from train.predict.doubts import MARKS, check_answers
from train.predict.features import FeatureFile
from train.predict.gallery import Gallery
from train.predict.photo_list import STDIN, Photos
from train.predict.photo_predictor import PhotoPredictor
from train.predict.remote import is_url
from train.predict.sorting import SortedCopies
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import printable
from zoo.photos import batches, endings
from zoo.store.progress import progress_bar

# Name at most this many of the photos that could not be read.
NAMED = 10
# A bar before that would only flicker.
_BAR_SECONDS = 3


@dataclasses.dataclass
class Predictions:
    """The outcome of predictions for photos.

    Attributes:
        model: str, the name of the model.
        answered: int, the photos that were answered.
        earlier: int, those that `out` had before.
        counts: `collections.Counter` of their most likely classes.
        unreadable: int, the photos that could not be read.
        reasons: list of str, why, of the first `NAMED`.
        marks: `collections.Counter` of the marks of doubted answers.
        asked: list of `Answer`, to photos whose labels would help most.
        notes: list of str, what users should know.
    """

    model: str
    answered: int = 0
    earlier: int = 0
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    unreadable: int = 0
    reasons: list[str] = dataclasses.field(default_factory=list)
    marks: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    asked: list[Answer] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def predict(
    model: str,
    photos: Sequence[str],
    *,
    out: str | os.PathLike | None = None,
    features: str | os.PathLike | None = None,
    sort_into: str | os.PathLike | None = None,
    gallery: str | os.PathLike | None = None,
    unsure: float | None = None,
    ask: int | None = None,
    resume: bool = False,
    image_size: int | tuple[int, int] | None = None,
    central_crop: bool | None = None,
    bits: int | None = None,
    batch_size: int | None = None,
    engine: str = "auto",
    precision: str = "float32",
    trust: bool = False,
    answer: Callable[[Answer], None] | None = None,
    show_progress: bool = True,
) -> Predictions:
    """Predicts the classes of photos, and writes them as they are answered.

    Photos are read by threads while the model computes, a few batches ahead at most, so
    that memory does not grow with their number. One that cannot be read is counted.

    Args:
        model: a run, a `.keras` file, a name or path that `keras_vit.load_model` takes,
            or the path of an exported file.
        photos: sequence of str: files, folders, patterns, or `"-"` for a list on
            standard input.
        out: path of a `.csv` or `.jsonl` file of the answers; with `ask` that of a CSV
            file of the photos to label.
        features: path of an `.npz` file, of the features and the names of the files.
        sort_into: path of a folder, in which photos are copied to folders by class.
        gallery: path of an HTML page, of the photos with their answers.
        unsure: float, the accuracy that answers should have: those that the test of the
            model's run shows to be less accurate are marked, and photos unlike all of
            its training; None for no marks.
        ask: int, how many photos to choose whose labels would help the model most; None
            for none.
        resume: bool, whether to go on with `out`, whose photos are not read again.
        image_size: pixels per side, to which a Keras model is resized, and the images
            of an exported one for any size; by default its own.
        central_crop: bool, or None for what the model says.
        bits: int, of values in PNG and TIFF files of 16 bits, see `zoo.photos.decode`;
            None for what the file says, else the model.
        batch_size: int, images at a time.
        engine: str, see `keras_vit.Predictor`; an exported file has its own.
        precision: str, likewise.
        trust: bool, whether a SavedModel may have operations that ours do not have,
            which may read and write files.
        answer: function that is called with each `Answer`.
        show_progress: bool, whether a progress bar appears after some seconds.

    Returns:
        `Predictions`.

    Raises:
        RunError: the model, a file or a folder cannot be used, or there is no photo.
        ValueError: `bits` are not 8 to 16.

    Example:
        >>> predict("runs/digits", ["photos/"], out="x.csv")  # doctest: +SKIP
    """
    _check(out, features, gallery, resume, ask)
    if sort_into or gallery:
        _refuse_urls(photos)
    asking = None if ask is None else Asking(ask)
    predictor = PhotoPredictor(
        model,
        features=features is not None or asking is not None,
        unsure=unsure,
        image_size=image_size,
        central_crop=central_crop,
        bits=bits,
        batch_size=batch_size,
        engine=engine,
        precision=precision,
        trust=trust,
    )
    # This may be refused, and is before anything is read or written.
    doubts = predictor.doubts
    if asking and out is not None:
        make_folder(expand_home(out).parent, "--out")
    selection = Photos(photos, [] if sort_into is None else [sort_into])
    with contextlib.ExitStack() as stack:
        file = _opened(stack, None if asking else out, features, resume)
        total = selection.count(file.has if file else None)
        if total == 0 and not (file and file.count):
            raise _no_photo(model, selection)
        predictor.expect(total)
        stack.enter_context(
            explaining_full_memory("lower --batch_size or --image_size.")
        )
        job = _Job(predictor, selection, file, answer, asking)
        marks = () if doubts is None else MARKS
        job.open(stack, features, sort_into, gallery, marks)
        job.run(total, show_progress)
        if asking is not None:
            job.advise(model, out, gallery)
        return job.predictions


class _Job:
    """A call of `predict`: the model, its photos and what is written."""

    def __init__(self, predictor, photos, file, answer, asking):
        self.predictor, self.photos = predictor, photos
        self.file, self.answer, self.asking = file, answer, asking
        self.spell = file.spell if file else spelled
        self.features = self.copies = self.gallery = None
        classifier = predictor.classifier
        self.name = classifier.name
        self.predictions = Predictions(classifier.name, notes=[*predictor.notes])
        if asking is not None:
            check_answers(classifier.name, classifier.answers, "--ask")

    def open(self, stack, features, sort_into, gallery, marks):
        """Opens the outputs, which an `ExitStack` closes."""
        predictor, file = self.predictor, self.file
        if not predictor.names and (file or sort_into or gallery):
            raise RunError(
                f"The model {self.name} has features, but no classes: leave out --out, "
                "--sort_into and --gallery."
            )
        if predictor.has_numbers and (sort_into or gallery):
            raise RunError(
                f"The model {self.name} answers with numbers, not with classes: leave "
                "out --sort_into and --gallery."
            )
        if file is not None:
            self.predictions.earlier = file.count
            file.open(predictor.settings())
            stack.callback(file.close)
        if features is not None:
            size, count = predictor.classifier.num_features, file.count if file else 0
            self.features = FeatureFile(features, size, count)
            # An interrupted run goes on with those of the photos in its file.
            stack.callback(self.features.close, keep=file is not None)
        if sort_into is not None:
            self.copies = SortedCopies(sort_into, predictor.names, marks)
        if gallery is not None:
            self.gallery = Gallery(gallery, predictor.photo_bits)

    def run(self, total: int | None, show_progress: bool) -> None:
        """Answers all photos; `predictions` are then complete."""
        self._show_earlier()
        self._answer_all(total, show_progress)
        if self.asking is not None:
            self._choose()
        if self.features is not None:
            self.features.finish()
        if self.gallery is not None:
            asks = self.asking is not None
            self.gallery.write(self.name, self.predictor.names, asks=asks)
        predictions = self.predictions
        if not (predictions.answered or predictions.unreadable or total == 0):
            raise RunError("There is no photo in the list on standard input.")
        if note := self.photos.note():
            predictions.notes.append(note)

    def _choose(self):
        """Chooses photos to be labelled, which alone the gallery then shows."""
        self.predictions.asked = self.asking.chosen()
        if self.gallery is not None:
            for answer in self.predictions.asked:
                self.gallery.add(of_spelled(answer.file), answer)

    def advise(self, model, out, gallery):
        """Lists the photos to be labelled in `out`, and says what then to do."""
        if out is not None:
            labelling.write_list(out, self.predictions.asked)
        self.predictions.notes.append(labelling.advice(model, out, gallery))

    def _show_earlier(self):
        """Copies photos that the file has answers for, and adds them to the gallery."""
        if not (self.copies or self.gallery):
            return
        for answer in self.file or ():
            path = self.file.path_of(answer.file)
            # One that was answered before may be gone.
            self._show(path, answer, copy=os.path.exists(path))

    def _answer_all(self, total, show_progress):
        has = self.file.has if self.file else None
        photos = (photo for photo in self.photos if not (has and has(photo)))
        with (
            warnings.catch_warnings(),
            progress_bar(
                total=total,
                unit="photo",
                desc="predicting",
                delay=_BAR_SECONDS,
                disable=not show_progress,
            ) as progress,
        ):
            warnings.filterwarnings("ignore", module=r"PIL\.")

            def unread(photo: str, reason: str) -> None:
                self._count_unreadable(photo, reason)
                progress.update(1)

            size, read = self.predictor.classifier.batch_size, self.predictor.read
            with contextlib.closing(batches(photos, read, size, unread)) as read:
                for batch, images in read:
                    self._answer(batch, images)
                    progress.update(len(batch))

    def _count_unreadable(self, photo, reason):
        self.predictions.unreadable += 1
        if self.predictions.unreadable <= NAMED:
            self.predictions.reasons.append(printable(named_reason(photo, reason)))

    def _show(self, photo, answer, copy=True):
        """Copies a photo to its class, and adds it to the gallery."""
        if self.copies is not None and copy:
            self.copies.add(photo, answer.top[0][0], answer.mark)
        if self.gallery is not None and self.asking is None:
            self.gallery.add(photo, answer)

    def _answer(self, photos, images):
        answered = self.predictor.answer(images, photos)
        answers = self._answers(photos, answered)
        # Write first what an interruption may repeat, and last what says that it is
        # done.
        if self.features is not None:
            files = [self.spell(photo) for photo in photos]
            self.features.append(files, answered.features)
        for photo, answer in zip(photos, answers, strict=False):
            self._show(photo, answer)
            if answer.labels is not None:
                self.predictions.counts.update(answer.labels)
            elif not answer.has_numbers:
                self.predictions.counts[answer.top[0][0]] += 1
            if answer.mark:
                self.predictions.marks[answer.mark] += 1
        if self.file is not None:
            self.file.append(answers)
        self.predictions.answered += len(photos)
        if self.answer is not None:
            for answer in answers:
                self.answer(answer)

    def _answers(self, photos, answered):
        has_numbers = self.predictor.has_numbers
        answers = [
            Answer(self.spell(photo), top, has_numbers, mark, labels)
            for photo, top, mark, labels in zip(
                photos,
                answered.tops,
                answered.marks,
                answered.labels or [None] * len(photos),
                strict=False,
            )
        ]
        if self.asking is not None:
            self.asking.add(answers, answered.values, answered.features)
        return answers


def _check(out, features, gallery, resume, ask):
    """Refuses names of files by their endings, and files that are there."""
    if ask is not None and resume:
        raise RunError(
            "--ask chooses among photos that are answered now, and --resume leaves out "
            "earlier ones: leave one of them out."
        )
    endings = {
        "out": (out, tuple(FORMATS) if ask is None else (".csv",)),
        "features": (features, (".npz",)),
        "gallery": (gallery, (".html",)),
    }
    for flag, (path, allowed) in endings.items():
        if path is None:
            continue
        path = expand_home(path)
        if path.suffix not in allowed:
            raise RunError(
                f"--{flag} is a file {' or '.join(f'NAME{end}' for end in allowed)}, "
                f"got {path}."
            )
        # A list that was asked for may be filled in by now.
        is_new = flag != "out" or ask is not None
        if path.exists() and not resume and is_new:
            raise RunError(f"{path} exists: pass another --{flag}, or remove it.")
    if gallery is not None:
        packages.need("--gallery", ("jinja2",))
    if resume and out is None:
        raise RunError("--resume goes on with the answers in --out: pass it.")


def _refuse_urls(photos):
    """Refuses URLs where the files of photos are copied or shown."""
    if any(map(is_url, photos)):
        raise RunError(
            "--sort_into and --gallery take the files of photos, not URLs: download "
            "them first, or leave these out."
        )


def _opened(stack, out, features, resume):
    """Returns the file of answers, or None; an `ExitStack` keeps the locks of files."""
    for path, flag in ((out, "--out"), (features, "--features")):
        if path is not None:
            stack.enter_context(locked(path, flag))
    return None if out is None else AnswerFile(out, resume)


def _no_photo(model, selection):
    """Returns the error where no photo is selected."""
    # The words may be swapped: then the first is no model.
    if os.path.exists(model):
        find(model, exports=True)
    others = ""
    if selection.others:
        others = f" {selection.note()}; read are {', '.join(endings())}"
    return RunError(
        f"There is no photo in {', '.join(map(str, selection.places)) or 'the list'}: "
        f"give files, folders or {STDIN}.{others}"
    )

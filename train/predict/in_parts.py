"""Predictions in parts, which one process or several, on any machines, write."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any

from train.common import library_messages, packages
from train.common.errors import RunError
from train.common.files import lock_file, make_folder
from train.predict import shards
from train.predict.answers import FORMATS
from train.predict.part_folder import PARQUET, Part, PartFolder
from train.predict.part_work import PartWork
from train.predict.photo_list import STDIN, Photos
from train.predict.photo_predictor import PhotoPredictor
from train.predict.prediction import NAMED, Predictions
from train.predict.runners import RUNNERS
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import named, printable
from zoo.store.progress import progress_bar

# Photos of a part: a worker that is killed repeats at most so many. A multiple of the
# usual sizes of a batch, so that batches are full.
_PHOTOS = 512
# Parts of a `.zip` file at most: each reads the list of all its files.
_MOST_PARTS = 64


def is_meant(out: str | None, **given: object) -> bool:
    """Returns whether `--out` is a folder for parts.

    Raises a `RunError` where it is none, and flags of parts are given, by name.
    """
    is_folder = False
    if out:
        path = expand_home(out)
        is_folder = path.is_dir() or not (path.suffix or path.name in FORMATS)
    if (names := _given(given)) and not is_folder:
        raise RunError(
            f"{named(names)}: for answers in parts, which are written into a folder. "
            "Pass --out=FOLDER, a name without an ending."
        )
    return is_folder


def refuse(**given: object) -> None:
    """Refuses flags, given by name, that go with a single file."""
    if names := _given(given):
        raise RunError(
            f"{named(names)}: not for answers in parts, which go on by themselves. "
            "Leave it out, or pass --out=NAME.csv."
        )


def predict(
    model: str,
    photos: Sequence[str],
    out: str,
    *,
    runner: str | None = None,
    workers: int | None = None,
    parts: str | None = None,
    features: str | None = None,
    show_progress: bool = True,
    **settings: Any,
) -> Predictions:
    """Predicts the classes of photos, and writes them in parts into a folder.

    Called again with the same arguments, it goes on with the parts that are not written
    yet, whatever ended it before, and with any runner.

    Args:
        model: as in `train.predict.prediction.predict`.
        photos: as there; also shards, see `train.predict.shards`.
        out: path of a folder, which all workers see.
        runner: str, one of `train.predict.runners.RUNNERS`; None for this process.
        workers: int, processes of the runner; by default one per processor.
        parts: str, one of `train.predict.part_folder.FORMATS`, by default Parquet.
        features: path of a folder for Parquet files of features, or None.
        show_progress: bool.
        settings: those of a `PhotoPredictor`.

    Returns:
        `train.predict.prediction.Predictions`.

    Raises:
        RunError: the model, a file or a folder cannot be used, or there is no photo.

    Example:
        >>> predict("runs/digits", ["photos/"], "out", runner="ray")  # doctest: +SKIP
    """
    parts = parts or PARQUET
    if parts == PARQUET or features is not None:
        packages.need("A Parquet file", ("pyarrow",), extra="ray")
    run = RUNNERS[runner]()
    predictor = PhotoPredictor(model, features=features is not None, **settings)
    folder = PartFolder(out, parts, features)
    with contextlib.ExitStack() as stack:
        for path in folder.folders:
            make_folder(path, "--out")
            busy = f"Another process is writing {path}"
            stack.enter_context(lock_file(path / ".lock", busy, "--out"))
        notes = predictor.notes
        if folder.is_planned:
            # The other places may be gone by now.
            selection = Photos([STDIN])
        else:
            selection = Photos(photos, folder.folders, with_shards=True)
            folder.plan(_parts(selection))
            notes += filter(None, [selection.note()])
        settings = predictor.settings() | {"photos": list(photos)}
        if STDIN in photos:
            settings["list_on_standard_input"] = selection.digest_of_list()
        count = folder.begin(settings)
        earlier = folder.finished()
        missing = sorted(set(range(count)) - earlier)
        for number in missing:
            folder.unnote(number)
        predictions = Predictions(predictor.classifier.name, notes=notes)
        for number in sorted(earlier):
            done = folder.done(number)
            predictions.earlier += done.answered
            _count_unread(predictions, done)
        weights, total = predictor.digest, _total(folder, missing)
        predictor.expect(total)
        if runner is not None:
            # Its processes print dozens of lines, and tracebacks where one ends early.
            stack.enter_context(library_messages.hidden_errors())
        if runner is not None and os.path.exists(model):
            # Processes elsewhere may not start in this directory.
            predictor = dataclasses.replace(predictor, model=os.path.abspath(model))
        bar = stack.enter_context(
            progress_bar(
                total=total, unit="photo", desc="predicting", disable=not show_progress
            )
        )
        work = PartWork(predictor, folder, weights, bar.update)
        written = stack.enter_context(contextlib.closing(run(work, missing, workers)))
        so_far = 0
        for done in map(folder.done, written):
            _count(predictions, done)
            bar.set_postfix(unread=predictions.unreadable)
            so_far += done.answered + done.unreadable
            # Other processes count by parts, and this one while it works on them.
            bar.update(so_far - bar.n)
        folder.finish(count)
    return predictions


def _given(flags):
    return [f"--{name}" for name, value in flags.items() if value]


def _parts(photos):
    """Yields the parts of photos, paths, URLs and shards of a `Photos`."""
    folder, found = os.getcwd(), []
    for photo in photos:
        if shards.is_shard(photo) and not os.path.isdir(photo):
            yield from _parts_of_shard(folder, photo)
            continue
        found.append(photo)
        if len(found) == _PHOTOS:
            yield Part(folder, photos=tuple(found))
            found = []
    if found:
        yield Part(folder, photos=tuple(found))


def _parts_of_shard(folder, shard):
    # In this order a change between the two is seen later.
    version, count = shards.version_of(shard), shards.num_photos(shard)
    if not count:
        yield Part(folder, shard=shard)
        return
    size = _PHOTOS * max(1, math.ceil(count / (_PHOTOS * _MOST_PARTS)))
    for start in range(0, count, size):
        stop = min(start + size, count)
        yield Part(folder, (), shard, start, stop, version)


def _total(folder, numbers):
    """Returns how many photos parts have, None where shards have not been counted."""
    total = 0
    for number in numbers:
        part = folder.part(number)
        if part.shard and part.stop is None:
            return None
        total += part.stop - part.start if part.shard else len(part.photos)
    return total


def _count(predictions, done):
    predictions.answered += done.answered
    predictions.counts.update(done.counts)
    predictions.marks.update(done.marks)
    _count_unread(predictions, done)


def _count_unread(predictions, done):
    predictions.unreadable += done.unreadable
    left = NAMED - len(predictions.reasons)
    predictions.reasons += map(printable, done.reasons[:left])

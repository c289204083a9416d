"""The check of a data set: its findings, its JSON and its page."""

import dataclasses
import os
import pathlib

import numpy as np

from train.check import page
from train.check.folder import RECORD, folder_of
from train.common.errors import RunError
from train.common.files import write_json, write_text
from train.data import sources
from train.data.checking import DataError
from train.data.options import DEFAULTS, DataOptions
from train.data.registry import real_path
from train.data.review import Review, ordered, review
from train.data.sources.splits import Source, pick
from train.models import loaded_model
from train.models.finding import FoundModel
from train.reports import review as texts
from train.scoring import label_errors
from train.scoring.features import Extractor
from train.scoring.label_errors import LabelErrors
from train.tasks import CLASSES, seen
from zoo.store import cache_dir


def check(
    dataset: str,
    *,
    model: str | FoundModel | None = None,
    data_options: DataOptions = DEFAULTS,
    json: str | os.PathLike | None = None,
    out: str | os.PathLike | None = None,
    image_size: int | tuple[int, int] | None = None,
    batch_size: int = 32,
    engine: str = "auto",
    precision: str = "float32",
    command: str = "",
) -> dict:
    """Checks a data set, and writes a page and the findings as JSON.

    The arguments are the flags of `python -m train.check`; without a model no label
    errors are sought.

    Returns:
        Dict as in the JSON file; `lines` are what the command prints, `page` and `json`
        the paths of the files, `train` the flags of finetune with which to begin, None
        for data that it would refuse.

    Raises:
        RunError: model, data or folder cannot be used; the message says what to do.

    Example:
        >>> check("photos/")["leaks"]  # doctest: +SKIP
        [['test/daisy/3.jpg', 'train/daisy/7.jpg']]
    """
    folder = folder_of(dataset, out)
    task = seen(dataset, data_options.columns)
    data_options = dataclasses.replace(data_options, task=task)
    extractor, lines = None, []
    if model is not None and task != CLASSES:
        lines = [f"label errors: not sought in data of --task={task}"]
    elif model is not None:
        network = _network(model, image_size)
        extractor = Extractor(
            network,
            patches=False,
            batch_size=batch_size,
            engine=engine,
            precision=precision,
        )
    source, notes = _loaded(dataset, data_options)
    found = review(source)
    # Say which photos are dark once, before features decode them again.
    findings = texts.findings(found, dataset)
    errors = None
    if extractor is not None:
        errors = _label_errors(source, found, extractor)
        lines = texts.label_error_lines(errors, found, dataset)
    results = texts.record(found, errors, dataset)
    results |= {"ignored": source.ignored, "command": command}
    results["data"] = real_path(dataset)
    file = folder / RECORD
    write_json(file, results, "--out")
    if json is not None:
        file = pathlib.Path(json)
        write_json(file, results, "--json")
    lines = [
        *texts.overview(found, dataset),
        *notes,
        *findings,
        *lines,
    ]
    left_out = texts.left_out_line(results, str(file))
    lines += [left_out] if left_out else []
    text = page.render(source, found, errors, results, lines)
    write_text(folder / "check.html", text, "--out")
    paths = {"page": str(folder / "check.html"), "json": str(file)}
    words = texts.flags_of(found) if data_options.bits is None else []
    words += [f"--without={file}"] if left_out else []
    return {**results, "lines": lines, **paths, "train": None if notes else words}


def _network(model, image_size):
    try:
        return loaded_model.load(model, image_size=image_size, features=True).model
    except RunError as error:
        raise RunError(
            f"{error} Or pass --model=none, which seeks no label errors."
        ) from error


def _loaded(dataset, options):
    """Returns the data in their parts, and notes; undivided where they have none."""
    try:
        return sources.load(dataset, options), []
    except DataError as error:
        source = sources.load(dataset, options, validation_fraction=None)
        return source, [f"not divided: {error}"]


def _label_errors(
    source: Source, found: Review, extractor: Extractor
) -> LabelErrors | None:
    """Returns the label errors among the photos that can be decoded."""
    is_read = np.array([not one.unread for one in found.fingerprints])
    features, start = [], 0
    for split in ordered(source).values():
        own = np.flatnonzero(is_read[start : start + split.num_examples])
        start += split.num_examples
        part = split if len(own) == split.num_examples else pick(split, own)
        features.append(extractor(part, cache=cache_dir() / "features").pooled)
    places = np.flatnonzero(is_read)
    errors = label_errors.by_cross_validation(
        np.concatenate(features),
        found.labels[places],
        len(found.class_names),
        found.groups[places],
    )
    return errors and dataclasses.replace(errors, places=places[errors.places])

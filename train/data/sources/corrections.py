"""Corrections of a data set by files: photos that are left out, and other labels."""

import csv
import difflib
import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from train.data.checking import DataError
from train.data.columns import separator
from train.data.photo_names import Places, relative
from train.data.sources.splits import Source, pick, relabelled
from zoo.common.limits import TABLE_BYTES
from zoo.common.regular_files import read_text
from zoo.common.safe_text import counted, named, of_plain_cell

# `keras-vit check` writes these. Of copies all but the first photo are left out, of
# photos with several labels all: which one is right is not known.
_COPIES, _CONTRADICTIONS, _UNREAD = (
    ("leaks", "identical", "near"),
    "contradictions",
    "unread",
)
_LABEL_ERRORS = "label_errors"
# A run directory has these.
_LEFT_OUT, _RELABELLED = "left_out", "relabelled"

File = str | os.PathLike | None


def corrected(source: Source, without: File = None, relabel: File = None) -> Source:
    """Returns a source without some photos, and with other labels for some.

    Args:
        source: what `train.data.sources.load` returns; photos stay in their parts.
        without: file with the photos to leave out: a CSV file with a column `path`, or
            the JSON of `keras-vit check`, all of whose findings but label errors count.
        relabel: file with labels of photos: a CSV file with the columns `path` and
            `label`, or that JSON, of which the label errors count.

    Returns:
        `Source`, whose `left_out` and `relabelled` say what was done.

    Raises:
        DataError: a file cannot be read, or names photos or classes that are not there.
    """
    splits = source.splits()
    names = [name for split in splits.values() for name in split.names()]
    places = Places(names, source.name)
    left_out = {} if without is None else dict.fromkeys(_left_out(without))
    wanted = {} if relabel is None else _labels(relabel)
    removed = _found(left_out, places, "--without", without, source.name)
    labels = _found(wanted, places, "--relabel", relabel, source.name)
    labels = {
        place: _class(name, source.class_names, relabel)
        for place, name in labels.items()
    }
    parts: dict[str, Any] = {}
    changed, start = {}, 0
    for part, split in splits.items():
        own = np.arange(start, start + split.num_examples)
        start += split.num_examples
        new = split.labels().copy()
        for place in labels.keys() & set(own.tolist()):
            new[place - own[0]] = labels[place]
        for index in np.flatnonzero(new != split.labels()):
            changed[names[own[index]]] = source.class_names[new[index]]
        kept = np.flatnonzero([place not in removed for place in own.tolist()])
        if not kept.size:
            raise DataError(
                f"{without} leaves out all images of {split.name}: keep some of them"
            )
        split = relabelled(split, new) if (new != split.labels()).any() else split
        parts[part] = pick(split, kept) if len(kept) < len(own) else split
    removed = [names[place] for place in sorted(removed)]
    keys = relative(changed, source.name)
    return replace(
        source,
        **parts,
        left_out=tuple(relative(removed, source.name)),
        relabelled=dict(zip(keys, changed.values(), strict=True)),
    )


def _found(wanted, places, flag, file, dataset):
    """Returns a dict by the places of photos of one by their names."""
    by_place = {places.find(name): value for name, value in wanted.items()}
    if None in by_place:
        missing = [name for name in wanted if places.find(name) is None]
        raise DataError(
            f"{flag}={file} names {counted(len(missing), 'photo')} that {dataset} does "
            f"not have: {named(missing)}; paths start at the data set or where the "
            "command is given: correct or remove them"
        )
    return by_place


def _class(name, class_names, file):
    if name in class_names:
        return class_names.index(name)
    near = difflib.get_close_matches(name, class_names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise DataError(
        f'{file} has the label "{name}", which is not a class of the data: {hint}The '
        f"classes are {named(class_names)}"
    )


def _left_out(file: File) -> Iterable[str]:
    """Returns the names of the photos that a file leaves out."""
    content = _read(file, ("path",))
    if isinstance(content, list):
        return [row["path"] for row in content]
    return left_out_by(content)


def left_out_by(content: dict) -> Iterator[str]:
    """Yields the names of the photos that the JSON of a check leaves out.

    A photo may come more than once.

    Example:
        >>> found = {"near": [["a.jpg", "b.jpg"]], "unread": {"c.jpg": "it is cut"}}
        >>> [*left_out_by(found)]
        ['c.jpg', 'b.jpg']
    """
    yield from content.get(_LEFT_OUT, [])
    yield from content.get(_UNREAD, {})
    for group in content.get(_CONTRADICTIONS, []):
        yield from group
    for kind in _COPIES:
        for group in content.get(kind, []):
            yield from group[1:]


def _labels(file):
    """Returns a dict from names of photos to the labels that a file has for them."""
    content = _read(file, ("path", "label"))
    if isinstance(content, list):
        return {row["path"]: row["label"] for row in content}
    suggested = {row["path"]: row["label"] for row in content.get(_LABEL_ERRORS, [])}
    return suggested | content.get(_RELABELLED, {})


def record(source: Source) -> dict:
    """Returns what was corrected, as JSON that corrects other loads of the data alike.

    It is empty where nothing was.
    """
    corrected = {_LEFT_OUT: list(source.left_out), _RELABELLED: source.relabelled}
    return corrected if any(corrected.values()) else {}


def _read(file, columns):
    """Returns the rows of a CSV file, dicts; or the object of a JSON file."""
    layout = (
        "expected the JSON of keras-vit check, or a CSV file with the columns "
        f"{','.join(columns)}"
    )
    try:
        text = read_text(file, TABLE_BYTES, "utf-8-sig")
        if text.lstrip().startswith("{"):
            return _checked(json.loads(text))
        lines = io.StringIO(text, newline="")
        first = lines.readline()
        lines.seek(0)
        reader = csv.DictReader(lines, delimiter=separator(first), strict=True)
        if missing := set(columns) - {*(reader.fieldnames or ())}:
            raise ValueError(f"it has no column {', '.join(sorted(missing))}")
        rows = [
            {name: of_plain_cell(row[name] or "") for name in columns} for row in reader
        ]
    except (
        OSError,
        ValueError,
        csv.Error,
        LookupError,
        TypeError,
        RecursionError,
    ) as error:
        raise DataError(f"cannot read {file} ({error}): {layout}") from error
    for number, row in enumerate(rows, 2):
        if empty := [name for name in columns if not row[name]]:
            raise DataError(f"{file} row {number} has no {empty[0]}: fill it in")
    return rows


def _checked(content):
    """Refuses JSON whose lists are not those of `keras-vit check`."""
    for kind in (*_COPIES, _CONTRADICTIONS):
        for group in content.get(kind, []):
            if not isinstance(group, list) or not all(
                isinstance(n, str) for n in group
            ):
                raise ValueError(f'"{kind}" is not a list of lists of paths')
    for row in content.get(_LABEL_ERRORS, []):
        if not (isinstance(row["path"], str) and isinstance(row["label"], str)):
            raise ValueError(f'"{_LABEL_ERRORS}" has other values than texts')
    return content

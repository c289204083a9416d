"""Corrections of a data set by files: photos left out or added, and other labels."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from train.data import correction_files
from train.data.checking import DataError
from train.data.correction_files import LEFT_OUT, RELABELLED, File, Files
from train.data.photo_names import Places, relative
from train.data.sources.splits import (
    Source,
    Split,
    appended,
    is_of_files,
    pick,
    relabelled,
)
from zoo.common.safe_text import counted, named


def corrected(
    source: Source,
    without: Files = None,
    relabel: Files = None,
    unused: str | None = None,
) -> Source:
    """Returns a source without some photos, with other labels for some, and with more.

    Args:
        source: what `train.data.sources.load` returns; photos stay in their parts.
        without: files with the photos to leave out, as
            `train.data.correction_files.left_out` reads them.
        relabel: files with labels of photos, as `train.data.correction_files.labels`
            reads them. Photos that data in files do not have are added to the training
            part, or to the whole where it is not divided, but for those that are left
            out.
        unused: name of a part that is not used: what files say of its photos counts
            for nothing.

    Returns:
        `Source`, whose `left_out`, `relabelled` and `added` say what was done.

    Raises:
        DataError: a file cannot be read, or names photos or classes that are not there,
            or copies of photos that are held out.
    """
    splits = source.splits()
    names = [name for split in splits.values() for name in split.names()]
    places = Places(names, source.name)
    target = "all" if source.all is not None else "train"
    takes_more = is_of_files(splits[target])
    labels, added = _labels(correction_files.each(relabel), places, source, takes_more)
    removed = _left_out(correction_files.each(without), places, added, source.name)
    parts: dict[str, Any] = {}
    changed, start = {}, 0
    for part, split in splits.items():
        own = np.arange(start, start + split.num_examples)
        start += split.num_examples
        if part == unused:
            removed -= {*own.tolist()}
            continue
        new = split.labels().copy()
        for place in labels.keys() & set(own.tolist()):
            new[place - own[0]] = labels[place]
        for index in np.flatnonzero(new != split.labels()):
            changed[names[own[index]]] = source.class_names[new[index]]
        kept = np.flatnonzero([place not in removed for place in own.tolist()])
        if not kept.size:
            raise DataError(
                f"--without leaves out all images of {split.name}: keep some of them"
            )
        split = relabelled(split, new) if (new != split.labels()).any() else split
        parts[part] = pick(split, kept) if len(kept) < len(own) else split
    if added:
        held_out = [split for part, split in parts.items() if part != target]
        count = parts[target].num_examples
        parts[target] = appended(parts[target], [*added], [*added.values()])
        new = pick(parts[target], range(count, count + len(added)))
        _refuse_copies(new, held_out)
    removed_names = [names[place] for place in sorted(removed)]
    new_classes = {path: source.class_names[label] for path, label in added.items()}
    return replace(
        source,
        **parts,
        total=source.total + len(added),
        left_out=tuple(relative(removed_names, source.name)),
        relabelled=_by_name(changed, source.name),
        added=_by_name(new_classes, source.name),
    )


def _by_name(classes: Mapping[str, str], dataset: str) -> dict[str, str]:
    """Returns classes by the names of photos as files have them."""
    return dict(zip(relative(classes, dataset), classes.values(), strict=True))


def _left_out(files, places, added, dataset):
    """Returns the places of the photos that files leave out, a set.

    Photos that would be added are taken out of `added`.
    """
    removed: set[int] = set()
    not_added: set[str | None] = set()
    for file in files:
        names = dict.fromkeys(correction_files.left_out(file))
        unknown, known = _told_apart(names, places)
        paths = {name: places.file(name) for name in unknown}
        missing = [name for name, path in paths.items() if path not in added]
        _refuse_missing("--without", file, missing, dataset)
        removed |= known.keys()
        not_added.update(paths.values())
    for path in not_added:
        del added[path]
    return removed


def _labels(files, places, source, takes_more):
    """Returns the numbers of classes by the places of photos, and by added files."""
    labels: dict[int, int] = {}
    added: dict[str, int] = {}
    for file in files:
        wanted = correction_files.labels(file)
        unknown, known = _told_apart(wanted, places)
        paths = {name: places.file(name) for name in unknown} if takes_more else {}
        missing = [name for name in unknown if not paths.get(name)]
        _refuse_missing("--relabel", file, missing, source.name)
        names = source.class_names
        numbers = {label: _class(label, names, file) for label in wanted.values()}
        labels |= {place: numbers[label] for place, label in known.items()}
        added |= {paths[name]: numbers[label] for name, label in unknown.items()}
    return labels, added


def _told_apart(wanted, places):
    """Returns what is wanted for photos without a place by name, others by place."""
    found = {name: places.find(name) for name in wanted}
    unknown = {name: wanted[name] for name, place in found.items() if place is None}
    known = {place: wanted[name] for name, place in found.items() if place is not None}
    return unknown, known


def _refuse_missing(flag: str, file: File, names: Iterable[str], dataset: str) -> None:
    if missing := [*names]:
        raise DataError(
            f"{flag}={file} names {counted(len(missing), 'photo')} that {dataset} does "
            f"not have: {named(missing)}; paths start at the data set or where the "
            "command is given: correct or remove them"
        )


def _refuse_copies(new: Split, held_out: Sequence[Split]) -> None:
    """Refuses new photos to train on that are copies of some to test on."""
    # It imports the splits, whose package imports this module.
    from train.data import copies

    digests = copies.digests([new, *held_out])
    known = set(digests[new.num_examples :])
    places = [n for n in range(new.num_examples) if digests[n] and digests[n] in known]
    if places:
        raise DataError(
            f"--relabel adds {counted(len(places), 'photo')} to train on that the test "
            f"or the validation has copies of: {named([*map(new.locate, places)])}; "
            "remove them from the file, or leave them out with --without"
        )


def _class(name, class_names, file):
    if name in class_names:
        return class_names.index(name)
    near = difflib.get_close_matches(name, class_names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise DataError(
        f'{file} has the label "{name}", which is not a class of the data: {hint}The '
        f"classes are {named(class_names)}"
    )


def record(source: Source) -> dict:
    """Returns what was corrected, as JSON that corrects other loads of the data alike.

    It is empty where nothing was.
    """
    labels = source.relabelled | source.added
    corrected = {LEFT_OUT: list(source.left_out), RELABELLED: labels}
    return corrected if any(corrected.values()) else {}

"""Finds the classes of a data set among those of a model."""

import collections
import re
from collections.abc import Callable, Sequence

import numpy as np

from train.common.errors import RunError
from train.models.classes import listed, plain
from train.models.run_directory import how_to_name
from zoo.common.safe_text import class_text, named

_ID = re.compile(r"n\d{8}")


def match_classes(
    outputs: int,
    head_names: Sequence[str] | str | None,
    data_names: Sequence[str],
    numbers: bool = False,
) -> tuple[tuple[str, ...], np.ndarray, bool]:
    """Returns the names of a head's classes, and the class of each label, int32.

    The third result is whether the data set's classes were taken for numbers.

    Matched by name, ignoring case, spaces, hyphens, underscores and how accents are
    encoded (NFC or NFD); of several synonyms with commas between them the first will
    do. `head_names` may be the name of a list of `zoo.class_names`. WordNet ids
    (`n01440764`) and names (`tench`) of ImageNet match each other. An equal number of
    classes does not mean an equal order. With `numbers`, if all classes of the data set
    are numbers and none is the name of a class of the model, they are places in the
    head's outputs, from 0.

    Raises:
        RunError: a name is not, or not clearly, one of the model's.
    """
    shown, aliases = _aliases(outputs, head_names, data_names)
    tables = [collections.defaultdict(list) for _ in _SPELLINGS]
    for table, spelling in zip(tables, _SPELLINGS, strict=True):
        for place, names in enumerate(aliases):
            for key in {spelling(name) for name in names}:
                table[key].append(place)
    matches = [_find(name, tables) for name in data_names]
    if numbers and not any(matches) and all(map(_is_number, data_names)):
        if (most := max(map(int, data_names))) < outputs:
            places = np.array([int(name) for name in data_names], dtype="int32")
            return shown, places, True
        raise RunError(
            f"The data set's classes are numbers up to {most}, but those of "
            f"the model's {outputs} classes count from 0 to {outputs - 1}: rename "
            "them, or call them by the names of the model's classes."
        )
    twice = [
        name for name, own in zip(data_names, matches, strict=True) if len(own) > 1
    ]
    if twice:
        places = matches[data_names.index(twice[0])]
        raise RunError(
            f"{len(twice)} of the data set's {len(data_names)} classes are names of "
            f"several of the model's: {_named(twice)}. "
            f"{_instead(twice[0], places, aliases)}"
        )
    if head_names is None:
        raise RunError(
            f"The model has {outputs} classes, whose names are not known, and the data "
            f"set has {len(data_names)}: {how_to_name(outputs)}, or pass a run's "
            "directory or a published model."
        )
    unknown = [name for name, own in zip(data_names, matches, strict=True) if not own]
    if unknown:
        raise RunError(
            f"{len(unknown)} of the data set's {len(data_names)} classes are not "
            f"among the model's {outputs}: {_named(unknown)}; the model's are "
            f"{_named(shown)}. Rename the data set's, give a model that was trained on "
            "them, or write the right names to class_names.txt beside the model."
        )
    return shown, np.array([own[0] for own in matches], dtype="int32"), False


def _aliases(outputs, head_names, data_names):
    """Returns the names of a head's classes to show, and all names of each."""
    if isinstance(head_names, str):
        aliases = listed(head_names)
        return tuple(name for _, name in aliases), aliases
    if head_names is None:
        return tuple(f"class {number}" for number in range(outputs)), [()] * outputs
    head_names = tuple(head_names)
    if len(head_names) == 1000:
        imagenet = listed("imagenet2012")
        if [plain(name) for name in head_names] == [plain(own) for _, own in imagenet]:
            return head_names, imagenet
    has_ids = [any(map(_ID.fullmatch, names)) for names in (head_names, data_names)]
    if has_ids[0] == has_ids[1]:
        return head_names, [(name,) for name in head_names]
    partners = {}
    for number, name in listed("imagenet2012"):
        partners[number] = name
        # If two classes have one name, neither is matched.
        partners[plain(name)] = None if plain(name) in partners else number
    counterparts = [
        partners.get(name) or partners.get(plain(name)) for name in head_names
    ]
    return head_names, [
        (name, partner) if partner else (name,)
        for name, partner in zip(head_names, counterparts, strict=True)
    ]


def _find(name, tables):
    for table, spelling in zip(tables, _SPELLINGS, strict=True):
        if places := table.get(spelling(name)):
            return places
    return []


def _instead(name, places, aliases):
    """Returns how to rename a class whose name several classes of a model have."""
    ids = [
        alias for place in places for alias in aliases[place] if _ID.fullmatch(alias)
    ]
    if len(ids) == len(places):
        return f"Rename {name!r} to the WordNet id that it means: {' or '.join(ids)}."
    others = " and ".join(f"{place} ({aliases[place][0]!r})" for place in places)
    return (
        f"{name!r} is like the model's classes {others}: give these different names "
        "in class_names.txt beside the model, and the data set's the one that is meant."
    )


def _named(classes):
    return named([*map(class_text, classes)])


def _is_number(name):
    return name.isascii() and name.isdecimal()


# Names are compared in these ways, the strictest first.
_SPELLINGS: tuple[Callable, ...] = (
    str,
    plain,
    lambda name: plain(name.partition(",")[0]),
)

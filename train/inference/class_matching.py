"""Matches the classes of a head to those of a data set, by name."""

import collections
import difflib
import re

import numpy as np

import zoo
from train.common.errors import RunError
from train.data.sources.splits import named

IMAGENET_HEADS = {1000: "imagenet2012", 21843: "imagenet21k"}


def match_classes(outputs, head_names, data_names):
    """Returns the names of a head's classes, and an int32 array: of each label a class.

    Matched by name, ignoring case, spaces, hyphens and underscores. A head without
    names (`head_names` is None) of 1,000 or 21,843 classes has ImageNet's, matched by
    WordNet id (`n01440764`) or name (`tench`). An equal number of classes does not mean
    an equal order.
    """
    if head_names is not None:
        aliases = [(name,) for name in head_names]
    elif outputs in IMAGENET_HEADS:
        aliases = _imagenet(outputs)
    else:
        raise RunError(
            f"The model has {outputs} classes, whose names are not known, and the data "
            f"set has {len(data_names)}: write the names to a file class_names.txt "
            "beside the model's, one per line in the order of its outputs, or pass a "
            "run's directory or a published model."
        )
    places = collections.defaultdict(list)
    for place, names in enumerate(aliases):
        for name in {_plain(name) for name in names}:
            places[name].append(place)
    unknown = [name for name in data_names if len(places[_plain(name)]) != 1]
    if unknown:
        known = named([names[-1] for names in aliases])
        raise RunError(
            f"{len(unknown)} of the data set's {len(data_names)} classes are not, or "
            f"not clearly, among the model's {outputs}: {named(unknown)}; the model's "
            f"are {known}. Rename the data set's, give a model that was trained on "
            "them, or write the right names to class_names.txt beside the model."
        )
    found = [places[_plain(name)][0] for name in data_names]
    return tuple(names[-1] for names in aliases), np.array(found, dtype="int32")


def imagenet_names(outputs):
    """Returns a tuple of the names of ImageNet's 1,000 or 21,843 classes."""
    return tuple(name for _, name in _imagenet(outputs))


def find_class(wanted, outputs, head_names):
    """Returns the index in a head of the class with a name or number `wanted`, a str.

    The other arguments are those of `match_classes`.
    """
    names = [_plain(name) for name in head_names or ()]
    places = [place for place, name in enumerate(names) if name == _plain(wanted)]
    if not places and wanted.isdecimal() and int(wanted) < outputs:
        return int(wanted)
    if len(places) == 1:
        return places[0]
    if places:
        numbered = " and ".join(map(str, places))
        raise RunError(
            f"The classes {numbered} are both called {wanted!r}: give the number."
        )
    numbers = f"a number from 0 to {outputs - 1}"
    refusal = f"{wanted!r} is not one of the model's {outputs:,} classes"
    if not names:
        raise RunError(f"{refusal}, whose names are not known: give {numbers}.")
    near = difflib.get_close_matches(_plain(wanted), names, n=3)
    near = [head_names[names.index(name)] for name in near] or list(head_names)
    raise RunError(f"{refusal}: give one such as {named(near)}, or {numbers}.")


def _imagenet(outputs):
    if outputs not in IMAGENET_HEADS:
        raise RunError(f"The model has {outputs:,} classes, whose names are not known.")
    try:
        return zoo.class_names(IMAGENET_HEADS[outputs])
    except zoo.StoreError as error:
        raise RunError(
            f"The names of the model's classes are needed: {error}"
        ) from error


def _plain(name):
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())

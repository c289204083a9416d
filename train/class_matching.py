"""Which output of a head is which class of a data set."""

import collections
import re

import numpy as np

import zoo
from train.errors import RunError

IMAGENET_HEADS = {1000: "imagenet2012", 21843: "imagenet21k"}
_NAMED = 10


def match_classes(outputs, head_names, data_names):
    """Finds the classes of a data set among those of a head.

    Names decide, but for capitals, spaces and hyphens. The 1,000 and 21,843 classes of
    ImageNet go by WordNet id (`n01440764`) or by name (`tench`). A head without names
    that has as many classes is taken to be in the data set's order.

    Args:
        outputs: int, the classes of the head.
        head_names: sequence of str in the order of the head, None where unknown.
        data_names: sequence of str in the order of the data set's labels.

    Returns:
        Tuple of the names of the head's classes, and an int32 array of the place in the
        head of each label.

    Raises:
        RunError: a class of the data set is none of the head's.

    Example:

    >>> names, places = match_classes(3, ["cat", "dog", "Red fox"], ["red_fox", "cat"])
    >>> names, places.tolist()
    (('cat', 'dog', 'Red fox'), [2, 0])
    """
    if head_names is None and outputs == len(data_names):
        return tuple(data_names), np.arange(outputs, dtype="int32")
    if head_names is not None:
        aliases = [(name,) for name in head_names]
    elif outputs in IMAGENET_HEADS:
        aliases = _imagenet(IMAGENET_HEADS[outputs])
    else:
        raise RunError(
            f"The model tells {outputs} classes apart, whose names are not known, and "
            f"the data set has {len(data_names)}: pass a run's directory, a published "
            "model, or a data set of the model's classes."
        )
    places = collections.defaultdict(list)
    for place, names in enumerate(aliases):
        for name in {_plain(name) for name in names}:
            places[name].append(place)
    unknown = [name for name in data_names if len(places[_plain(name)]) != 1]
    if unknown:
        known = _some([names[-1] for names in aliases])
        raise RunError(
            f"{len(unknown)} of the data set's {len(data_names)} classes are not, or "
            f"not clearly, among the {outputs} that the model tells apart: "
            f"{_some(unknown)}; the model's are {known}. Rename the data set's, or "
            "give a model that was trained on them."
        )
    found = [places[_plain(name)][0] for name in data_names]
    return tuple(names[-1] for names in aliases), np.array(found, dtype="int32")


def _imagenet(data_set):
    try:
        return zoo.class_names(data_set)
    except zoo.StoreError as error:
        raise RunError(
            f"The names of the model's classes are needed: {error}"
        ) from error


def _plain(name):
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def _some(names):
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

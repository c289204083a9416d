"""The classes of a model: their names, those predicted, and those of a data set."""

import collections
import dataclasses
import difflib
import re

import numpy as np
from scipy.special import softmax

import keras_vit
import zoo
from train.common.errors import RunError
from train.data.sources.splits import named
from train.inference.model_writing import has_head

IMAGENET_HEADS = {1000: "imagenet2012", 21843: "imagenet21k"}
_PROBABILITIES = ("softmax", "sigmoid")


@dataclasses.dataclass(frozen=True)
class Classes:
    """The classes of a model, in the order of its outputs.

    Names that are unknown are such as "class 17"; `why_no_names` and `why_none` are the
    reasons where the model has no names or no classes. `activation` is the head's.
    """

    names: tuple[str, ...] = ()
    why_no_names: str | None = None
    activation: str = "linear"
    why_none: str | None = None

    def find(self, wanted):
        """Returns number and name of the class that has a name, or a number as str."""
        if self.why_none is not None:
            raise RunError(f"{self.why_none} Leave --class out.")
        outputs = len(self.names)
        known = self.names if self.why_no_names is None else ()
        names = [_plain(name) for name in known]
        places = [place for place, name in enumerate(names) if name == _plain(wanted)]
        if not places and wanted.isdecimal() and int(wanted) < outputs:
            places = [int(wanted)]
        if len(places) == 1:
            return places[0], self.names[places[0]]
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
        near = [known[names.index(name)] for name in near] or known
        raise RunError(f"{refusal}: give one such as {named(near)}, or {numbers}.")

    def predict(self, outputs):
        """Returns probabilities and the five most likely classes of each image.

        These are lists of (number, name, probability). Raises a ValueError where there
        are no classes, the outputs are not finite, or all classes equally likely, as
        with a new head.
        """
        if self.why_none is not None:
            raise ValueError(self.why_none)
        is_probability = self.activation in _PROBABILITIES
        probabilities = outputs if is_probability else softmax(outputs, axis=1)
        if not np.isfinite(probabilities).all():
            raise ValueError(
                "The model's outputs are not finite: take an earlier checkpoint."
            )
        return probabilities, keras_vit.decode_predictions(
            probabilities, top=5, class_names=self.names
        )


def classes_of(loaded):
    """Returns the `Classes` of a `LoadedModel`."""
    model, shape, why_none = loaded.model, loaded.model.output_shape[1:], None
    last = model.layers[-1]
    activation = last.activation.__name__ if hasattr(last, "activation") else "linear"
    if not has_head(model):
        why_none = f"has no head for classes: it gives features of shape {shape}."
    elif len(shape) != 1:
        why_none = (
            "has a head for each token, not one for the image: its outputs are of "
            f"shape {shape}."
        )
    elif activation not in ("linear", *_PROBABILITIES):
        why_none = (
            f"ends in {activation}, which gives no probabilities: save it with "
            "classifier_activation=None."
        )
    if why_none is not None:
        return Classes(why_none=f"The model {loaded.name} {why_none}")
    names, why_no_names = loaded.class_names, None
    if names is None:
        try:
            names = [name.replace("_", " ") for name in imagenet_names(shape[0])]
        except RunError as error:
            names = [f"class {number}" for number in range(shape[0])]
            why_no_names = str(error)
    return Classes(tuple(names), why_no_names, activation)


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

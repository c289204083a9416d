"""The classes of a model: their names, those predicted, and those of a data set."""

import collections
import dataclasses
import difflib
import re
import unicodedata

import numpy as np

import keras_vit
import zoo
from keras_vit.structure import head_activation, problem_type_of
from train.common.errors import RunError
from train.models.run_directory import how_to_name
from zoo.head import NUMBERS, PROBABILITIES, Answers, numbered_names
from zoo.text import named

_ID = re.compile(r"n\d{8}")


@dataclasses.dataclass(frozen=True)
class Classes(Answers):
    """The classes of a model, in the order of its outputs.

    Names that are unknown are such as "class 17"; `why_no_names` and `why_none` are the
    reasons where the model has no names or no classes. One for numbers has no classes,
    and `names` of its numbers.
    """

    why_no_names: str | None = None
    why_none: str | None = None

    def find(self, wanted, remedy=""):
        """Returns number and name of the class that has a name, or a number as str.

        `remedy` is what to do where the model has no classes, a sentence.
        """
        if self.why_none is not None:
            raise RunError(f"{self.why_none} {remedy}".rstrip())
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
        probabilities = self.values(outputs)
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
    activation = head_activation(model)
    if activation is None:
        why_none = f"has no head for classes: it gives features of shape {shape}."
    elif len(shape) != 1:
        why_none = (
            "has a head for each token, not one for the image: its outputs are of "
            f"shape {shape}."
        )
    elif activation not in ("linear", *PROBABILITIES):
        why_none = (
            f"ends in {activation}, which gives no probabilities: save it with "
            "classifier_activation=None."
        )
    if why_none is not None:
        return Classes(why_none=f"The model {loaded.name} {why_none}")
    problem_type = problem_type_of(model)
    names, why_no_names = names_of(loaded), None
    if problem_type == NUMBERS:
        why_none = (
            f"The model {loaded.name} answers with numbers, not with classes: the "
            f"problem_type of its head is {NUMBERS!r}."
        )
    elif names is None:
        why_no_names = (
            f"The model has {shape[0]:,} classes, whose names are not known: "
            f"{how_to_name(shape[0])}."
        )
    return Classes(
        names or numbered_names(shape[0], problem_type),
        problem_type,
        activation,
        are_logits=activation == "linear",
        why_no_names=why_no_names,
        why_none=why_none,
    )


def names_of(loaded):
    """Returns the names of a `LoadedModel`'s classes, a tuple, None where unknown."""
    names = loaded.class_names
    if isinstance(names, str):
        return tuple(name for _, name in _list(names))
    return names


def match_classes(outputs, head_names, data_names, numbers=False):
    """Returns the names of a head's classes, and an int32 array: of each label a class.

    Matched by name, ignoring case, spaces, hyphens, underscores and how accents are
    encoded (NFC or NFD); of several synonyms with commas between them the first will
    do. `head_names` may be the name of a list of `zoo.class_names`. WordNet ids
    (`n01440764`) and names (`tench`) of ImageNet match each other. An equal number of
    classes does not mean an equal order. With `numbers`, a data set whose classes are
    all numbers, and none the name of a class of the model, has places in the head's
    outputs, from 0.

    Raises:
        RunError: a name is not, or not clearly, one of the model's.
    """
    shown, aliases = _aliases(outputs, head_names, data_names)
    tables = [collections.defaultdict(list) for _ in _SPELLINGS]
    for table, spelling in zip(tables, _SPELLINGS, strict=True):
        for place, names in enumerate(aliases):
            for key in {spelling(name) for name in names}:
                table[key].append(place)
    found = [_find(name, tables) for name in data_names]
    if numbers and not any(found) and all(map(_is_number, data_names)):
        if (most := max(map(int, data_names))) < outputs:
            return shown, np.array([int(name) for name in data_names], dtype="int32")
        raise RunError(
            f"The data set's classes are numbers up to {most}, but those of "
            f"the model's {outputs} classes count from 0 to {outputs - 1}: rename "
            "them, or call them by the names of the model's classes."
        )
    twice = [name for name, own in zip(data_names, found, strict=True) if len(own) > 1]
    if twice:
        places = found[data_names.index(twice[0])]
        raise RunError(
            f"{len(twice)} of the data set's {len(data_names)} classes are names of "
            f"several of the model's: {named(twice)}. "
            f"{_instead(twice[0], places, aliases)}"
        )
    if head_names is None:
        raise RunError(
            f"The model has {outputs} classes, whose names are not known, and the data "
            f"set has {len(data_names)}: {how_to_name(outputs)}, or pass a run's "
            "directory or a published model."
        )
    unknown = [name for name, own in zip(data_names, found, strict=True) if not own]
    if unknown:
        raise RunError(
            f"{len(unknown)} of the data set's {len(data_names)} classes are not "
            f"among the model's {outputs}: {named(unknown)}; the model's are "
            f"{named(shown)}. Rename the data set's, give a model that was trained on "
            "them, or write the right names to class_names.txt beside the model."
        )
    return shown, np.array([own[0] for own in found], dtype="int32")


def by_number(class_names, places, data_names):
    """Returns whether `match_classes` took the data set's classes for numbers."""
    matched = zip(places, data_names, strict=True)
    return all(
        _is_number(name) and _plain(class_names[place]) != _plain(name)
        for place, name in matched
    )


def _aliases(outputs, head_names, data_names):
    """Returns the names to show of a head's classes, and of each a tuple of all."""
    if isinstance(head_names, str):
        aliases = _list(head_names)
        return tuple(name for _, name in aliases), aliases
    if head_names is None:
        return tuple(f"class {number}" for number in range(outputs)), [()] * outputs
    head_names = tuple(head_names)
    if len(head_names) == 1000:
        imagenet = _list("imagenet2012")
        if [_plain(name) for name in head_names] == [
            _plain(own) for _, own in imagenet
        ]:
            return head_names, imagenet
    has_ids = [any(map(_ID.fullmatch, names)) for names in (head_names, data_names)]
    if has_ids[0] == has_ids[1]:
        return head_names, [(name,) for name in head_names]
    partners = {}
    for number, name in _list("imagenet2012"):
        partners[number] = name
        # Of two classes with one name, neither has it.
        partners[_plain(name)] = None if _plain(name) in partners else number
    found = [partners.get(name) or partners.get(_plain(name)) for name in head_names]
    return head_names, [
        (name, partner) if partner else (name,)
        for name, partner in zip(head_names, found, strict=True)
    ]


def _find(name, tables):
    for table, spelling in zip(tables, _SPELLINGS, strict=True):
        if places := table.get(spelling(name)):
            return places
    return []


def _instead(name, places, aliases):
    """Returns what to call a class whose name several classes of a model have."""
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


def _list(name):
    try:
        return zoo.class_names(name)
    except zoo.StoreError as error:
        raise RunError(
            f"The names of the model's classes are needed: {error}"
        ) from error


def _plain(name):
    # In names of folders macOS has accents as characters of their own.
    name = unicodedata.normalize("NFC", name)
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def _is_number(name):
    return name.isascii() and name.isdecimal()


# What is compared of names, the strictest first.
_SPELLINGS = (str, _plain, lambda name: _plain(name.partition(",")[0]))

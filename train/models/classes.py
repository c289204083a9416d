"""The classes of a model: their names, and those predicted."""

import dataclasses
import difflib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

import keras_vit
import zoo
from keras_vit.structure import head_activation, head_of, problem_type_of
from train.common.errors import RunError
from train.models.loaded_model import LoadedModel
from train.models.run_directory import how_to_name
from zoo.common.safe_text import named
from zoo.network.head import NUMBERS, PROBABILITIES, Answers, numbered_names


@dataclasses.dataclass(frozen=True)
class Classes(Answers):
    """The classes of a model, in the order of its outputs.

    Names that are unknown are such as "class 17"; `why_no_names` and `why_none` are the
    reasons where the model has no names or no classes. One for numbers has no classes,
    and `names` of its numbers.
    """

    why_no_names: str | None = None
    why_none: str | None = None

    def find(self, wanted: str, remedy: str = "") -> tuple[int, str]:
        """Returns number and name of the class that has a name, or a number as str.

        `remedy` is what to do where the model has no classes, a sentence.
        """
        if self.why_none is not None:
            raise RunError(f"{self.why_none} {remedy}".rstrip())
        outputs = len(self.names)
        known = self.names if self.why_no_names is None else ()
        names = [plain(name) for name in known]
        places = [place for place, name in enumerate(names) if name == plain(wanted)]
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
        near = difflib.get_close_matches(plain(wanted), names, n=3)
        near = [known[names.index(name)] for name in near] or known
        raise RunError(f"{refusal}: give one such as {named(near)}, or {numbers}.")

    def predict(self, outputs: np.ndarray) -> tuple[np.ndarray, list[list[tuple]]]:
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


def classes_of(loaded: LoadedModel) -> Classes:
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
        thresholds=getattr(head_of(model), "thresholds", ()),
        why_no_names=why_no_names,
        why_none=why_none,
    )


def names_of(loaded: LoadedModel) -> tuple[str, ...] | None:
    """Returns the names of a `LoadedModel`'s classes, None where unknown."""
    names = loaded.class_names
    if isinstance(names, str):
        return tuple(name for _, name in listed(names))
    return names


def listed(name: str) -> Sequence[tuple[str, str]]:
    """Returns the (WordNet id, name) of each class in a list of `zoo.class_names`."""
    try:
        return zoo.class_names(name)
    except zoo.StoreError as error:
        raise RunError(
            f"The names of the model's classes are needed: {error}"
        ) from error


def plain(name: str) -> str:
    """Returns a name to match by: without case, and with one kind of space."""
    # In names of folders macOS has accents as characters of their own.
    name = unicodedata.normalize("NFC", name)
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())

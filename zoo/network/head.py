"""What the head of a classifier answers, and how photos come to its model."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from zoo.common.safe_text import brief, is_safe

# As transformers calls them: one class of several by a softmax, each class for itself
# by a sigmoid, or numbers.
ONE_CLASS = "single_label_classification"
SEVERAL_CLASSES = "multi_label_classification"
NUMBERS = "regression"
PROBLEM_TYPES = (ONE_CLASS, SEVERAL_CLASSES, NUMBERS)
# The name of the last output of a head for masks.
NO_OBJECT = "no object"
# Activations of heads whose outputs are probabilities.
PROBABILITIES = ("softmax", "sigmoid")
# The lists of `zoo.class_names`, and how many names they have.
CLASS_LISTS = {"imagenet2012": 1000, "imagenet21k": 21843}


@dataclasses.dataclass(frozen=True)
class Answers:
    """What the outputs of a model answer.

    Args:
        names: tuple of str, of the classes or numbers in the order of the outputs.
        problem_type: one of `PROBLEM_TYPES`.
        activation: str, what the head ends in: "linear", "softmax" or "sigmoid".
        are_logits: bool, whether outputs are what goes into the activation.
        thresholds: tuple of float, the probability from which on a photo has a class,
            of each; empty where nothing says it.
    """

    names: tuple[str, ...] = ()
    problem_type: str = ONE_CLASS
    activation: str = "linear"
    are_logits: bool = True
    thresholds: tuple[float, ...] = ()

    def check(self, model: str) -> None:
        """Raises a ValueError, with the model's name, if every image has one class."""
        is_one = len(self.names) == 1 and self.problem_type == ONE_CLASS
        if is_one and self.activation != "sigmoid":
            raise ValueError(
                f"The model {model} has one class, {self.names[0]}, which every photo "
                "would be with 100%: if its output is a number, or a class that a "
                'photo is of or not, set the problem_type of its head to "regression" '
                'or "multi_label_classification".'
            )

    def values(self, outputs: np.ndarray) -> np.ndarray:
        """Returns the probabilities or numbers (..., outputs) that outputs mean."""
        if not self.are_logits:
            return outputs
        if self.activation == "sigmoid" or self.problem_type == SEVERAL_CLASSES:
            return sigmoid(outputs)
        return outputs if self.problem_type == NUMBERS else softmax(outputs)

    def given(self, values: np.ndarray) -> list[list[int]]:
        """Returns the classes whose probabilities, `values`, reach their thresholds.

        They are lists of places for the rows, the most probable first.

        >>> answers = Answers(tuple("abc"), SEVERAL_CLASSES, thresholds=(0.5, 0.2, 0.1))
        >>> answers.given(np.array([[0.4, 0.3, 0.6]]))
        [[2, 1]]
        """
        order = np.argsort(-values, axis=1, kind="stable").tolist()
        reach = values >= np.array(self.thresholds)
        return [
            [place for place in own if row[place]]
            for row, own in zip(reach, order, strict=True)
        ]

    def best(self, values: np.ndarray, top: int) -> list[list[tuple[int, float]]]:
        """Returns the `likeliest` of `values`, or all numbers in their order."""
        if self.problem_type == NUMBERS:
            return [list(enumerate(map(float, row))) for row in values]
        return likeliest(values, top)


@dataclasses.dataclass(frozen=True)
class Head:
    """What a file, the settings beside it or a card say of a head.

    Each is None where nothing says it.

    Args:
        class_names: the names of the outputs in their order, or the name of a list of
            `zoo.class_names`.
        problem_type: one of `PROBLEM_TYPES`; None means `ONE_CLASS`.
        preparation: how photos come to the model's size, see `zoo.photos.prepare`;
            also of models without a head.
        bits: how many the values of photos in files of 16 bits have, see
            `zoo.photos.decode`; also of models without a head.
    """

    class_names: tuple[str, ...] | str | None = None
    problem_type: str | None = None
    preparation: str | None = None
    bits: int | None = None


def check_problem_type(problem_type: str) -> str:
    """Returns one of `PROBLEM_TYPES`; raises a ValueError for anything else."""
    if problem_type not in PROBLEM_TYPES:
        raise ValueError(
            f"problem_type must be one of {', '.join(PROBLEM_TYPES)}, got "
            f"{brief(problem_type)}."
        )
    return problem_type


def check_thresholds(thresholds: Sequence[float]) -> tuple[float, ...]:
    """Returns probabilities as a tuple; raises a ValueError for anything else."""
    try:
        checked = tuple(float(one) for one in thresholds)
    except (TypeError, ValueError):
        checked = (-1.0,)
    if not all(0 <= one <= 1 for one in checked):
        raise ValueError(
            f"thresholds must be probabilities, one per class or none, got "
            f"{brief(thresholds)}."
        )
    return checked


def checked_names(
    names: Sequence[str] | str, classes: int | None = None
) -> tuple[str, ...] | str:
    """Returns names of classes as a tuple of str, or the name of a list of them.

    Raises a ValueError for what is neither, and unless there are `classes` names.
    """
    checked: tuple[str, ...] | str
    if isinstance(names, str) and names in CLASS_LISTS:
        checked, count = names, CLASS_LISTS[names]
    else:
        checked = _texts(names)
        count = len(checked)
    if classes is not None and count != classes:
        raise ValueError(
            f"class_names has {count:,} names for {classes:,} classes: pass one name "
            "per class, in the order of the outputs."
        )
    return checked


def numbered_names(outputs: int, problem_type: str) -> tuple[str, ...]:
    """Returns names of outputs that have none."""
    kind = "output" if problem_type == NUMBERS else "class"
    return tuple(f"{kind} {number}" for number in range(outputs))


def list_of(classes: int) -> str | None:
    """Returns the list of names that has as many, such as `"imagenet2012"`, or None.

    Only somebody who knows the classes can say that they are those of the list.
    """
    return next((name for name, n in CLASS_LISTS.items() if n == classes), None)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the probabilities of classes, along the last axis, in the same dtype."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the probability of each class for itself, in the same dtype."""
    # No power overflows.
    small = np.exp(-np.abs(logits))
    return np.where(logits < 0, small, 1) / (1 + small)


def likeliest(scores: np.ndarray, top: int) -> list[list[tuple[int, float]]]:
    """Returns the `top` largest scores of each image of (images, classes).

    Each is a (class, score), the largest first, of equal ones the first class.
    """
    places = np.argsort(-scores, axis=1, kind="stable")[:, :top].tolist()
    return [
        [(place, float(row[place])) for place in own]
        for row, own in zip(scores, places, strict=True)
    ]


def _texts(names):
    if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__"):
        raise ValueError(
            f"class_names must be a sequence of str, or one of "
            f"{', '.join(CLASS_LISTS)}, got {brief(names)}: pass a list of one name "
            "per class."
        )
    names = tuple(names)
    for place, name in enumerate(names):
        if not isinstance(name, str) or not is_safe(name):
            raise ValueError(
                f"class_names[{place}] is {brief(name)}: names are texts without line "
                "breaks and other control characters."
            )
    # NumPy has its own kind of str.
    return tuple(map(str, names))

"""What the head of a classifier answers, and how photos come to its model."""

import dataclasses

import numpy as np

from zoo.text import brief, is_safe

# As transformers calls them: one class of several by a softmax, each class for itself
# by a sigmoid, or numbers.
ONE_CLASS = "single_label_classification"
SEVERAL_CLASSES = "multi_label_classification"
NUMBERS = "regression"
PROBLEM_TYPES = (ONE_CLASS, SEVERAL_CLASSES, NUMBERS)
# The lists of `zoo.class_names`, and how many names they have.
CLASS_LISTS = {"imagenet2012": 1000, "imagenet21k": 21843}


@dataclasses.dataclass(frozen=True)
class Head:
    """What a file, the settings beside it or a card say of a head.

    Each is None where nothing says it.

    Args:
        class_names: tuple of str, the names of the outputs in their order, or the
            name of a list of `zoo.class_names`.
        problem_type: one of `PROBLEM_TYPES`; None means `ONE_CLASS`.
        preparation: how photos come to the model's size, see `zoo.photos.prepare`;
            also of models without a head.
        bits: how many the values of photos in files of 16 bits have, see
            `zoo.photos.decode`; also of models without a head.

    Example:
        >>> Head(("cat", "dog")).problem_type is None
        True
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


def checked_names(names, classes: int | None = None) -> tuple[str, ...] | str:
    """Returns names of classes as a tuple of str, or the name of a list of them.

    Args:
        names: sequence of str, or a key of `CLASS_LISTS`.
        classes: int, how many there must be; None for any number.

    Raises:
        ValueError: they are no such names, or more or fewer.

    Example:
        >>> checked_names(["cat", "dog"], 2)
        ('cat', 'dog')
    """
    count = CLASS_LISTS.get(names) if isinstance(names, str) else None
    if count is None:
        names = _texts(names)
        count = len(names)
    if classes is not None and count != classes:
        raise ValueError(
            f"class_names has {count:,} names for {classes:,} classes: pass one name "
            "per class, in the order of the outputs."
        )
    return names


def list_of(classes: int) -> str | None:
    """Returns the list of names that has as many, such as `"imagenet2012"`, or None.

    Only somebody who knows the classes can say that they are those of the list.

    Example:
        >>> list_of(1000), list_of(10)
        ('imagenet2012', None)
    """
    return next((name for name, n in CLASS_LISTS.items() if n == classes), None)


def softmax(logits):
    """Returns the probabilities of classes.

    Args:
        logits: float array (..., classes).

    Returns:
        Array of the same shape and dtype, whose rows add up to 1.

    Example:
        >>> softmax(np.array([[0.0, 1000.0], [3.0, 3.0]]))
        array([[0. , 1. ],
               [0.5, 0.5]])
    """
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def sigmoid(logits):
    """Returns the probability of each class for itself.

    Args:
        logits: float array.

    Returns:
        Array of the same shape and dtype.

    Example:
        >>> sigmoid(np.array([0.0, -1000.0]))
        array([0.5, 0. ])
    """
    # No power overflows.
    small = np.exp(-np.abs(logits))
    return np.where(logits < 0, small, 1) / (1 + small)


def answers_of(logits, problem_type):
    """Returns what logits answer: probabilities of classes, or the numbers they are.

    Args:
        logits: float array (..., outputs).
        problem_type: one of `zoo.head.PROBLEM_TYPES`.

    Returns:
        Array of the same shape and dtype.

    Example:
        >>> answers_of(np.array([0.0, 0.0]), "single_label_classification")
        array([0.5, 0.5])
    """
    if problem_type == NUMBERS:
        return logits
    return (sigmoid if problem_type == SEVERAL_CLASSES else softmax)(logits)


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
    # Those of NumPy are their own kind of str.
    return tuple(map(str, names))

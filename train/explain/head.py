"""What a model says of photos."""

import dataclasses

import numpy as np
from scipy.special import softmax

import keras_vit
from train.common.errors import RunError
from train.inference.class_matching import find_class, imagenet_names
from train.inference.heads import has_head

BEST = 5
_PROBABILITIES = ("softmax", "sigmoid")


@dataclasses.dataclass(frozen=True)
class Head:
    """The classes that a model tells apart.

    Args:
        names: tuple of str in the order of the outputs, such as "class 17" where the
            names are unknown.
        why_no_names: str, why they are unknown; None where they are known.
        activation: str, what the outputs went through.
    """

    names: tuple[str, ...]
    why_no_names: str | None
    activation: str

    def find(self, wanted):
        """Finds a class by its name or number.

        Args:
            wanted: str.

        Returns:
            Tuple of its number and its name.

        Raises:
            RunError: there is no such class, or several.
        """
        known = self.names if self.why_no_names is None else None
        number = find_class(wanted, len(self.names), known)
        return number, self.names[number]

    def probabilities(self, outputs):
        """Returns the probabilities of the classes, float32 (images, classes).

        Args:
            outputs: float32 array (images, classes), what the model puts out.
        """
        if self.activation in _PROBABILITIES:
            return outputs
        return softmax(outputs, axis=1)

    def best(self, probabilities):
        """Returns the most likely classes of each image, the best first.

        Args:
            probabilities: float array (images, classes).

        Returns:
            List an image of (number, name, probability).

        Raises:
            ValueError: they are not finite, or all classes are equally likely, as they
                are with a new head.

        Example:

        >>> head = Head(("cat", "dog"), None, "linear")
        >>> head.best(np.array([[0.25, 0.75]]))
        [[(1, 'dog', 0.75), (0, 'cat', 0.25)]]
        """
        if not np.isfinite(probabilities).all():
            raise ValueError(
                "The model answers with numbers that are not finite: take an earlier "
                "checkpoint."
            )
        return keras_vit.decode_predictions(
            probabilities, top=BEST, class_names=self.names
        )


def head_of(given):
    """Returns the head of a model.

    Args:
        given: `train.inference.given_model.GivenModel`.

    Returns:
        `Head`.

    Raises:
        ValueError: it has none that names the class of an image.
    """
    model = given.model
    if not has_head(model):
        raise ValueError(
            f"The model {given.name} has no head for classes: it gives features of "
            f"shape {model.output_shape[1:]}."
        )
    if len(model.output_shape) != 2:
        raise ValueError(
            f"The model {given.name} has a head for each token, not one for the image: "
            f"its outputs are of shape {model.output_shape[1:]}."
        )
    activation = model.layers[-1].activation.__name__
    if activation not in ("linear", *_PROBABILITIES):
        raise ValueError(
            f"The model {given.name} ends in {activation}, which gives no "
            "probabilities: save it with classifier_activation=None."
        )
    count, names, why = model.output_shape[1], given.class_names, None
    if names is None:
        try:
            names = [name.replace("_", " ") for name in imagenet_names(count)]
        except RunError as error:
            names, why = [f"class {number}" for number in range(count)], str(error)
    return Head(tuple(names), why, activation)

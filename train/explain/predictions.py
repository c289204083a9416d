"""The classes that a model predicts for photos, by name."""

import dataclasses

import numpy as np
from scipy.special import softmax

import keras_vit
from train.common.errors import RunError
from train.inference.class_matching import find_class, imagenet_names
from train.inference.heads import has_head

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
        """Returns number and name of the class that `--class` names."""
        if self.why_none is not None:
            raise RunError(f"{self.why_none} Leave --class out.")
        known = self.names if self.why_no_names is None else None
        number = find_class(wanted, len(self.names), known)
        return number, self.names[number]

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
    activation = model.layers[-1].activation.__name__ if has_head(model) else None
    if activation is None:
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
            names = [name.replace("_", " ") for name in imagenet_names(*shape)]
        except RunError as error:
            names = [f"class {number}" for number in range(*shape)]
            why_no_names = str(error)
    return Classes(tuple(names), why_no_names, activation)

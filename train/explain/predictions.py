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

    Where the names are unknown they are such as "class 17", and `why_no_names` says
    why. `activation` is that of the head.
    """

    names: tuple[str, ...]
    why_no_names: str | None
    activation: str

    def find(self, wanted):
        """Returns number and name of the class that `--class` names."""
        known = self.names if self.why_no_names is None else None
        number = find_class(wanted, len(self.names), known)
        return number, self.names[number]

    def predict(self, outputs):
        """Returns probabilities and the five most likely classes of each image.

        These are lists of (number, name, probability). Raises a ValueError where the
        outputs are not finite, or all classes equally likely, as with a new head.
        """
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
    """Returns the `Classes` of a `LoadedModel`; a ValueError where it has no head."""
    model = loaded.model
    if not has_head(model):
        raise ValueError(
            f"The model {loaded.name} has no head for classes: it gives features of "
            f"shape {model.output_shape[1:]}."
        )
    if len(model.output_shape) != 2:
        raise ValueError(
            f"The model {loaded.name} has a head for each token, not one for the "
            f"image: its outputs are of shape {model.output_shape[1:]}."
        )
    activation = model.layers[-1].activation.__name__
    if activation not in ("linear", *_PROBABILITIES):
        raise ValueError(
            f"The model {loaded.name} ends in {activation}, which gives no "
            "probabilities: save it with classifier_activation=None."
        )
    count, names, why = model.output_shape[1], loaded.class_names, None
    if names is None:
        try:
            names = [name.replace("_", " ") for name in imagenet_names(count)]
        except RunError as error:
            names, why = [f"class {number}" for number in range(count)], str(error)
    return Classes(tuple(names), why, activation)

"""The head of a classifier, which knows its classes and how photos come to it."""

from collections.abc import Sequence
from typing import Any

import keras

from zoo.network.head import (
    ONE_CLASS,
    check_problem_type,
    check_thresholds,
    checked_names,
)
from zoo.network.preparation import check_bits, check_preparation

# An attribute -> the function that returns its values, and refuses others.
_CHECKS = {
    "preparation": check_preparation,
    "problem_type": check_problem_type,
    "bits": check_bits,
    "thresholds": check_thresholds,
}


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassificationHead(keras.layers.Dense):
    """A dense layer with the names of its classes, which are saved with the model.

    It computes what `keras.layers.Dense` does and has the same variables. The
    attributes can be set at any time.

    Args:
        units: int, the number of classes.
        class_names: None, or a sequence of str, one per class, of which the attribute
            is a tuple. Names may occur twice, as ImageNet's do. Or the name of a list
            of `zoo.class_names`, `"imagenet2012"` or `"imagenet21k"`.
        preparation: how evaluation brings photos to the model's size, see
            `zoo.photos.prepare`.
        problem_type: what the outputs answer: `"single_label_classification"`, one
            class of several, `"multi_label_classification"`, each class for itself, or
            `"regression"`, numbers. Where the activation is linear, probabilities are
            their softmax or their sigmoid.
        bits: None, or how many bits the values of photos in files of 16 bits have, see
            `zoo.photos.decode`.
        thresholds: of several classes, the probability from which on a photo has each;
            empty for none.
        **kwargs: those of `keras.layers.Dense`.

    Call arguments:
        features: float tensor (..., features).

    Returns:
        Float tensor (..., units).

    Raises:
        ValueError: there are more or fewer names than classes, a name is no text or
            has line breaks or other control characters, the preparation or the type
            is unknown, bits are not 8 to 16, or thresholds are not one probability
            per class.

    Source:
        Paper section 3.1: the classification head is one linear layer.

    Example:
        >>> head = ClassificationHead(2, class_names=["cat", "dog"])
        >>> tuple(head(keras.ops.ones((1, 3))).shape), head.class_names
        ((1, 2), ('cat', 'dog'))
    """

    def __init__(
        self,
        units: int,
        *,
        class_names: Sequence[str] | str | None = None,
        preparation: str = "squash",
        problem_type: str = ONE_CLASS,
        bits: int | None = None,
        thresholds: Sequence[float] = (),
        **kwargs: Any,
    ):
        super().__init__(units, **kwargs)
        self.class_names = class_names
        self.preparation = preparation
        self.problem_type = problem_type
        self.bits = bits
        self.thresholds = thresholds

    def __setattr__(self, name, value):
        if name == "class_names" and value is not None:
            value = checked_names(value, self.units)
        elif name in _CHECKS:
            value = _CHECKS[name](value)
            if name == "thresholds" and len(value) not in (0, self.units):
                raise ValueError(
                    f"thresholds has {len(value):,} numbers for {self.units:,} "
                    "classes: pass one per class, in the order of the outputs, or none."
                )
        super().__setattr__(name, value)

    def quantize(
        self, mode: str | None = None, type_check: bool = True, **kwargs: Any
    ) -> None:
        # Keras refuses classes derived from its own, which may compute otherwise.
        super().quantize(mode, type_check=False, **kwargs)

    def get_config(self) -> dict:
        names = self.class_names
        own: dict[str, Any] = {
            "class_names": list(names) if isinstance(names, tuple) else names,
            "preparation": self.preparation,
        }
        if self.problem_type != ONE_CLASS:  # older versions read all other heads
            own["problem_type"] = self.problem_type
        if self.bits is not None:
            own["bits"] = self.bits
        if self.thresholds:
            own["thresholds"] = list(self.thresholds)
        return {**super().get_config(), **own}

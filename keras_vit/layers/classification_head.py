"""The head of a classifier, which knows its classes and how photos come to it."""

import keras

from zoo.photos import check_preparation
from zoo.text import brief, is_safe


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassificationHead(keras.layers.Dense):
    """A dense layer with the names of its classes, which are saved with the model.

    It computes what `keras.layers.Dense` does and has the same variables. Both
    attributes can be set at any time.

    Args:
        units: int, the number of classes.
        class_names: None, or a sequence of str, one per class. Names may occur twice,
            as ImageNet's do. The attribute is a tuple.
        preparation: how evaluation brings photos to the model's size, `"squash"` or
            `"central crop"`, see `zoo.photos.prepare`.
        **kwargs: those of `keras.layers.Dense`.

    Call arguments:
        features: float tensor (..., features).

    Returns:
        Float tensor (..., units).

    Raises:
        ValueError: there are more or fewer names than classes, a name is no text or
            has line breaks or other control characters, or the preparation is unknown.

    Source:
        Paper section 3.1: the classification head is one linear layer.

    Example:
        >>> head = ClassificationHead(2, class_names=["cat", "dog"])
        >>> tuple(head(keras.ops.ones((1, 3))).shape), head.class_names
        ((1, 2), ('cat', 'dog'))
    """

    def __init__(self, units, *, class_names=None, preparation="squash", **kwargs):
        super().__init__(units, **kwargs)
        self.class_names = class_names
        self.preparation = preparation

    @property
    def class_names(self):
        return self._class_names

    @class_names.setter
    def class_names(self, names):
        if names is not None:
            names = checked_names(names)
            if len(names) != self.units:
                raise ValueError(
                    f"class_names has {len(names):,} names for {self.units:,} classes: "
                    "pass one name per class, in the order of the outputs."
                )
        self._class_names = names

    @property
    def preparation(self):
        return self._preparation

    @preparation.setter
    def preparation(self, preparation):
        self._preparation = check_preparation(preparation)

    def quantize(self, mode=None, type_check=True, **kwargs):
        # Keras refuses classes derived from its own, which may compute otherwise.
        super().quantize(mode, type_check=False, **kwargs)

    def get_config(self):
        names = None if self.class_names is None else list(self.class_names)
        own = {"class_names": names, "preparation": self.preparation}
        return {**super().get_config(), **own}


def checked_names(names):
    """Returns names of classes as a tuple of str; a ValueError where they are not."""
    if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__"):
        raise ValueError(
            f"class_names must be a sequence of str, got {brief(names)}: pass a list "
            "of one name per class."
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

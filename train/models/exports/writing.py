"""What writers of model files share: the head, facts, names."""

import contextlib

import keras

from keras_vit.models.base import of_features
from keras_vit.structure import (
    bits_of,
    own_image_size,
    preparation_of,
    problem_type_of,
    size_step,
    takes_any_size,
)
from zoo.head import ONE_CLASS


def has_head(model):
    """Returns whether a model of `keras_vit` ends in its head."""
    return model.layers[-1].name == "head"


def body_and_head(model):
    """Returns the model of the features and the head; `(model, None)` without head."""
    if not has_head(model):
        return model, None
    head = model.layers[-1]
    return of_features(model, head.input), head


def check_one_output(model):
    """Raises ValueError where a model returns several tensors, or one by its name."""
    if isinstance(outputs := getattr(model, "output", None), dict):
        first = next(iter(outputs))
        raise ValueError(
            f"{model.name} returns a dict of {', '.join(outputs)}, and an exported "
            f"file has one output: pass keras.Model(model.input, "
            f"model.output[{first!r}])."
        )


def facts_of(model):
    """Returns what exported files say of a model besides shapes and class names.

    These are the `activation` of the head, the `preparation` of photos, see
    `zoo.photos.prepare`, the `bits` of photos where they are known, see
    `zoo.photos.decode`, and the `problem_type` of a head that does not answer with one
    class of several; of a model for images of any size also the `image_size`
    of its positions, and the `size_step` that sides are multiples of, both as
    "height,width". A dict of str.
    """
    head = model.layers[-1] if has_head(model) else None
    activation = getattr(head, "activation", keras.activations.linear)
    facts = {
        "activation": activation.__name__,
        "preparation": preparation_of(model),
    }
    if (problem_type := problem_type_of(model)) != ONE_CLASS:
        facts["problem_type"] = problem_type
    if (bits := bits_of(model)) is not None:
        facts["bits"] = str(bits)
    if takes_any_size(model):
        # A model without positions has no size of its own.
        with contextlib.suppress(ValueError):
            facts["image_size"] = ",".join(map(str, own_image_size(model)))
        facts["size_step"] = ",".join(map(str, size_step(model)))
    return facts


def check_class_names(class_names, model):
    """Raises ValueError unless a model has a head with one class per name."""
    if not has_head(model):
        raise ValueError(
            f"{model.name} has no head whose classes could have names: leave out "
            "class_names."
        )
    classes = model.output_shape[-1]
    if len(class_names) != classes:
        raise ValueError(
            f"class_names has {len(class_names)} names for the {classes} classes of "
            f"{model.name}: pass one name per class."
        )
    for name in class_names:
        if "\n" in name:
            raise ValueError(
                f"class_names has {name!r}, which spans lines: files of class names "
                "have one per line."
            )

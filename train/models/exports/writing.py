"""What writers of model files share: the head, facts, names."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.models.base import of_features
from keras_vit.structure import bits_of, preparation_of, problem_type_of
from keras_vit.structure.image_sizes import own_image_size, size_step, takes_any_size
from train.models.exports.description import Facts


def has_head(model: keras.Model) -> bool:
    """Returns whether a model of `keras_vit` ends in its head."""
    return model.layers[-1].name == "head"


def body_and_head(
    model: keras.Model,
) -> tuple[keras.Model, keras.layers.Layer | None]:
    """Returns the model of the features and the head; `(model, None)` without head."""
    if not has_head(model):
        return model, None
    head = model.layers[-1]
    return of_features(model, head.input), head


def logits_of(head: keras.layers.Layer, features: Any) -> Any:
    """Returns what a head computes of its input before its activation."""
    logits = keras.ops.matmul(features, head.kernel)
    return logits if head.bias is None else logits + head.bias


def check(model: keras.Model, class_names: Sequence[str] | None) -> None:
    """Raises ValueError unless a model has one output, and a class per name if any."""
    if isinstance(outputs := getattr(model, "output", None), dict):
        first = next(iter(outputs))
        raise ValueError(
            f"{model.name} returns a dict of {', '.join(outputs)}, and an exported "
            f"file has one output: pass keras.Model(model.input, "
            f"model.output[{first!r}])."
        )
    if class_names is None:
        return
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


def facts_of(model: keras.Model) -> dict[str, str]:
    """Returns the texts of a model's `Facts`, for an exported file."""
    head = model.layers[-1] if has_head(model) else None
    activation = getattr(head, "activation", keras.activations.linear)
    facts = Facts(
        activation=activation.__name__,
        preparation=preparation_of(model),
        problem_type=problem_type_of(model),
        bits=bits_of(model),
        thresholds=getattr(head, "thresholds", ()),
    )
    if takes_any_size(model):
        facts = dataclasses.replace(facts, size_step=size_step(model))
        # A model without positions has no size of its own.
        with contextlib.suppress(ValueError):
            facts = dataclasses.replace(facts, image_size=own_image_size(model))
    return facts.texts()

"""The classification head of a model, and the model without it."""

import keras


def has_head(model):
    """Returns whether a model of `keras_vit` ends in its head."""
    return model.layers[-1].name == "head"


def body_and_head(model):
    """Returns the model of the features and the head; `(model, None)` without head."""
    if not has_head(model):
        return model, None
    head = model.layers[-1]
    return keras.Model(model.input, head.input), head

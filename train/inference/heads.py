"""The classification head of a model, and the model without it."""

import keras


def has_head(model):
    """Returns whether a model of `keras_vit` ends in its head."""
    return model.layers[-1].name == "head"


def body_and_head(model):
    """Returns the model of the features and the head; `(model, None)` without head.

    Example:

    >>> model = keras_vit.VisionTransformer("ViT-Ti_16", image_size=32)
    >>> body, head = body_and_head(model)
    >>> body.output_shape, head.units
    ((None, 192), 1000)
    """
    if not has_head(model):
        return model, None
    head = model.layers[-1]
    return keras.Model(model.input, head.input), head

"""What a model ends in: its classification head, or the features without one."""

import keras


def has_head(model):
    """Tells whether a model of `keras_vit` ends in its head.

    Args:
        model: `keras.Model`.

    Example:

    >>> has_head(keras_vit.VisionTransformer("ViT-Ti_16", image_size=32))
    True
    """
    return model.layers[-1].name == "head"


def body_and_head(model):
    """Splits a model before its head.

    Args:
        model: `keras.Model` of `keras_vit`.

    Returns:
        Tuple of a `keras.Model` from images to features, and the head; or of the model
        itself and None.

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

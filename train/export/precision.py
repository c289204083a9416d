"""Models of mixed or half precision as models that compute in float32."""

import keras

from keras_vit.layers import initial_values


def in_float32(model):
    """Returns a model that computes in float32 what another does in less.

    Args:
        model: a functional `keras.Model`.

    Returns:
        The model itself if all its layers compute in float32; or else a new one with
        its values in variables of its own.

    Example:

    >>> embedding = keras.layers.Dense(2, dtype="mixed_bfloat16")
    >>> images = keras.Input((3,))
    >>> in_float32(keras.Model(images, embedding(images))).layers[-1].compute_dtype
    'float32'
    """
    if all(layer.dtype_policy.name == "float32" for layer in model.layers):
        return model

    def in_float32(layer):
        return type(layer).from_config({**layer.get_config(), "dtype": "float32"})

    with initial_values.left_out():
        other = keras.models.clone_model(model, clone_function=in_float32)
    for variable, source in zip(other.variables, model.variables, strict=True):
        variable.assign(source)
    return other

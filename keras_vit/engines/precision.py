"""Models that compute in another precision."""

import keras

from keras_vit.layers import initial_values


def in_precision(model, policy="float32"):
    """Returns a model with the same values under a dtype policy, or the model."""
    if all(layer.dtype_policy.name == policy for layer in model.layers):
        return model

    def copy(layer):
        return type(layer).from_config({**layer.get_config(), "dtype": policy})

    with initial_values.left_out():
        other = keras.models.clone_model(model, clone_function=copy)
    for variable, source in zip(other.variables, model.variables, strict=True):
        variable.assign(source)
    return other

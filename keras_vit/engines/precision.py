"""Models that compute in another precision."""

import keras

from keras_vit.layers import initial_values


def in_precision(model, policy="float32"):
    """Returns a model with the same values under a dtype policy, or the model."""
    if all(layer.dtype_policy.name == policy for layer in model.layers):
        return model

    other = recast(model, policy)
    for variable, source in zip(other.variables, model.variables, strict=True):
        variable.assign(source)
    return other


def recast(model, policy):
    """Returns a model of the same layers under a dtype policy, without their values."""

    def copy(layer):
        return type(layer).from_config({**layer.get_config(), "dtype": policy})

    with initial_values.left_out():
        return keras.models.clone_model(model, clone_function=copy)

"""Models that compute in another precision."""

import keras

from keras_vit.layers import initial_values
from keras_vit.layers.base import with_parts
from keras_vit.structure import describe, layers_of


def in_float32(model: keras.Model) -> keras.Model:
    """Returns a model with the same values that computes in float32, or the model."""
    if is_of_policy(model, "float32"):
        return model
    other = recast(model, "float32")
    for variable, source in zip(other.variables, model.variables, strict=True):
        variable.assign(source)
    return other


def is_of_policy(model: keras.Model, policy: str) -> bool:
    """Returns whether all layers of a model compute under a dtype policy."""
    return all(
        layer.dtype_policy.name == policy
        for layer in layers_of(model, keras.layers.Layer)
        if not isinstance(layer, keras.layers.InputLayer)
    )


def recast(model: keras.Model, policy: str) -> keras.Model:
    """Returns a model of the same layers under a dtype policy, without their values.

    Raises a `ValueError` where layers have LoRA or are quantized by Keras.
    """
    for layer in layers_of(model, keras.layers.Layer):
        for name, what in (
            ("lora_enabled", "LoRA"),
            ("quantization_mode", "quantized weights"),
        ):
            if any(getattr(part, name, False) for part in with_parts(layer)):
                raise ValueError(
                    f"{model.name} has {what} in the layer {layer.name}, with which it "
                    "is computed in its own precision alone: leave precision and "
                    "engine out."
                )

    def copy(layer: keras.layers.Layer) -> keras.layers.Layer:
        if isinstance(layer, keras.Model):
            return recast(layer, policy)
        return type(layer).from_config({**layer.get_config(), "dtype": policy})

    with initial_values.left_out():
        return describe(keras.models.clone_model(model, clone_function=copy), model)

"""Released arrays: reading, assigning to a model's variables, writing."""

from keras_vit.weights.loading import load_released_weights, read_weights
from keras_vit.weights.model_arrays import (
    computed,
    released_variables,
    save_released_weights,
    saved_variables,
)

__all__ = [
    "computed",
    "load_released_weights",
    "read_weights",
    "released_variables",
    "save_released_weights",
    "saved_variables",
]

"""The mapping from released array names to the variables of a model."""

import collections.abc
import dataclasses
import re

import keras
from keras import ops

from keras_vit.weights.quantization import is_quantized
from zoo.common.safe_text import brief


@dataclasses.dataclass(frozen=True)
class ReleasedPlaces:
    """Where the arrays of released files go in the models of an architecture."""

    # Pattern of layers' names -> {released key, with {} for each group of the pattern:
    # the attribute of the layer that holds its variable}.
    layers: dict
    # Returns the released shape: of a key in the table, a variable's shape, its layer.
    shape: collections.abc.Callable

    def variables(self, model: keras.Model, to_load: bool = False) -> dict:
        """Returns {released key: (variable, released shape)} of a float model.

        With LoRA a variable is the kernel that the layer computes with, a tensor, which
        is refused if it is one `to_load`. Raises a ValueError if the model has weights
        beside these.
        """
        variables, named = {}, set()
        for key, pattern, variable, layer, holder in self._placed(model):
            if to_load and getattr(holder, "lora_enabled", False):
                raise ValueError(
                    f"Model {model.name!r} has LoRA's products beside the kernel of "
                    f"{holder.path}, which a file would not replace: load the weights "
                    "first and call enable_lora then."
                )
            shape = self.shape(pattern, tuple(variable.shape), layer)
            variables[key] = variable, shape
            named |= _ids_in(variable, holder)
        others = [one for one in model.weights if id(one) not in named]
        # A counter of training steps is no weight of the network.
        others = [one.path for one in others if "int" not in one.dtype]
        if others:
            raise ValueError(
                f"Model {model.name!r} has weights without released names, "
                f"{brief(', '.join(others))}: keep it with Model.save."
            )
        return variables

    def _placed(self, model):
        """Yields keys, the keys in the table, variables, layers and their parts."""
        if is_quantized(model):
            raise ValueError(
                f"Model {model.name!r} has int8 weights, and released files hold float "
                "ones: keep it with Model.save and load it with "
                "keras.saving.load_model, or pass the model that "
                "keras_vit.quantize_weights was given."
            )
        for layer in model.layers:
            if not layer.weights:
                continue
            for pattern, places in self.layers.items():
                match = re.fullmatch(pattern, layer.name)
                for key, place in places.items() if match else ():
                    *parents, name = place.split(".")
                    holder = layer
                    for part in parents:
                        holder = getattr(holder, part, None)
                    # Layers make some parts, and dense ones a bias, only if asked to.
                    if (variable := getattr(holder, name, None)) is not None:
                        yield key.format(*match.groups()), key, variable, layer, holder


def as_arrays(variables: dict) -> dict:
    """Returns {released key: float32 array} of `ReleasedPlaces.variables`."""
    return {
        key: ops.convert_to_numpy(ops.cast(variable, "float32")).reshape(shape)
        for key, (variable, shape) in variables.items()
    }


def _ids_in(variable, holder):
    """Returns the ids of the weights that a variable, or LoRA's kernel, holds."""
    ids = {id(weight) for weight in holder.weights}
    if id(variable) in ids:
        return {id(variable)}
    return ids - {id(getattr(holder, "bias", None))}

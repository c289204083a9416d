"""The mapping from released array names to the variables of a model."""

import collections
import collections.abc
import dataclasses
import functools
import re

import keras
from keras import ops

from keras_vit.layers import PatchGrid, StochasticDepth
from keras_vit.layers.poolings import layer_classes
from keras_vit.weights.quantization import is_quantized

_LISTED = 10
# Layers that do nothing but in training.
_IDLE = (
    keras.layers.ActivityRegularization, keras.layers.Dropout,
    keras.layers.GaussianDropout, keras.layers.GaussianNoise, keras.layers.Identity,
    keras.layers.InputLayer, keras.layers.SpatialDropout1D, StochasticDepth,
)  # fmt: skip
# Layers without weights, by the names that models give them.
_WITHOUT_WEIGHTS = {
    "pooling": (
        *layer_classes(),
        keras.layers.GlobalAveragePooling1D,
        keras.layers.GlobalAveragePooling2D,
    ),
    "patch_grid": PatchGrid,
    "relu": keras.layers.ReLU,
    "root_pad": keras.layers.ZeroPadding2D,
    "root_pool": keras.layers.MaxPooling2D,
    "root_relu": keras.layers.ReLU,
}


@dataclasses.dataclass(frozen=True)
class ReleasedPlaces:
    """Where the arrays of released files go in one kind of models."""

    # Pattern of layers' names -> {released key, with {} for each group of the pattern:
    # the attribute of the layer that holds its variable}.
    layers: dict
    # Names of layers from the first to the last, which every model of the kind has.
    required: tuple
    # Names the function that makes such models, for messages.
    maker: str
    # Returns the released shape: of a key in the table, a variable's shape, its layer.
    shape: collections.abc.Callable

    def variables(self, model) -> dict:
        """Returns {released key: (variable, released shape)} of a whole float model.

        With LoRA a variable is the kernel that the layer computes with, a tensor.
        """
        there = {layer.name for layer in model.layers}
        # The first of two names for one part is that of plain networks.
        alternatives = [name.split(" or ") for name in self.required]
        missing = [names[0] for names in alternatives if not {*names} & there]
        if len(missing) == len(self.required):
            raise ValueError(
                f"Model {model.name!r} has no layers of the released names: pass a "
                f"model made by {self.maker}, not a model that wraps one."
            )
        if missing:
            raise ValueError(
                f"Model {model.name!r} is a part of a model, without the layers "
                f"{', '.join(missing)}, and released files hold whole ones: pass the "
                "model that it was cut from."
            )
        return {
            key: (variable, self.shape(pattern, tuple(variable.shape), layer))
            for key, pattern, variable, layer, _ in self._placed(model)
        }

    def check_accounted(self, model) -> None:
        """Makes sure that every weight and layer of a model has a place.

        Seeds of random layers are no weights, and layers that do nothing but in
        training need no place.
        """
        accounted, layers = set(), set()
        for _, _, variable, layer, holder in self._placed(model):
            accounted.add(id(variable))
            layers.add(id(layer))
            if getattr(holder, "lora_enabled", False):
                accounted |= {
                    id(weight)
                    for weight in holder.weights
                    if weight.name in ("kernel", "lora_kernel_a", "lora_kernel_b")
                }
        others = [w.path for w in model.weights if id(w) not in accounted]
        if others:
            more = f" and {len(others) - _LISTED} more" if others[_LISTED:] else ""
            raise ValueError(
                f"Model {model.name!r} has weights that have no released name and "
                f"would be lost: {', '.join(others[:_LISTED])}{more}. Keep it with "
                "Model.save, or pass a model without them, whose head is a Dense layer "
                "called 'head'."
            )
        _check_calls(model, layers)

    def check_loadable(self, model) -> None:
        """Makes sure that a model has no LoRA's products beside kernels."""
        for _, _, _, _, holder in self._placed(model):
            if getattr(holder, "lora_enabled", False):
                raise ValueError(
                    f"Model {model.name!r} has LoRA's products beside the kernel of "
                    f"{holder.path}, which a file would not replace: load the weights "
                    "first and call enable_lora then."
                )

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
            for pattern, places in self.layers.items():
                match = re.fullmatch(pattern, layer.name)
                if layer.name in _WITHOUT_WEIGHTS and not layer.weights:
                    continue
                for key, place in places.items() if match else ():
                    if not _is_made(layer, place):
                        continue
                    holder, variable = _at(model, layer, place)
                    yield key.format(*match.groups()), key, variable, layer, holder


def as_arrays(variables) -> dict:
    """Returns {released key: float32 array} of `ReleasedPlaces.variables`."""
    return {
        key: ops.convert_to_numpy(ops.cast(variable, "float32")).reshape(shape)
        for key, (variable, shape) in variables.items()
    }


def _check_calls(model, placed_layers):
    """Makes sure that a model calls only layers that have a place, each once."""
    for operation in getattr(model, "operations", model.layers):
        if id(operation) in placed_layers or isinstance(operation, _IDLE):
            continue
        if not isinstance(operation, _WITHOUT_WEIGHTS.get(operation.name, ())):
            raise ValueError(
                f"Model {model.name!r} has {operation.name!r}, a "
                f"{type(operation).__name__}, which released files have no place for: "
                "what is loaded from one would compute without it. Keep the model with "
                "Model.save, or pass one without it."
            )
    calls = collections.Counter()
    for layer in model.get_config()["layers"]:
        # A Sequential calls each once, and notes no calls.
        calls[layer["config"].get("name")] += len(layer.get("inbound_nodes", ()))
    for layer in model.layers:
        if calls[layer.name] > 1 and not isinstance(layer, _IDLE):
            raise ValueError(
                f"Model {model.name!r} calls {layer.name!r} {calls[layer.name]} times, "
                "and what is loaded from a released file would call it once: keep the "
                "model with Model.save."
            )


def _is_made(layer, place):
    """Whether layers of layers made a place's parts, and dense ones its bias."""
    *parents, name = place.split(".")
    for part in parents:
        declared = part in getattr(layer, "parts", ())
        if declared and getattr(layer, part, None) is None:
            return False
        layer = getattr(layer, part, None)
    if name == "bias" and parents:
        return getattr(layer, "use_bias", True)
    # Positions of another kind than biases have no table.
    return name != "table" or hasattr(layer, "table")


def _at(model, layer, place):
    """Returns the layer that holds a variable, and the variable."""
    *parents, name = place.split(".")
    holder = functools.reduce(
        lambda one, part: getattr(one, part, None), parents, layer
    )
    variable = getattr(holder, name, None)
    if variable is None:
        raise ValueError(
            f"Layer {layer.name!r} of model {model.name!r} is a "
            f"{type(layer).__name__} without {place}, which released files hold: give "
            "a layer of your own another name, or keep the model with Model.save."
        )
    return holder, variable

"""Where released arrays go: the variables of a model by the released keys."""

import collections
import operator
import re

import keras

from keras_vit.layers import ClassTokenPooling, PatchPooling, StochasticDepth
from keras_vit.weights.quantization import is_quantized

_LISTED = 10
# What a model that answers computes alike without.
_IDLE = (
    keras.layers.ActivityRegularization,
    keras.layers.Dropout,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.Identity,
    keras.layers.InputLayer,
    keras.layers.SpatialDropout1D,
    StochasticDepth,
)
# Layers without weights that models of ours and of BiT have, which their makers make.
_WITHOUT_WEIGHTS = {
    "pooling": (
        ClassTokenPooling,
        PatchPooling,
        keras.layers.GlobalAveragePooling1D,
        keras.layers.GlobalAveragePooling2D,
    ),
    "relu": keras.layers.ReLU,
    "root_pad": keras.layers.ZeroPadding2D,
    "root_pool": keras.layers.MaxPooling2D,
    "root_relu": keras.layers.ReLU,
}


def placed(model, places_of_layers):
    """Yields what a table says of a model's layers.

    Args:
        model: `keras.Model`.
        places_of_layers: dict of a pattern of layers' names to a dict of released key,
            with `{}` for each group of the pattern, to the attribute of the layer that
            holds its variable.

    Yields:
        Tuples of the released key, the key as in the table, the variable (with LoRA the
        kernel that the layer computes with, a tensor) and the layer.

    Raises:
        ValueError: the model's weights are quantised, or a layer lacks a variable that
            released files hold.
    """
    for key, pattern, variable, layer, _ in _placed(model, places_of_layers):
        yield key, pattern, variable, layer


def check_complete(model, names, maker):
    """Makes sure that a model has the layers that every released one has.

    Args:
        model: `keras.Model`.
        names: tuple of str, from the first layer to the last.
        maker: str, what makes such models, for messages.

    Raises:
        ValueError: it has not.
    """
    there = {layer.name for layer in model.layers}
    missing = [name for name in names if name not in there]
    if len(missing) == len(names):
        raise ValueError(
            f"Model {model.name!r} has no layers of the released names: pass a model "
            f"made by {maker}, not a model that wraps one."
        )
    if missing:
        raise ValueError(
            f"Model {model.name!r} is a part of a model, without the layers "
            f"{', '.join(missing)}, and released files hold whole ones: pass the model "
            "that it was cut from."
        )


def check_accounted(model, places_of_layers):
    """Makes sure that a table has a place for every weight and layer of a model.

    Seeds of random layers are no weights, and what does nothing but in training needs
    no place.

    Args:
        model: `keras.Model`.
        places_of_layers: as `placed` takes it.

    Raises:
        ValueError: there is none for some, which are named; or a layer is called more
            than once.
    """
    accounted, layers = set(), set()
    for _, _, variable, layer, holder in _placed(model, places_of_layers):
        accounted.add(id(variable))
        layers.add(id(layer))
        if _adds_lora(holder):
            accounted |= {
                id(weight)
                for weight in holder.weights
                if weight.name in ("kernel", "lora_kernel_a", "lora_kernel_b")
            }
    others = [weight.path for weight in model.weights if id(weight) not in accounted]
    if not others:
        _check_layers(model, layers)
        return
    more = len(others) - _LISTED
    listed = ", ".join(others[:_LISTED]) + (f" and {more} more" if more > 0 else "")
    raise ValueError(
        f"Model {model.name!r} has weights that have no released name and would be "
        f"lost: {listed}. Keep it with Model.save, or pass a model without them, "
        "whose head is a Dense layer called 'head'."
    )


def _check_layers(model, placed_layers):
    """Makes sure that a model calls nothing but its layers of a place, each once."""
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


def check_loadable(model, places_of_layers):
    """Makes sure that arrays can be assigned to all variables of the table.

    Raises:
        ValueError: the model has LoRA's products beside kernels.
    """
    for _, _, _, _, holder in _placed(model, places_of_layers):
        if _adds_lora(holder):
            raise ValueError(
                f"Model {model.name!r} has LoRA's products beside the kernel of "
                f"{holder.path}, which a file would not replace: load the weights "
                "first and call enable_lora then."
            )


def _placed(model, places_of_layers):
    if is_quantized(model):
        raise ValueError(
            f"Model {model.name!r} has int8 weights, and released files hold float "
            "ones: keep it with Model.save and load it with keras.saving.load_model, "
            "or pass the model that keras_vit.quantize_weights was given."
        )
    for layer in model.layers:
        for pattern, places in places_of_layers.items():
            match = re.fullmatch(pattern, layer.name)
            if not match:
                continue
            for key, place in places.items():
                # Only some units have a projection.
                if "_proj" in place and not getattr(layer, "projects", True):
                    continue
                holder, variable = _at(model, layer, place)
                yield key.format(*match.groups()), key, variable, layer, holder


def _at(model, layer, place):
    """Returns the layer that holds a variable, and the variable."""
    *parents, name = place.split(".")
    try:
        holder = operator.attrgetter(".".join(parents))(layer) if parents else layer
        variable = getattr(holder, name)
    except AttributeError:
        variable = None
    if variable is None:
        raise ValueError(
            f"Layer {layer.name!r} of model {model.name!r} is a "
            f"{type(layer).__name__} without {place}, which released files hold: give "
            "a layer of your own another name, or keep the model with Model.save."
        )
    return holder, variable


def _adds_lora(holder):
    return bool(getattr(holder, "lora_enabled", False))

"""Where released arrays go: the variables of a model by the released keys."""

import operator
import re

from keras_vit.quantization import is_quantized


def placed(model, places_of_layers):
    """Yields what a table says of a model's layers.

    Args:
        model: `keras.Model`.
        places_of_layers: dict of a pattern of layers' names to a dict of released key,
            with `{}` for each group of the pattern, to the attribute of the layer that
            holds its variable.

    Yields:
        Tuples of the released key, the key as in the table, the variable and the layer.

    Raises:
        ValueError: the model's weights are quantised.
    """
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
                if "_proj" in place and not layer.projects:
                    continue
                variable = operator.attrgetter(place)(layer)
                yield key.format(*match.groups()), key, variable, layer

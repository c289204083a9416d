"""One model of several networks, whose answers are averaged."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.layers import ClassificationHead
from keras_vit.models.base import Model
from keras_vit.structure import head_of

# The layer that joins the logits of networks.
_ANSWERS = "answers"


def averaged(
    networks: Sequence[keras.Model],
    weights: Sequence[float],
    bias: np.ndarray | None = None,
) -> keras.Model:
    """Returns a model whose logits are a weighted sum of those of networks.

    Its probabilities are then the normalised geometric mean of theirs. It takes images
    of the largest size, which are resized for the others without antialiasing, as
    training resizes photos. What the head says of classes and photos is what that of
    the first network says.

    Args:
        networks: models with heads of the same classes, for images of fixed sizes.
            They are parts of the new model, which shares their weights.
        weights: float for each network; a temperature divides them.
        bias: floats (classes,), added to the sum; by default nothing is.

    Example:
        >>> new = {"weights": None, "classes": 3}
        >>> parts = [keras_vit.ViT_Ti16(image_size=size, **new) for size in (48, 32)]
        >>> averaged(parts, [0.5, 0.5]).input_shape
        (None, 48, 48, 3)
    """
    sizes = [network.input_shape[1:3] for network in networks]
    largest = max(sizes)
    images = keras.Input((*largest, 3), name="images")
    logits = []
    for number, (network, size) in enumerate(zip(networks, sizes, strict=True)):
        # Layers of one model have different names.
        network.name = f"network_{number}"
        inputs = images
        if size != largest:
            resize = keras.layers.Resizing(*size, name=f"resize_{number}")
            inputs = resize(images)
        logits.append(network(inputs))
    own = head_of(networks[0])
    head = ClassificationHead(
        own.units,
        class_names=own.class_names,
        preparation=own.preparation,
        bits=own.bits,
        use_bias=bias is not None,
        kernel_initializer="zeros",
        dtype=own.dtype_policy,
        name="head",
    )
    joined = keras.layers.Concatenate(name=_ANSWERS)(logits)
    model = Model(images, head(joined), name="average")
    kernel = np.concatenate([weight * np.eye(own.units) for weight in weights])
    head.set_weights([kernel] if bias is None else [kernel, bias])
    return model


def members(model: keras.Model) -> list[keras.Model]:
    """Returns the networks that a model averages, none of one that is a network."""
    if all(layer.name != _ANSWERS for layer in model.layers):
        return []
    return [layer for layer in model.layers if isinstance(layer, keras.Model)]

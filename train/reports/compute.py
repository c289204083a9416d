"""Multiply-adds of a model, counted from its layers."""

import math

import keras

import keras_vit


def multiply_adds(model: keras.Model) -> int:
    """Returns the multiply-adds of one image: those of products and convolutions.

    Counted as the papers do: norms, activations, pooling and sums are left out, and
    every token goes through every block. A model that cannot be counted is a
    ValueError.
    """
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or None in shape[1:]:
        raise ValueError(
            f"The arithmetic of {model.name} cannot be counted: it takes inputs of "
            f"shape {shape}, give it images of one size."
        )
    return sum(_of_layer(layer) for layer in model.layers)


def _of_layer(layer):
    if isinstance(layer, keras.Model):
        return multiply_adds(layer)
    if not any("kernel" in variable.name for variable in layer.weights):
        return 0
    for layer_class, count in _COUNTS.items():
        if isinstance(layer, layer_class):
            return count(layer, layer.input.shape)
    raise ValueError(
        f"The arithmetic of the layer {layer.name} cannot be counted: how much a "
        f"{type(layer).__name__} computes is not known."
    )


def _dense(layer, input_shape):
    return math.prod(input_shape[1:]) * layer.units


def _convolution(layer, input_shape):
    sides = list(layer.compute_output_shape(input_shape)[1:])
    sides.pop(0 if getattr(layer, "data_format", "") == "channels_first" else -1)
    return math.prod(sides) * math.prod(layer.kernel.shape)


def _attention(layer, input_shape):
    _, tokens, hidden_size = input_shape
    # Count scores and their weighted sum, then scores of relative positions.
    embedded = isinstance(layer.positions, keras_vit.layers.RelativePositionEmbedding)
    products = 3 if embedded else 2
    # Count the products of query, key, value and output.
    return 4 * tokens * hidden_size**2 + products * tokens**2 * hidden_size


def _mlp(layer, input_shape):
    # Gates need twice as many hidden numbers.
    products = 3 if layer.activation == "swiglu" else 2
    return products * math.prod(input_shape[1:]) * layer.mlp_dim


def _block(layer, input_shape):
    return _attention(layer.attention, input_shape) + _mlp(layer.mlp, input_shape)


def _unit(layer, input_shape):
    """Counts a bottleneck of convolutions, with its norms before or after them."""
    total, shape = 0, input_shape
    for conv in (layer.conv1, layer.conv2, layer.conv3):
        total += _convolution(conv, shape)
        shape = conv.compute_output_shape(shape)
    return total + (_convolution(layer.conv_proj, input_shape) if layer.projects else 0)


def _attention_pooling(layer, input_shape):
    _, tokens, hidden_size = input_shape
    # Count one query, with the keys and values of all tokens.
    products = 2 * tokens * hidden_size**2 + 2 * hidden_size**2
    return products + 2 * tokens * hidden_size + 2 * hidden_size * layer.mlp_dim


_COUNTS = {
    keras_vit.layers.AttentionPooling: _attention_pooling,
    keras.layers.Dense: _dense,
    # StdConv2D is a subclass.
    keras.layers.Conv2D: _convolution,
    keras.layers.DepthwiseConv2D: _convolution,
    keras_vit.PatchEncoder: _convolution,
    keras_vit.layers.SelfAttention: _attention,
    keras_vit.layers.MLP: _mlp,
    keras_vit.TransformerBlock: _block,
    keras_vit.layers.ResidualUnit: _unit,
}

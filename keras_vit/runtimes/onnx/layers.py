"""Functions that add each layer's computation to an ONNX graph.

A function takes the graph, the layer, the name of the input value and the layer's name,
a prefix of its weights' names; and as options the arguments of the layer's call and the
shape of its input. It returns the name of the output value.
"""

from typing import Any

import keras
import numpy as np

from keras_vit import layers
from keras_vit.runtimes.onnx import places

_GELUS = {"gelu_tanh": "tanh", "gelu": "none"}
_QUICK = 1.702
_AUTO_PADS = {"same": "SAME_UPPER", "valid": "VALID"}
# The operators are called as the functions are, but for the capital.
_ACTIVATIONS = ("relu", "sigmoid", "softmax", "tanh")


def function_of(layer: keras.Operation) -> Any:
    """Returns the function that adds a layer; raises a ValueError if there is none."""
    for kind in type(layer).__mro__:
        # Not for a subclass that overrides `call`.
        if kind in FUNCTIONS and type(layer).call is kind.call:
            return FUNCTIONS[kind]
    raise ValueError(
        f"The layer {layer.name!r} is a {type(layer).__name__}, which the ONNX "
        "exporter does not know: use one of keras_vit.layers, such as LayerNorm or "
        "ClassTokenPooling."
    )


def _same(graph, layer, value, name, **_):
    return value


def _dense(graph, layer, value, name, **_):
    kernel = graph.matrix(f"{name}/kernel", layer.kernel)
    value = graph.node("MatMul", value, kernel)
    if layer.use_bias:
        value = graph.node("Add", value, *graph.weights(name, layer, "bias"))
    activation = keras.activations.serialize(layer.activation)
    if activation == "linear":
        return value
    if activation == "gelu":
        return graph.node("Gelu", value, approximate="none")
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"{name} has the activation {activation!r}, which the ONNX exporter does "
            f"not know: use one of linear, {', '.join(_ACTIVATIONS)}."
        )
    return graph.wide(activation.capitalize(), value)


def _class_token(graph, layer, value, name, **_):
    batch = graph.node("Shape", value, start=0, end=1)
    token_shape = graph.integers(layer.token.shape[1:])
    shape = graph.node("Concat", batch, token_shape, axis=0)
    token = graph.node("Expand", *graph.weights(name, layer, "token"), shape)
    return graph.node("Concat", token, value, axis=1)


def _layer_norm(graph, layer, value, name, **_):
    weights = graph.weights(name, layer, "gamma", "beta")
    # Its statistics are in float32 by default.
    return graph.node(
        "LayerNormalization", value, *weights, axis=-1, epsilon=layer.epsilon
    )


def _block(graph, block, tokens, name, *, class_token_only=False, grid=None, **_):
    norms_after = isinstance(block, layers.PostNormBlock)

    def normed(value: str, part: str, is_there: bool) -> str:
        norm = getattr(block, part)
        return _layer_norm(graph, norm, value, f"{name}/{part}") if is_there else value

    branch = normed(tokens, "attention_norm", not norms_after)
    branch = _attention(
        graph,
        block.attention,
        branch,
        f"{name}/attention",
        class_token_only=class_token_only,
        grid=grid,
    )
    branch = normed(branch, "attention_norm", norms_after)
    if block.attention_scale is not None:
        branch = _layer_scale(graph, block.attention_scale, branch, f"{name}/scale_0")
    if class_token_only:
        tokens = graph.part(tokens, 0, 1, axis=1)
    tokens = graph.node("Add", tokens, branch)
    branch = normed(tokens, "mlp_norm", not norms_after)
    branch = _mlp(graph, block.mlp, branch, f"{name}/mlp")
    branch = normed(branch, "mlp_norm", norms_after)
    if block.mlp_scale is not None:
        branch = _layer_scale(graph, block.mlp_scale, branch, f"{name}/scale_1")
    return graph.node("Add", tokens, branch)


def _layer_scale(graph, layer, value, name, **_):
    return graph.node("Mul", value, *graph.weights(name, layer, "gamma"))


def _mlp(graph, layer, value, name, **_):
    value = _dense(graph, layer.expand, value, f"{name}/expand")
    if layer.activation == "swiglu":
        halves = [(0, layer.mlp_dim), (layer.mlp_dim, 2 * layer.mlp_dim)]
        gate, value = (graph.part(value, *ends, axis=-1) for ends in halves)
        gate = graph.node("Mul", gate, graph.node("Sigmoid", gate))
        value = graph.node("Mul", gate, value)
    elif layer.activation == "quick_gelu":
        factor = graph.weight("quick_gelu", np.float32(_QUICK))
        gate = graph.node("Sigmoid", graph.node("Mul", value, factor))
        value = graph.node("Mul", value, gate)
    else:
        value = graph.node("Gelu", value, approximate=_GELUS[layer.activation])
    if layer.norm is not None:
        value = _layer_norm(graph, layer.norm, value, f"{name}/norm")
    return _dense(graph, layer.project, value, f"{name}/project")


def _attention(graph, layer, tokens, name, *, class_token_only, grid):
    queries = graph.part(tokens, 0, 1, axis=1) if class_token_only else tokens
    head_size = layer.query.units // layer.num_heads
    if type(layer.positions) not in places.POSITIONS:
        raise ValueError(
            f"{name} has positions that are a {type(layer.positions).__name__}, which "
            "the ONNX exporter does not know: use positions of keras_vit.layers."
        )
    turned, added = places.POSITIONS[type(layer.positions)]

    def heads(part: str, value: str, *axes: int) -> str:
        value = _dense(graph, getattr(layer, part), value, f"{name}/{part}")
        value = graph.reshape(value, 0, 0, layer.num_heads, head_size)
        if part != "value" and turned:
            first_alone = part == "query" and class_token_only
            value = turned(graph, layer.positions, value, first_alone, grid)
        return graph.transpose(value, axes)

    scale = graph.weight(f"scale/{head_size}", np.float32(head_size**-0.5))
    query = graph.node("Mul", heads("query", queries, 0, 2, 1, 3), scale)
    scores = graph.node("MatMul", query, heads("key", tokens, 0, 2, 3, 1))
    if added:
        scores = graph.node(
            "Add",
            scores,
            added(
                graph,
                layer.positions,
                query,
                f"{name}/positions",
                class_token_only,
                grid,
            ),
        )
    weights = graph.wide("Softmax", scores, axis=-1)
    mixed = graph.node("MatMul", weights, heads("value", tokens, 0, 2, 1, 3))
    mixed = graph.transpose(mixed, (0, 2, 1, 3))
    mixed = graph.reshape(mixed, 0, 0, layer.query.units)
    if layer.norm is not None:
        mixed = _layer_norm(graph, layer.norm, mixed, f"{name}/norm")
    return _dense(graph, layer.out, mixed, f"{name}/out")


def _attention_pooling(graph, layer, value, name, **_):
    tokens = graph.part(value, layer.num_prefix_tokens, axis=1)
    units = layer.query.units
    head_size = units // layer.num_heads

    def heads(part: str, *axes: int) -> str:
        value = _dense(graph, getattr(layer, part), tokens, f"{name}/{part}")
        value = graph.reshape(value, 0, 0, layer.num_heads, head_size)
        return graph.transpose(value, axes)

    # The query is the same for all images.
    query = keras.ops.reshape(layer.query(layer.probe), (1, layer.num_heads, 1, -1))
    query = graph.weight(f"{name}/query", query * head_size**-0.5)
    scores = graph.node("MatMul", query, heads("key", 0, 2, 3, 1))
    weights = graph.wide("Softmax", scores, axis=-1)
    mixed = graph.node("MatMul", weights, heads("value", 0, 2, 1, 3))
    pooled = graph.reshape(graph.transpose(mixed, (0, 2, 1, 3)), 0, units)
    pooled = _dense(graph, layer.out, pooled, f"{name}/out")
    branch = _layer_norm(graph, layer.norm, pooled, f"{name}/norm")
    return graph.node("Add", pooled, _mlp(graph, layer.mlp, branch, f"{name}/mlp"))


def _registers(graph, layer, value, name, **_):
    batch = graph.node("Shape", value, start=0, end=1)
    shape = graph.integers(layer.registers.shape[1:])
    shape = graph.node("Concat", batch, shape, axis=0)
    parts = [graph.node("Expand", *graph.weights(name, layer, "registers"), shape)]
    if layer.after:
        parts.insert(0, graph.part(value, 0, layer.after, axis=1))
        value = graph.part(value, layer.after, axis=1)
    return graph.node("Concat", *parts, value, axis=1)


def _class_token_and_patch_pooling(graph, layer, value, name, **_):
    token = _class_token_pooling(graph, layer, value, name)
    return graph.node("Concat", token, _mean(graph, layer, value, name), axis=1)


def _distillation_pooling(graph, layer, value, name, **_):
    value = graph.part(value, 0, 2, axis=1)
    if layer.concatenate:
        return graph.reshape(value, 0, -1)
    return graph.wide("ReduceMean", value, graph.integers([1]), keepdims=0)


def _query_pooling(graph, layer, value, name, **_):
    return graph.part(value, 0, layer.num_queries, axis=1)


def _upscale_block(graph, layer, value, name, **_):
    kernel = keras.ops.transpose(layer.expand.kernel, (3, 2, 0, 1))
    weights = [graph.weight(f"{name}/expand/kernel", kernel)]
    weights += graph.weights(f"{name}/expand", layer.expand, "bias")
    value = graph.spatial("ConvTranspose", value, *weights, strides=(2, 2))
    value = graph.spatial("Gelu", value, approximate="none")
    kernel = keras.ops.transpose(layer.smooth.kernel, (2, 3, 0, 1))
    kernel = graph.weight(f"{name}/smooth/kernel", kernel)
    value = graph.spatial(
        "Conv", value, kernel, pads=(1, 1, 1, 1), group=layer.smooth.kernel.shape[2]
    )
    value = graph.transpose(value, (0, 2, 3, 1))
    return _layer_norm(graph, layer.norm, value, f"{name}/norm")


def _mask_logits(graph, layer, queries, name, *, features, shape, **_):
    pixels = graph.transpose(graph.reshape(features, 0, -1, shape[-1]), (0, 2, 1))
    sides = graph.node("Shape", features, start=1, end=3)
    return graph.reshape(graph.node("MatMul", queries, pixels), 0, 0, sides)


def _class_token_pooling(graph, layer, value, name, **_):
    return graph.reshape(graph.part(value, 0, 1, axis=1), 0, -1)


def _mean(graph, layer, value, name, **_):
    axes = [1]
    if isinstance(layer, layers.PatchPooling):
        value = graph.part(value, layer.num_prefix_tokens, axis=1)
    elif isinstance(layer, keras.layers.GlobalAveragePooling2D):
        value, axes = graph.image(value), [2, 3]
    if getattr(layer, "keepdims", False):
        raise ValueError(
            f"{name} has keepdims=True, which the ONNX exporter does not know: leave "
            "it out, and reshape the output."
        )
    return graph.wide("ReduceMean", value, graph.integers(axes), keepdims=0)


def _convolution(graph, layer, value, name, **_):
    kernel = keras.ops.transpose(layer.standardized(layer.kernel), (3, 2, 0, 1))
    weights = [graph.weight(f"{name}/standardized_kernel", kernel)]
    if layer.use_bias:
        weights += graph.weights(name, layer, "bias")
    padding = {"auto_pad": _AUTO_PADS[layer.padding]}
    if layer.symmetric:
        sides = zip(layer.strides, layer.kernel_size, strict=True)
        padding = {"pads": 2 * [(stride + size - 2) // 2 for stride, size in sides]}
    return graph.spatial("Conv", value, *weights, strides=layer.strides, **padding)


def _group_norm(graph, layer, value, name, **_):
    value = graph.image(value)
    parts = graph.reshape(value, 0, layer.groups, -1)
    ones = graph.weight(f"ones/{layer.groups}", np.ones(layer.groups), half=False)
    zeros = graph.weight(f"zeros/{layer.groups}", np.zeros(layer.groups), half=False)
    parts = graph.wide(
        "InstanceNormalization", parts, ones, zeros, epsilon=layer.epsilon
    )
    value = graph.node("Reshape", parts, graph.node("Shape", value))
    for operator, part in (("Mul", "gamma"), ("Add", "beta")):
        per_channel = keras.ops.reshape(getattr(layer, part), (-1, 1, 1))
        weight = graph.weight(f"{name}/{part}", per_channel)
        value = graph.node(operator, value, weight)
    graph.images.add(value)
    return value


def _relu(graph, layer, value, name, **_):
    if layer.max_value is not None or layer.negative_slope or layer.threshold:
        raise ValueError(
            f"{name} has a max_value, negative_slope or threshold, which the ONNX "
            "exporter does not know: use a plain ReLU."
        )
    return graph.spatial("Relu", value)


def _zero_padding(graph, layer, value, name, **_):
    (top, bottom), (left, right) = layer.padding
    pads = graph.integers([0, 0, top, left, 0, 0, bottom, right])
    return graph.spatial("Pad", value, pads)


def _max_pooling(graph, layer, value, name, **_):
    return graph.spatial(
        "MaxPool",
        value,
        kernel_shape=layer.pool_size,
        strides=layer.strides,
        auto_pad=_AUTO_PADS[layer.padding],
    )


def _in_turn(graph, unit, value, name, *parts):
    """Adds convolutions and norms of a unit by their names, and "relu"."""
    for part in parts:
        if part == "relu":
            value = graph.spatial("Relu", value)
        else:
            function = _group_norm if part.startswith("gn") else _convolution
            value = function(graph, getattr(unit, part), value, f"{name}/{part}")
    return value


def _residual_unit(graph, unit, features, name, **_):
    branch = ("conv1", "gn1", "relu", "conv2", "gn2", "relu", "conv3", "gn3")
    value, shortcut = _in_turn(graph, unit, features, name, *branch), features
    if unit.projects:
        shortcut = _in_turn(graph, unit, features, name, "conv_proj", "gn_proj")
    return graph.spatial("Relu", graph.spatial("Add", value, shortcut))


def _pre_activation_unit(graph, unit, features, name, **_):
    branch = ("conv1", "gn2", "relu", "conv2", "gn3", "relu", "conv3")
    value, shortcut = _in_turn(graph, unit, features, name, "gn1", "relu"), features
    if unit.projects:
        shortcut = _in_turn(graph, unit, value, name, "conv_proj")
    value = _in_turn(graph, unit, value, name, *branch)
    return graph.spatial("Add", value, shortcut)


def _resize(graph, layer, value, name, **_):
    if layer.interpolation != "bilinear" or layer.antialias:
        raise ValueError(
            f"{name} resizes by {layer.interpolation!r} or with antialias, which the "
            "ONNX exporter does not know: use bilinear without."
        )
    image = graph.image(value)
    # The number of images and channels are those that come.
    kept = graph.node("Shape", image, start=0, end=2)
    sides = graph.node(
        "Concat", kept, graph.integers([layer.height, layer.width]), axis=0
    )
    value = graph.node("Resize", image, "", "", sides, mode="linear")
    graph.images.add(value)
    return value


def _upsampling(graph, layer, value, name, **_):
    if layer.interpolation != "bilinear":
        raise ValueError(
            f"{name} enlarges by {layer.interpolation!r}, which the ONNX exporter does "
            "not know: use bilinear."
        )
    scales = graph.constant(np.array([1, 1, *layer.size], "float32"))
    value = graph.node("Resize", graph.image(value), "", scales, mode="linear")
    return graph.transpose(value, (0, 2, 3, 1))


def _batch_norm(graph, layer, value, name, **_):
    if layer.axis not in (-1, 3):
        raise ValueError(
            f"{name} normalises along axis {layer.axis}, which the ONNX exporter does "
            "not know: use the last one."
        )
    scale = keras.ops.rsqrt(layer.moving_variance + layer.epsilon)
    scale = scale * layer.gamma if layer.scale else scale
    offset = -layer.moving_mean * scale
    offset = offset + layer.beta if layer.center else offset
    is_image = value in graph.images
    for operator, part, values in (("Mul", "scale", scale), ("Add", "offset", offset)):
        values = keras.ops.reshape(values, (-1, 1, 1) if is_image else (-1,))
        value = graph.node(operator, value, graph.weight(f"{name}/{part}", values))
    if is_image:
        graph.images.add(value)
    return value


def _concatenate(graph, layer, values, name, **_):
    return graph.node("Concat", *values, axis=layer.axis)


FUNCTIONS = {
    **places.FUNCTIONS,
    layers.AttentionPooling: _attention_pooling,
    layers.ClassToken: _class_token,
    layers.ClassTokenAndPatchPooling: _class_token_and_patch_pooling,
    layers.ClassTokenPooling: _class_token_pooling,
    layers.DistillationPooling: _distillation_pooling,
    layers.GroupNorm: _group_norm,
    layers.LayerNorm: _layer_norm,
    layers.MaskAnnealing: _same,
    layers.MaskLogits: _mask_logits,
    layers.PatchPooling: _mean,
    layers.PreActivationUnit: _pre_activation_unit,
    layers.QueryPooling: _query_pooling,
    layers.RegisterTokens: _registers,
    layers.ResidualUnit: _residual_unit,
    layers.StdConv2D: _convolution,
    layers.PostNormBlock: _block,
    layers.TransformerBlock: _block,
    layers.UpscaleBlock: _upscale_block,
    keras.layers.BatchNormalization: _batch_norm,
    keras.layers.Concatenate: _concatenate,
    keras.layers.Dense: _dense,
    keras.layers.Dropout: _same,
    keras.layers.GlobalAveragePooling1D: _mean,
    keras.layers.GlobalAveragePooling2D: _mean,
    # Keras's own layer, in models of users.
    keras.layers.GroupNormalization: _group_norm,
    keras.layers.MaxPooling2D: _max_pooling,
    keras.layers.ReLU: _relu,
    keras.layers.Resizing: _resize,
    keras.layers.UpSampling2D: _upsampling,
    keras.layers.ZeroPadding2D: _zero_padding,
}

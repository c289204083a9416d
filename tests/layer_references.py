"""What layers compute, in NumPy and float64, written from the papers' equations.

Each function takes the inputs, a layer for its weights, and the arguments of the layer.
"""

import math

import numpy as np
from harness import numpy

from keras_vit import layers


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def dense(x, layer):
    x = x @ numpy(layer.kernel)
    return x if layer.bias is None else x + numpy(layer.bias)


def layer_norm(x, layer, epsilon=1e-6):
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)
    return x * numpy(layer.gamma) + numpy(layer.beta)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def mlp(x, layer, mlp_dim, activation="gelu_tanh", norm_epsilon=None, **rates):
    hidden = dense(x, layer.expand)
    if activation == "swiglu":
        gate, value = hidden[..., :mlp_dim], hidden[..., mlp_dim:]
        hidden = gate * sigmoid(gate) * value
    else:
        hidden = {
            "gelu_tanh": gelu_tanh,
            "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
            "quick_gelu": lambda x: x * sigmoid(1.702 * x),
        }[activation](hidden)
    if norm_epsilon is not None:
        hidden = layer_norm(hidden, layer.norm, norm_epsilon)
    return dense(hidden, layer.project)


def turned(heads, positions):
    """Queries or keys (batch, tokens, heads, size) as DINOv3's positions turn them."""
    assert positions.kind == "dinov3", "goldens have the others"
    rows, columns = positions.grid_size
    first, half = heads.shape[1] - rows * columns, heads.shape[-1] // 2
    base = positions.base or 100
    frequencies = float(base) ** (-2 * np.arange(half // 2) / half)
    # Centres of patches from -1 to 1, (rows and columns, patches).
    centres = np.indices((rows, columns)).reshape(2, -1) + 0.5
    centres = 2 * centres / np.array([[rows], [columns]]) - 1
    angles = [2 * np.pi * np.outer(axis, frequencies) for axis in centres]
    patches = heads[:, first:]
    numbers = patches[..., :half] + 1j * patches[..., half:]
    numbers = numbers * np.exp(1j * np.concatenate(angles, axis=-1))[:, None]
    patches = np.concatenate([numbers.real, numbers.imag], axis=-1)
    return np.concatenate([heads[:, :first], patches], axis=1)


def offset_bias(positions, length):
    """The bias (heads, queries, keys) of each pair of tokens, one by one."""
    (rows, columns), table = positions.grid_size, numpy(positions.table)
    first, count = length - rows * columns, (2 * rows - 1) * (2 * columns - 1)
    biases = np.zeros((table.shape[1], length, length))
    for query, key in np.ndindex(length, length):
        if min(query, key) >= first:
            one, other = (divmod(token - first, columns) for token in (query, key))
            down, across = np.subtract(one, other)
            # The middle of the table is the offset 0.
            row = (down + rows - 1) * (2 * columns - 1) + across + columns - 1
        else:
            row = count + (2 if max(query, key) < first else int(query >= first))
        biases[:, query, key] = table[row]
    return biases


def self_attention(
    x, layer, num_heads, norm_epsilon=None, positions=None, qkv_bias=True, **rates
):
    """The output, and the weights (batch, heads, queries, keys)."""
    batch, length, size = x.shape
    shape = (batch, length, num_heads, size // num_heads)
    query, key, value = (
        dense(x, part).reshape(shape) for part in (layer.query, layer.key, layer.value)
    )
    positions = layer.positions
    if isinstance(positions, layers.RotaryPositions):
        query, key = turned(query, positions), turned(key, positions)
    scores = np.einsum("bqhd,bkhd->bhqk", query, key)
    if isinstance(positions, layers.RelativePositionEmbedding):
        embedding = numpy(positions.offset_embedding)
        for one, other in np.ndindex(length, length):
            offset = embedding[one - other + length - 1]
            scores[:, :, one, other] += query[:, one] @ offset
    scores = scores / np.sqrt(size // num_heads)
    if isinstance(positions, layers.RelativePositionBias):
        scores = scores + offset_bias(positions, length)
    weights = softmax(scores)
    mixed = np.einsum("bhqk,bkhd->bqhd", weights, value).reshape(x.shape)
    if norm_epsilon is not None:
        mixed = layer_norm(mixed, layer.norm, norm_epsilon)
    return dense(mixed, layer.out), weights


def transformer_block(
    x, block, num_heads, mlp_dim, layer_norm_epsilon=1e-6, activation="gelu_tanh",
    layer_scale=None, attention_norm_inside=False, mlp_norm_inside=False,
    post_norm=False, **others,
):  # fmt: skip
    """The output and the weights, with the norms before or after what is added."""
    inside = [attention_norm_inside, mlp_norm_inside]
    inside = [layer_norm_epsilon if norm else None for norm in inside]

    weights = None
    for name in ("attention", "mlp"):
        norm, added = getattr(block, f"{name}_norm"), x
        if not post_norm:
            added = layer_norm(x, norm, layer_norm_epsilon)
        if name == "attention":
            added, weights = self_attention(
                added, block.attention, num_heads, inside[0]
            )
        else:
            added = mlp(added, block.mlp, mlp_dim, activation, inside[1])
        if post_norm:
            added = layer_norm(added, norm, layer_norm_epsilon)
        if layer_scale is not None:
            added = added * numpy(getattr(block, f"{name}_scale").gamma)
        x = x + added
    return x, weights


def post_norm_block(x, block, **arguments):
    return transformer_block(x, block, **arguments, post_norm=True)


def pooling_weights(x, layer, num_heads):
    """The weights (batch, heads, tokens) of a learned query, and the values."""
    heads = (*x.shape[:2], num_heads, -1)
    query = dense(numpy(layer.probe)[0, 0], layer.query).reshape(num_heads, -1)
    key, value = (dense(x, part).reshape(heads) for part in (layer.key, layer.value))
    scores = np.einsum("hd,bkhd->bhk", query, key) / np.sqrt(query.shape[1])
    return softmax(scores), value


def attention_pooling(
    x, layer, num_heads, mlp_dim, num_prefix_tokens=0, layer_norm_epsilon=1e-6,
    activation="gelu_tanh",
):  # fmt: skip
    weights, value = pooling_weights(x[:, num_prefix_tokens:], layer, num_heads)
    mixed = np.einsum("bhk,bkhd->bhd", weights, value)
    pooled = dense(mixed.reshape(len(x), -1), layer.out)
    normed = layer_norm(pooled, layer.norm, layer_norm_epsilon)
    return pooled + mlp(normed, layer.mlp, mlp_dim, activation)


def patches(images, layer, patch_size, **others):
    height, width = patch_size
    batch, rows, columns, channels = images.shape
    rows, columns = rows // height, columns // width
    squares = images.reshape(batch, rows, height, columns, width, channels)
    tokens = np.einsum("brhcwi,hwid->brcd", squares, numpy(layer.kernel))
    return tokens.reshape(batch, rows * columns, -1) + numpy(layer.bias)


def rows_and_columns(x, layer, grid_size, **others):
    rows, columns = grid_size
    of_rows = np.repeat(numpy(layer.row_embedding)[:, 0], columns, axis=0)
    of_columns = np.tile(numpy(layer.column_embedding)[0], (rows, 1))
    table = np.concatenate([of_columns, of_rows], axis=-1)
    if x.shape[1] > len(table):
        table = np.concatenate([numpy(layer.class_token_embedding), table])
    return x + table


def std_conv(
    x, layer, filters, kernel_size, strides=1, padding="same", epsilons="released",
    dilation_rate=1, **others,
):  # fmt: skip
    kernel, axes = numpy(layer.kernel), (0, 1, 2)
    size, strides = kernel.shape[:2], np.broadcast_to(strides, 2)
    dilation = np.broadcast_to(dilation_rate, 2)
    if epsilons == "released":
        deviation = kernel.std(axes) + 1e-5
    else:
        deviation = np.sqrt(kernel.var(axes) + {"bit": 1e-10, "timm": 1e-8}[epsilons])
    kernel = (kernel - kernel.mean(axes)) / deviation
    reach = dilation * (np.array(size) - 1) + 1
    margins = []
    for side, stride, length in zip(x.shape[1:3], strides, reach, strict=True):
        if padding == "symmetric":
            margins.append(((length - 1 + stride - 1) // 2,) * 2)
        else:
            # An odd row of padding goes to the bottom, an odd column to the right.
            total = max((-(-side // stride) - 1) * stride + length - side, 0)
            margins.append((total // 2, total - total // 2))
    x = np.pad(x, [(0, 0), *margins, (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(1, 2))
    windows = windows[:, :: strides[0], :: strides[1]]
    windows = windows[..., :: dilation[0], :: dilation[1]]
    found = np.einsum("bhwcij,ijcd->bhwd", windows, kernel)
    return found if layer.bias is None else found + numpy(layer.bias)


def group_norm(x, layer, groups=32, epsilon=1e-6, **others):
    grouped = x.reshape(*x.shape[:3], groups, -1)
    mean = grouped.mean(axis=(1, 2, 4), keepdims=True)
    variance = grouped.var(axis=(1, 2, 4), keepdims=True)
    normed = ((grouped - mean) / np.sqrt(variance + epsilon)).reshape(x.shape)
    return normed * numpy(layer.gamma) + numpy(layer.beta)


def _conv(unit, part, x, strides=1, **arguments):
    layer = getattr(unit, f"conv{part}")
    return std_conv(x, layer, None, None, strides, **arguments)


def residual_unit(
    x, unit, filters, strides=1, groups=32, padding="same", epsilons="released"
):
    options = {"padding": padding, "epsilons": epsilons}
    epsilon = 1e-6 if epsilons == "released" else 1e-5

    def branch(x, part, strides=1):
        x = _conv(unit, part, x, strides, **options)
        return group_norm(x, getattr(unit, f"gn{part}"), groups, epsilon)

    shortcut = branch(x, "_proj", strides) if unit.projects else x
    x = np.maximum(branch(x, "1"), 0)
    x = np.maximum(branch(x, "2", strides), 0)
    return np.maximum(branch(x, "3") + shortcut, 0)


def pre_activation_unit(x, unit, filters, strides=1, groups=32):
    options = {"padding": "symmetric", "epsilons": "bit"}

    def active(x, part):
        return np.maximum(group_norm(x, getattr(unit, f"gn{part}"), groups, 1e-5), 0)

    first = active(x, "1")
    shortcut = _conv(unit, "_proj", first, strides, **options) if unit.projects else x
    x = _conv(unit, "1", first, **options)
    x = _conv(unit, "2", active(x, "2"), strides, **options)
    return shortcut + _conv(unit, "3", active(x, "3"), **options)


def with_tokens(x, tokens, after):
    """A sequence with tokens (1, count, size) put in after some of its own."""
    tokens = np.repeat(numpy(tokens), len(x), axis=0)
    return np.concatenate([x[:, :after], tokens, x[:, after:]], axis=1)


def upscale_block(x, block):
    """A transposed convolution, GELU, a convolution of each channel, and a norm."""
    batch, rows, columns, size = x.shape
    x = np.einsum("brci,yxoi->brycxo", x, numpy(block.expand.kernel))
    x = x.reshape(batch, 2 * rows, 2 * columns, size) + numpy(block.expand.bias)
    x = x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    x = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    x = np.einsum("brciyx,yxi->brci", windows, numpy(block.smooth.kernel)[..., 0])
    return layer_norm(x, block.norm)


def _mean_after(x, count):
    return x[:, count:].mean(axis=1)


def distillation_pooling(x, layer, concatenate=False):
    return x[:, :2].reshape(len(x), -1) if concatenate else x[:, :2].mean(axis=1)


def class_token_and_patches(x, layer, num_prefix_tokens=1):
    return np.concatenate([x[:, 0], _mean_after(x, num_prefix_tokens)], axis=1)


# The name of a layer -> its reference.
OUTPUTS = {
    "AddPositionEmbs": lambda x, layer, **_: x + numpy(layer.position_embedding),
    "AddPositionEmbs2D": rows_and_columns,
    "AttentionPooling": attention_pooling,
    "ClassToken": lambda x, layer: with_tokens(x, layer.token, 0),
    "ClassTokenAndPatchPooling": class_token_and_patches,
    "ClassTokenPooling": lambda x, layer: x[:, 0],
    "ClassificationHead": lambda x, layer, units, **_: dense(x, layer),
    "DistillationPooling": distillation_pooling,
    "GroupNorm": group_norm,
    "LayerNorm": layer_norm,
    "LayerScale": lambda x, layer, **_: x * numpy(layer.gamma),
    "MLP": mlp,
    "PatchEncoder": patches,
    "PatchPooling": lambda x, layer, num_prefix_tokens=1: _mean_after(
        x, num_prefix_tokens
    ),
    "PostNormBlock": post_norm_block,
    "PreActivationUnit": pre_activation_unit,
    "QueryPooling": lambda x, layer, num_queries: x[:, :num_queries],
    "RegisterTokens": lambda x, layer, num_registers=4, after=0, **_: with_tokens(
        x, layer.registers, after
    ),
    "ResidualUnit": residual_unit,
    "SelfAttention": self_attention,
    "StdConv2D": std_conv,
    "StochasticDepth": lambda x, layer, **_: x,
    "TransformerBlock": transformer_block,
    "UpscaleBlock": upscale_block,
}


def expected_output(layer, inputs, arguments):
    """What a layer gives of inputs, an array of float64."""
    expected = OUTPUTS[type(layer).__name__](
        inputs.astype("float64"), layer, **arguments
    )
    return expected[0] if isinstance(expected, tuple) else expected

"""Functions that add patches, and what the places of tokens bring, to an ONNX graph.

See `keras_vit.runtimes.onnx.layers`. A grid is an integer value, or two ints where the
images have one size.
"""

import keras
import numpy as np

from keras_vit import layers
from keras_vit.layers.rotation import rotated, turns
from keras_vit.runtimes.onnx.arrays import Array, Arrays
from zoo.network.position_embedding import axis_weights, offset_places, offset_weights


def _patch_grid(graph, layer, value, name, *, shape, **_):
    """Adds the (rows, columns) of patches, an integer value or two ints."""
    if None not in shape[1:]:
        return tuple(np.floor_divide(shape[1:3], layer.patch_size).tolist())
    first = 2 if value in graph.images else 1
    sides = graph.node("Shape", value, start=first, end=first + 2)
    return graph.node("Div", sides, graph.integers(layer.patch_size))


def _patches(graph, layer, value, name, *, shape, **_):
    channels, (patch_height, patch_width) = shape[-1], layer.patch_size
    size = patch_height * patch_width * channels
    grid, number = _patch_grid(graph, layer, value, name, shape=shape), -1
    if isinstance(grid, tuple):
        rows, columns = grid
        number = rows * columns
    else:
        rows, columns = (graph.part(grid, start, start + 1) for start in (0, 1))
    sides = (rows, patch_height, columns, patch_width)
    if value in graph.images:
        value = graph.reshape(value, 0, channels, *sides)
        value = graph.transpose(value, (0, 2, 4, 3, 5, 1))
    else:
        value = graph.reshape(value, 0, *sides, channels)
        value = graph.transpose(value, (0, 1, 3, 2, 4, 5))
    value = graph.reshape(value, 0, number, size)
    kernel = keras.ops.reshape(layer.kernel, (size, layer.hidden_size))
    value = graph.node("MatMul", value, graph.matrix(f"{name}/kernel", kernel))
    return graph.node("Add", value, *graph.weights(name, layer, "bias"))


def _patch_map(graph, layer, tokens, name, *, grid, shape, **_):
    tokens = graph.part(tokens, layer.num_prefix_tokens, axis=1)
    return graph.reshape(tokens, 0, _as_value(graph, grid), shape[-1])


def _positions(graph, layer, value, name, *, grid=None, **_):
    if _is_own(layer, grid):
        table, *_ = graph.weights(name, layer, "position_embedding")
        return graph.node("Add", value, table)
    table, first = layer.table(), layer.num_prefix_tokens
    rows, columns = layer.grid_size
    patches = keras.ops.reshape(table[first:], (rows, -1))
    patches = graph.weight(f"{name}/patches", patches, half=False)
    patches = _along(graph, layer, patches, grid, 0)
    patches = graph.reshape(patches, -1, columns, table.shape[-1])
    patches = _along(graph, layer, patches, grid, 1)
    prefix = graph.weight(f"{name}/prefix", table[None, :first]) if first else None
    return _added(graph, value, patches, table.shape[-1], prefix)


def _positions_2d(graph, layer, value, name, *, grid=None, **_):
    if _is_own(layer, grid):
        return graph.node("Add", value, graph.weight(f"{name}/table", layer.table()))
    half = layer.row_embedding.shape[-1]
    shape = graph.node("Concat", _as_value(graph, grid), graph.integers([half]), axis=0)
    halves = []
    for part, axis in (("column_embedding", 1), ("row_embedding", 0)):
        values = keras.ops.squeeze(getattr(layer, part), 1 - axis)
        values = graph.weight(f"{name}/{part}", values, half=False)
        values = _along(graph, layer, values, grid, axis)
        values = graph.node("Unsqueeze", values, graph.integers([1 - axis]))
        halves.append(graph.node("Expand", values, shape))
    prefix = None
    if layer.num_prefix_tokens:
        prefix = graph.weight(f"{name}/prefix", layer.class_token_embedding[None])
    patches = graph.node("Concat", *halves, axis=-1)
    return _added(graph, value, patches, 2 * half, prefix)


def _is_own(layer, grid):
    """Returns whether a grid is known to be that of a layer's own positions."""
    return grid is None or grid == layer.grid_size


def _as_value(graph, grid):
    """Returns the name of the integer value of a grid."""
    return graph.integers(grid) if isinstance(grid, tuple) else grid


def _along(graph, layer, embeddings, grid, axis):
    """Adds embeddings (..., old places, size) resampled along an axis of a grid."""
    [side] = _sides(graph, grid, axis)
    old = layer.grid_size[axis]
    weights = axis_weights(old, side, layer.resizing, Arrays(graph))
    weights = graph.node("Cast", weights.name, to=graph.onnx.TensorProto.FLOAT)
    return graph.node("MatMul", weights, embeddings)


def _added(graph, tokens, patches, size, prefix):
    """Adds position embeddings (rows, columns, size) and other tokens' to tokens."""
    table = graph.cast(graph.reshape(patches, 1, -1, size), "FLOAT16")
    if prefix is not None:
        table = graph.node("Concat", prefix, table, axis=1)
    return graph.node("Add", tokens, table)


def _sides(graph, grid, *axes):
    """Adds the lengths of a grid's axes, as float64 `Array`s."""
    double = graph.onnx.TensorProto.DOUBLE
    grid = _as_value(graph, grid)
    sides = [graph.node("Gather", grid, graph.integers(axis)) for axis in axes]
    return [Array(graph, graph.node("Cast", side, to=double)) for side in sides]


def _embeddings_of_offsets(graph, layer, query, name, first_alone, grid):
    """Adds what a `RelativePositionEmbedding` adds to scores."""
    [table] = graph.weights(name, layer, "offset_embedding")
    rows = graph.integers(layer.rows(first_alone))
    keys = graph.node("Gather", table, rows, axis=0)
    return graph.node("Einsum", query, keys, equation="bhqd,qkd->bhqk")


def _biases_of_offsets(graph, layer, query, name, first_alone, grid):
    """Adds what a `RelativePositionBias` adds to scores."""
    if _is_own(layer, grid):
        table = graph.weight(f"{name}/table", keras.ops.transpose(layer.table))
        rows = graph.integers(layer.rows[: 1 if first_alone else None])
        return graph.node("Gather", table, rows, axis=1)
    table = graph.transpose(_table_of_offsets(graph, layer, name, grid), (1, 0))
    rows = graph.once(
        ("rows of offsets", layer.num_prefix_tokens, grid),
        lambda: _rows_of_offsets(graph, layer, grid),
    )
    rows = graph.part(rows, 0, 1) if first_alone else rows
    return graph.node("Gather", graph.cast(table, "FLOAT16"), rows, axis=1)


def _rows_of_offsets(graph, layer, grid):
    sides = _sides(graph, grid, 0, 1)
    rows = offset_places(sides, layer.num_prefix_tokens, Arrays(graph))
    return graph.node("Cast", rows.name, to=graph.onnx.TensorProto.INT64)


def _table_of_offsets(graph, layer, name, grid):
    """Adds the table of a `RelativePositionBias` resampled to a grid."""
    down, across = graph.once(
        ("weights of offsets", layer.grid_size, layer.resizing, grid),
        lambda: _weights_of_offsets(graph, layer, grid),
    )
    rows, columns = (2 * side - 1 for side in layer.grid_size)
    heads = layer.table.shape[-1]
    table = keras.ops.convert_to_tensor(layer.table)
    offsets = keras.ops.reshape(table[: rows * columns], (rows, -1))
    offsets = graph.weight(f"{name}/offsets", offsets, half=False)
    offsets = graph.node("MatMul", down, offsets)
    offsets = graph.reshape(offsets, -1, columns, heads)
    offsets = graph.reshape(graph.node("MatMul", across, offsets), -1, heads)
    if not layer.num_prefix_tokens:
        return offsets
    others = graph.weight(f"{name}/others", table[rows * columns :], half=False)
    return graph.node("Concat", offsets, others, axis=0)


def _weights_of_offsets(graph, layer, grid):
    """Adds the matrices that resample the rows and the columns of offsets."""
    sides, arrays = _sides(graph, grid, 0, 1), Arrays(graph)
    matrices = []
    for old, new in zip(layer.grid_size, sides, strict=True):
        weights = offset_weights(old, new, layer.resizing, arrays)
        # At its own grid the table stays; the geometric rule would change it.
        way = arrays.arange(2 * new - 1)[:, None] - np.arange(2.0 * old - 1)
        same = arrays.maximum(1.0 - arrays.abs(way), 0.0)
        for side, own in zip(sides, layer.grid_size, strict=True):
            same = arrays.where(side == own, same, weights)
        matrices.append(graph.node("Cast", same.name, to=graph.onnx.TensorProto.FLOAT))
    return matrices


def _turn_heads(graph, layer, heads, first_alone, grid):
    """Adds queries or keys as `RotaryPositions` turn them."""
    size = layer.head_size
    # Blocks share the values of positions that are alike.
    name = f"rotation/{layer.kind}/{size}"
    alike = (layer.num_prefix_tokens, layer.stretched_to, layer.base)
    if _is_own(layer, grid):
        end, first = (1, "first") if first_alone else (None, "all")
        values = keras.ops.convert_to_numpy(layer.turns())[:, :end, None]
        cosine, sine = (
            graph.weight(f"{name}/{first}/{layer.grid_size}/{alike}/{kind}", part)
            for kind, part in zip(("cosine", "sine"), values, strict=True)
        )
    else:
        both = graph.once((name, alike, grid), lambda: _turns(graph, layer, grid))
        if first_alone:
            both = [graph.part(one, 0, 1) for one in both]
        cosine, sine = both
    # The rotation of each unit vector by a right angle.
    ones = np.eye(size, dtype="float32")[None, None]
    right = np.stack([np.zeros((1, size)), np.ones((1, size))])
    partners = keras.ops.convert_to_numpy(rotated(ones, layer.kind, right))[0, 0]
    partners = graph.weight(f"{name}/partners", partners)
    turned = graph.node("Mul", graph.node("MatMul", heads, partners), sine)
    return graph.node("Add", graph.node("Mul", heads, cosine), turned)


def _turns(graph, layer, grid):
    """Adds the cosines and the sines of a grid, (tokens, 1, head_size) each."""
    size, prefix = layer.head_size, layer.num_prefix_tokens
    sides, stretch, base = _sides(graph, grid, 0, 1), layer.stretched_to, layer.base
    both = turns(layer.kind, sides, size, prefix, stretch, base, xp=Arrays(graph))
    float32 = graph.onnx.TensorProto.FLOAT
    both = [graph.node("Cast", one[:, None].name, to=float32) for one in both]
    return [graph.cast(one, "FLOAT16") for one in both]


FUNCTIONS = {
    layers.AddPositionEmbs: _positions,
    layers.AddPositionEmbs2D: _positions_2d,
    layers.PatchEncoder: _patches,
    layers.PatchGrid: _patch_grid,
    layers.PatchMap: _patch_map,
}
# The class of an attention's positions -> what turns queries and keys, and what is
# added to scores.
POSITIONS = {
    type(None): (None, None),
    layers.RelativePositionEmbedding: (None, _embeddings_of_offsets),
    layers.RelativePositionBias: (None, _biases_of_offsets),
    layers.RotaryPositions: (_turn_heads, None),
}

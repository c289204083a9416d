"""Layers of models for images of any size: their grids, positions and rotations."""

import itertools

import keras
import numpy as np
import pytest
from harness import check_config, normal, numpy, randomize

import zoo
from keras_vit import AddPositionEmbs, layers
from keras_vit.layers import AddPositionEmbs2D, PatchGrid, PatchMap, rotation
from zoo.position_embedding import (
    METHODS,
    RELATIVE_METHODS,
    offset_places,
    relative_positions,
    resize_relative,
)

OWN = (5, 4)
GRIDS = [*itertools.product((1, 2, 5, 7, 12), (1, 3, 4, 9, 17)), (37, 37)]


def in_graph(function):
    """Functions of a grid, called where its shape is known and, if any, where not."""
    yield function
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        spec = tf.TensorSpec((None, None), "int32")
        yield tf.function(function, input_signature=[spec], autograph=False)


def zeros(grid):
    return keras.ops.zeros(grid, "int32")


def close(found, wanted, tolerance):
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prefix", [0, 3])
def test_every_rule_is_that_of_numpy(method, prefix):
    table = normal((1, prefix + 20, 8))
    layer = AddPositionEmbs(
        OWN, resizing=method, num_prefix_tokens=prefix, num_registers=max(prefix - 1, 0)
    )
    layer(keras.Input((None, 8)), grid=keras.Input(batch_shape=(None, None)))
    layer.position_embedding.assign(table)
    for function in in_graph(lambda grid: layer(keras.ops.zeros((1, 1, 8)), grid=grid)):
        np.testing.assert_array_equal(numpy(function(zeros(OWN))), table)
        for grid in GRIDS:
            wanted = zoo.resize(table, OWN, grid, method, prefix)
            close(numpy(function(zeros(grid))), wanted, 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_rows_and_columns(method):
    layer = AddPositionEmbs2D(OWN, resizing=method, num_prefix_tokens=1)
    layer(keras.Input((None, 8)), grid=keras.Input(batch_shape=(None, None)))
    randomize(layer)
    rows, columns = numpy(layer.row_embedding), numpy(layer.column_embedding)
    for function in in_graph(lambda grid: layer(keras.ops.zeros((1, 1, 8)), grid=grid)):
        found = numpy(function(zeros(OWN)))
        np.testing.assert_array_equal(found[0], numpy(layer.table()))
        for grid in GRIDS:
            found = numpy(function(zeros(grid)))[0]
            np.testing.assert_array_equal(found[:1], numpy(layer.class_token_embedding))
            found = found[1:].reshape(*grid, 8)
            wanted = zoo.resize(columns, (1, 4), (1, grid[1]), method)
            close(found[0, :, :4], wanted[0], 1e-6)
            wanted = zoo.resize(rows.swapaxes(0, 1), (5, 1), (grid[0], 1), method)
            close(found[:, 0, 4:], wanted[0], 1e-6)


@pytest.mark.parametrize("reference", [None, (3, 6)])
@pytest.mark.parametrize("kind", ["eva", "perception", "dinov3"])
def test_rotations(kind, reference):
    layer = layers.RotaryPositions(
        kind, OWN, stretched_to=reference, head_size=8, num_prefix_tokens=2
    )
    assert layer(keras.Input(batch_shape=(None, None))).shape == (2, None, 8)
    assert layer(keras.Input(batch_shape=(2, 3))).shape == (2, 8, 8)
    for function in in_graph(layer):
        for grid in (OWN, *GRIDS):
            angles = rotation.angles(kind, grid, 8, 2, reference)
            wanted = np.stack([np.cos(angles), np.sin(angles)])
            close(numpy(function(zeros(grid))), wanted, 1e-7)


@pytest.mark.parametrize("method", RELATIVE_METHODS)
@pytest.mark.parametrize("prefix", [0, 2])
def test_offsets(method, prefix):
    layer = layers.PatchOffsets(OWN, prefix, method)
    count = relative_positions(OWN, prefix)
    weights, rows = layer(keras.Input(batch_shape=(None, None)))
    assert (weights.shape, rows.shape) == ((None, count), (None, None))
    weights, rows = layer(keras.Input(batch_shape=(2, 3)))
    assert weights.shape == (relative_positions((2, 3), prefix), count)
    assert rows.shape == (prefix + 6, prefix + 6)
    table = normal((count, 3))
    for function in in_graph(layer):
        for grid in (OWN, *GRIDS[:-1]):
            weights, rows = map(numpy, function(zeros(grid)))
            wanted = resize_relative(table, OWN, grid, method)
            close(weights @ table, wanted, 1e-6)
            of_grid = layers.RelativePositionBias(grid, max(prefix - 1, 0))
            of_grid.build((None, len(rows), 3, 8))
            np.testing.assert_array_equal(rows, of_grid.rows)


def test_biases_of_pairs_one_by_one():
    """Against the definition, pair by pair."""
    grid, prefix = (3, 4), 2
    found = offset_places(grid, prefix)
    others = relative_positions(grid, 0)
    patches = [None] * prefix + list(itertools.product(range(3), range(4)))
    for (i, query), (j, key) in itertools.product(enumerate(patches), repeat=2):
        if query is None:
            wanted = others + (2 if key is None else 0)
        elif key is None:
            wanted = others + 1
        else:
            wanted = (query[0] - key[0] + 2) * 7 + query[1] - key[1] + 3
        assert found[i, j] == wanted


def test_grids_of_images():
    layer = PatchGrid((4, 2))
    assert layer(keras.Input((None, None, 3))).shape == (None, None)
    assert layer(keras.Input((None, 12, 3))).shape == (None, 6)
    found = layer(normal((2, 8, 12, 3)))
    assert (tuple(found.shape), found.dtype) == ((2, 6), zeros((1,)).dtype)
    tokens = normal((2, 13, 8))
    maps = PatchMap(num_prefix_tokens=1)(tokens, grid=found)
    np.testing.assert_array_equal(numpy(maps), tokens[:, 1:].reshape(2, 2, 6, 8))


def test_configurations():
    check_config(
        layers.PatchOffsets,
        {"grid_size": (4, 6), "num_prefix_tokens": 1, "resizing": "bicubic"},
    )
    check_config(PatchGrid, {"patch_size": (4, 2)})
    check_config(
        layers.RotaryPositions,
        {
            "kind": "eva",
            "grid_size": (4, 6),
            "head_size": 8,
            "num_prefix_tokens": 2,
            "num_registers": 1,
            "stretched_to": (4, 4),
            "base": 50.0,
        },
    )
    check_config(
        layers.RelativePositionBias,
        {
            "grid_size": (2, 3),
            "num_registers": 1,
            "resizing": "bicubic",
            "num_prefix_tokens": 2,
        },
    )
    check_config(layers.RelativePositionEmbedding, {})


def test_what_is_missing_is_named():
    tokens = keras.Input((None, 8))
    grid = keras.Input(batch_shape=(None, None))
    with pytest.raises(ValueError, match="known number of tokens.*num_prefix_tokens"):
        AddPositionEmbs(OWN)(tokens, grid=grid)
    attention = layers.SelfAttention(2, positions=layers.RotaryPositions("eva"))
    with pytest.raises(ValueError, match="needs a grid_size; or pass the block or"):
        attention(tokens)
    turns = layers.RotaryPositions("eva", OWN, head_size=4, num_prefix_tokens=0)(grid)
    assert attention(tokens, grid_positions=turns).shape == tokens.shape
    with pytest.raises(ValueError, match="no grid_size: pass it, or call the layer"):
        PatchMap()(tokens)

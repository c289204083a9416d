"""Positions: resized in a graph as NumPy does, and as models have them."""

import functools
import itertools
import math

import keras
import numpy as np
import pytest
import small_models
from harness import check_refusal, normal, numpy, randomize
from keras import ops

import zoo
from keras_vit import (
    AddPositionEmbs,
    VisionTransformer,
    layers,
    load_released_weights,
    save_released_weights,
)
from keras_vit.layers import AddPositionEmbs2D, PatchGrid, PatchMap, rotation
from keras_vit.structure import num_prefix_tokens
from zoo.network.position_embedding import (
    METHODS,
    RELATIVE_METHODS,
    resize_relative,
)

OWN = (5, 4)
GRIDS = [*itertools.product((1, 5, 12), (1, 3, 17)), (37, 37)]
TOKENS = keras.Input((None, 8))
GRID = keras.Input(batch_shape=(None, None))


def in_graph(function, *spec):
    """Functions of a grid, called where its shape is known and, if any, where not."""
    yield function
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        spec = tf.TensorSpec(*spec or ((None, None), "int32"))
        yield tf.function(function, input_signature=[spec], autograph=False)


def tables(layer):
    """Functions from a grid to what a layer adds to the tokens of that grid."""
    for function in in_graph(lambda grid: layer(ops.zeros((1, 1, 8)), grid=grid)):
        yield lambda grid, function=function: numpy(function(zeros(grid)))[0]


def zeros(grid):
    return ops.zeros(grid, "int32")


def close(found, wanted, tolerance):
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prefix", [0, 3])
def test_a_table_is_resized_as_numpy_does(method, prefix):
    layer = AddPositionEmbs(
        OWN, resizing=method, num_prefix_tokens=prefix, num_registers=max(prefix - 1, 0)
    )
    layer(TOKENS, grid=GRID)
    table = normal((1, prefix + 20, 8))
    layer.position_embedding.assign(table)
    for at in tables(layer):
        np.testing.assert_array_equal(at(OWN), table[0])
        for grid in GRIDS:
            close(at(grid), zoo.resize(table, OWN, grid, method, prefix)[0], 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_rows_and_columns_are_resized_as_numpy_does(method):
    layer = AddPositionEmbs2D(OWN, resizing=method, num_prefix_tokens=1)
    layer(TOKENS, grid=GRID)
    randomize(layer)
    rows, columns = numpy(layer.row_embedding), numpy(layer.column_embedding)
    for at in tables(layer):
        np.testing.assert_array_equal(at(OWN), numpy(layer.table()))
        for grid in GRIDS:
            found = at(grid)
            np.testing.assert_array_equal(found[:1], numpy(layer.class_token_embedding))
            found = found[1:].reshape(*grid, 8)
            wanted = zoo.resize(columns, (1, 4), (1, grid[1]), method)
            close(found[0, :, :4], wanted[0], 1e-6)
            wanted = zoo.resize(rows.swapaxes(0, 1), (5, 1), (grid[0], 1), method)
            close(found[:, 0, 4:], wanted[0], 1e-6)


@pytest.mark.parametrize("reference", [None, (3, 6)])
@pytest.mark.parametrize("kind", ["eva", "perception", "dinov3"])
def test_rotations_of_each_grid(kind, reference):
    layer = layers.RotaryPositions(
        kind, OWN, num_registers=1, stretched_to=reference, num_prefix_tokens=2
    )
    layer.build((None, None, 3, 8))
    for function in in_graph(layer.turns):
        for grid in (OWN, *GRIDS):
            angles = rotation.angles(kind, grid, 8, 2, reference)
            wanted = np.stack([np.cos(angles), np.sin(angles)])
            close(numpy(function(zeros(grid))), wanted, 1e-7)


@pytest.mark.parametrize("method", RELATIVE_METHODS)
@pytest.mark.parametrize("prefix", [0, 2])
def test_biases_of_offsets_are_resized_as_numpy_does(method, prefix):
    layer = layers.RelativePositionBias(OWN, max(prefix - 1, 0), method, prefix)
    layer.build((None, None, 3, 8))
    randomize(layer)
    table = numpy(layer.table)
    assert len(table) == 9 * 7 + (3 if prefix else 0)
    np.testing.assert_array_equal(
        numpy(layer.biases(zeros(OWN))), numpy(layer.biases())
    )
    for function in in_graph(layer.biases):
        for grid in (OWN, *GRIDS[:-1]):
            of_grid = layers.RelativePositionBias(grid, max(prefix - 1, 0))
            of_grid.build((None, prefix + grid[0] * grid[1], 3, 8))
            of_grid.table.assign(resize_relative(table, OWN, grid, method))
            close(numpy(function(zeros(grid))), numpy(of_grid.biases()), 1e-6)


def test_grids_of_images():
    layer = PatchGrid((4, 2))
    assert layer(keras.Input((None, None, 3))).shape == (None, None)
    assert layer(keras.Input((None, 12, 3))).shape == (None, 6)
    found = layer(normal((2, 8, 12, 3)))
    assert (tuple(found.shape), found.dtype) == ((2, 6), zeros((1,)).dtype)
    tokens = normal((2, 13, 8))
    maps = PatchMap(num_prefix_tokens=1)(tokens, grid=found)
    np.testing.assert_array_equal(numpy(maps), tokens[:, 1:].reshape(2, 2, 6, 8))


@pytest.mark.parametrize(
    "positions",
    [
        layers.RelativePositionBias((2, 3), num_prefix_tokens=1),
        layers.RotaryPositions("eva", (2, 3), num_prefix_tokens=1),
    ],
)
def test_fixed_positions_take_tokens_of_unknown_number(positions):
    attention = layers.SelfAttention(2, positions=positions)
    attention.build((None, None, 8))
    randomize(attention)
    tokens = normal((2, 7, 8))
    for function in in_graph(attention, (None, None, 8), "float32"):
        close(numpy(function(tokens)), numpy(attention(tokens)), 1e-6)


def test_positions_belong_to_the_layer_that_is_built_with_them():
    positions = layers.RotaryPositions("eva", (2, 3))
    with pytest.raises(ValueError, match="initial_value"):
        layers.TransformerBlock(2, 8, layer_scale=math.nan, positions=positions)
    first, second = (
        layers.SelfAttention(2, positions=positions, dtype=dtype, name=dtype)
        for dtype in ("float32", "float64")
    )
    first.build((None, 7, 24))
    for refused in (
        lambda: second.build((None, 7, 24)),
        lambda: layers.SelfAttention(2, positions=positions, name="float64"),
    ):
        check_refusal(refused, "float64 got the positions of float32")
        assert positions.dtype_policy.name == "float32"


SIZE = (16, 48)
KINDS = [
    *itertools.product(
        ("learned", "2d"), ("stem", "every_layer", "every_layer_shared")
    ),
    ("relative", "stem"),
    ("none", "stem"),
]


@functools.cache
def random_model(kind, place, pooling="token"):
    """A model with random weights, built once: not to be changed."""
    kind = small_models.positions(kind, place)
    return small_models.made(**kind, image_size=SIZE, pooling=pooling)


@pytest.mark.parametrize(("kind", "place"), KINDS)
@pytest.mark.parametrize("pooling", ["token", "gap"])
def test_patches_know_their_places_where_there_are_positions(pooling, kind, place):
    model = random_model(kind, place, pooling)
    assert num_prefix_tokens(model) == (pooling == "token")
    paths = [variable.path for variable in model.weights]
    assert len(set(paths)) == len(paths)
    images = normal((2, *SIZE, 3))
    swapped = np.concatenate([images[:, 8:], images[:, :8]], axis=1)
    difference = np.abs(numpy(model(swapped) - model(images))).max()
    assert (difference < 1e-5) if kind == "none" else (difference > 1e-2)


@pytest.mark.parametrize(("kind", "place"), KINDS[:6])
def test_where_positions_are_added(kind, place):
    model = random_model(kind, place)
    images = normal((2, *SIZE, 3))
    kinds = (layers.AddPositionEmbs, layers.AddPositionEmbs2D)
    adding = [layer for layer in model.layers if isinstance(layer, kinds)]
    assert len(adding) == (2 if place == "every_layer" else 1)
    tokens = model.get_layer("class_token")(model.get_layer("embedding")(images))
    for index in range(2):
        if index == 0 or place != "stem":
            tokens = adding[index % len(adding)](tokens)
        tokens = model.get_layer(f"encoder_block_{index}")(tokens)
    states = model.get_layer("encoder_norm")(tokens[:, 0])
    expected = numpy(model.get_layer("head")(states))
    np.testing.assert_allclose(numpy(model(images)), expected, atol=1e-5)


@pytest.mark.parametrize(("kind", "place"), KINDS[1:])
def test_released_files_hold_the_learned_ones_at_the_stem_only(kind, place, tmp_path):
    path = tmp_path / "released.npz"
    save_released_weights(random_model("learned", "stem"), path)
    model = random_model(kind, place)
    kept = model.get_weights()
    said = f"position_embedding='{kind}' and position_embedding_at='{place}': leave"
    other = "no learned position embeddings added at the stem"
    for refused, message in (
        (lambda: VisionTransformer(model.config, path, image_size=SIZE), said),
        (lambda: load_released_weights(model, path), other),
        (lambda: save_released_weights(model, tmp_path / "model.npz"), other),
        (lambda: save_released_weights(model, tmp_path / "model.safetensors"), other),
    ):
        check_refusal(refused, message)
    np.testing.assert_equal(model.get_weights(), kept)
    assert [file.name for file in tmp_path.iterdir()] == ["released.npz"]

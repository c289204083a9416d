"""The position embeddings of the paper's appendix D.4, in layers and in models."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
from harness import normal, numpy, randomize
from keras import ops

from keras_vit import (
    VARIANTS,
    VisionTransformer,
    ViTConfig,
    at_image_size,
    layers,
    load_released_weights,
    save_released_weights,
)
from keras_vit.layers.positions import AttentionPositions
from keras_vit.structure import num_prefix_tokens

PLAIN = ViTConfig(hidden_size=24, num_layers=2, num_heads=3, mlp_dim=40, patch_size=8)
# Kind, place, and the parameters it adds to 12 patches (2 x 6) of size 24 in 2 blocks,
# without a class token and with one.
KINDS = [
    ("learned", "stem", 12 * 24, 24),
    ("learned", "every_layer", 2 * 12 * 24, 2 * 24),
    ("learned", "every_layer_shared", 12 * 24, 24),
    ("2d", "stem", (2 + 6) * 12, 24),
    ("2d", "every_layer", 2 * (2 + 6) * 12, 2 * 24),
    ("2d", "every_layer_shared", (2 + 6) * 12, 24),
    ("relative", "stem", 2 * 23 * 8, 2 * 2 * 8),
    ("none", "stem", 0, 0),
]
SIZE = (16, 48)


def config_of(kind, place):
    return dataclasses.replace(
        PLAIN, position_embedding=kind, position_embedding_at=place
    )


@functools.cache
def random_model(config, **kwargs):
    """A model with random weights, built once: not to be changed."""
    model = VisionTransformer(config, image_size=SIZE, classes=5, **kwargs)
    randomize(model)
    return model


# References in float64, written pair by pair and patch by patch.


def table_reference(layer, class_token):
    rows, columns = layer.grid_size
    table = [
        np.concatenate(
            [
                numpy(layer.column_embedding).reshape(columns, -1)[column],
                numpy(layer.row_embedding).reshape(rows, -1)[row],
            ]
        )
        for row in range(rows)
        for column in range(columns)
    ]
    first = [numpy(layer.class_token_embedding)[0]] if class_token else []
    return np.stack(first + table)


def attention_reference(x, layer):
    """Query by query and key by key: the content's score and the offset's."""
    batch, length, hidden_size = x.shape
    query, key, value = (
        x @ numpy(part.kernel) + numpy(part.bias)
        for part in (layer.query, layer.key, layer.value)
    )
    size = hidden_size // layer.num_heads
    embedding = {
        offset: numpy(layer.positions.offset_embedding)[offset + length - 1]
        for offset in range(1 - length, length)
    }
    weights = np.zeros((batch, layer.num_heads, length, length))
    mixed = np.zeros(x.shape)
    for example, head in np.ndindex(batch, layer.num_heads):
        own = slice(head * size, (head + 1) * size)
        for p_query in range(length):
            asks = query[example, p_query, own]
            for p_key in range(length):
                content = asks @ key[example, p_key, own]
                relative = asks @ embedding[p_query - p_key]
                weights[example, head, p_query, p_key] = content / np.sqrt(
                    size
                ) + relative / np.sqrt(size)
            row = np.exp(weights[example, head, p_query])
            weights[example, head, p_query] = row / row.sum()
        mixed[example, :, own] = weights[example, head] @ value[example, :, own]
    return mixed @ numpy(layer.out.kernel) + numpy(layer.out.bias), weights


@pytest.mark.parametrize("class_token", [False, True])
def test_rows_and_columns_are_added(class_token):
    layer = layers.AddPositionEmbs2D((2, 3))
    tokens = normal((2, 6 + class_token, 24))
    layer.build(tokens.shape)
    randomize(layer)
    expected = tokens + table_reference(layer, class_token)
    np.testing.assert_allclose(numpy(layer(tokens)), expected, atol=1e-6)
    # Patches of a row share half, those of a column the other.
    added = (numpy(layer(tokens)) - tokens)[0, class_token:].reshape(2, 3, 24)
    np.testing.assert_allclose(added[0, :, :12], added[1, :, :12], atol=1e-6)
    np.testing.assert_allclose(added[:, :1, 12:], added[:, 1:2, 12:], atol=1e-6)
    assert np.ptp(added[0, :, :12], axis=0).min() > 1e-3


@pytest.mark.parametrize("training", [False, True])
def test_relative_attention(training):
    layer = layers.SelfAttention(3, positions=layers.RelativePositionEmbedding())
    tokens = 2 * normal((2, 7, 24))
    layer.build(tokens.shape)
    randomize(layer)
    # As much in the offset as in the content.
    embedding = layer.positions.offset_embedding
    embedding.assign(normal(embedding.shape))
    expected, expected_weights = attention_reference(tokens.astype("float64"), layer)
    found, weights = layer(tokens, training=training, return_attention_weights=True)
    np.testing.assert_allclose(numpy(found), expected, atol=1e-5)
    np.testing.assert_allclose(numpy(weights), expected_weights, atol=1e-6)
    found = layer(tokens, training=training)
    np.testing.assert_allclose(numpy(found), expected, atol=1e-5)

    first, row = layer(
        tokens, training=training, return_attention_weights=True, class_token_only=True
    )
    np.testing.assert_allclose(numpy(first), expected[:, :1], atol=1e-5)
    np.testing.assert_allclose(numpy(row), expected_weights[:, :, :1], atol=1e-6)

    # The offset has a direction, and a part in the weights.
    for change in (np.flip(numpy(embedding), axis=0), 0.0):
        embedding.assign(change * np.ones((13, 8)))
        _, other = layer(tokens, return_attention_weights=True)
        assert np.abs(numpy(other) - expected_weights).max() > 0.1


def test_relative_blocks_pass_all_arguments_on():
    positions = layers.RelativePositionEmbedding()
    block = layers.TransformerBlock(3, 40, positions=positions)
    tokens = normal((2, 7, 24))
    block.build(tokens.shape)
    randomize(block)
    positions.offset_embedding.assign(normal((13, 8)))
    expected, weights = block(tokens, return_attention_weights=True)
    normed = numpy(block.attention_norm(tokens))
    _, expected_weights = attention_reference(normed, block.attention)
    np.testing.assert_allclose(numpy(weights), expected_weights, atol=1e-5)
    for remat in (False, True):
        block.remat = remat
        first = block(tokens, training=True, class_token_only=True)
        np.testing.assert_allclose(numpy(first), numpy(expected)[:, :1], atol=1e-5)


@pytest.mark.parametrize("positions", ["rotary", layers.RotaryPositions])
def test_positions_are_objects_of_their_class(positions):
    policy = vars(keras.layers.Layer)["dtype_policy"]
    for layer, sizes in ((layers.SelfAttention, [3]), (layers.PostNormBlock, [3, 40])):
        with pytest.raises(ValueError, match="attention.*: positions must be a Rotary"):
            layer(*sizes, positions=positions)
    assert layers.RotaryPositions.dtype_policy is policy


def test_relative_positions_take_none_of_a_grid():
    positions = layers.RelativePositionEmbedding()
    attention = layers.SelfAttention(3, positions=positions)
    with pytest.raises(ValueError, match="leave out grid_positions"):
        attention(normal((2, 7, 24)), grid_positions=normal((2, 7, 8)))


class ScoresPerImage(AttentionPositions):
    def build(self, heads_shape):
        self.length = heads_shape[1]

    def scores(self, query, grid_positions):
        places = ops.arange(self.length, dtype=query.dtype)
        return ops.reshape(places, (1, 1, 1, -1))


def test_scores_of_a_users_positions_may_have_an_axis_of_images():
    attention = layers.SelfAttention(3, positions=ScoresPerImage())
    tokens = normal((2, 7, 24))
    expected, _ = attention(tokens, return_attention_weights=True)
    np.testing.assert_allclose(numpy(attention(tokens)), numpy(expected), atol=1e-5)


def test_attention_knows_the_grid_of_another_image_size():
    images = keras.Input((16, 48, 3))
    tokens = layers.ClassToken()(layers.PatchEncoder(8, 24)(images))
    positions = layers.RotaryPositions("eva", (2, 6))
    block = layers.TransformerBlock(3, 40, positions=positions)
    model = keras.Model(images, block(tokens))
    assert positions.num_prefix_tokens == 1
    [copy] = [
        layer
        for layer in at_image_size(model, (24, 32)).layers
        if isinstance(layer, layers.TransformerBlock)
    ]
    assert copy.positions.grid_size == (3, 4)
    assert copy.positions.num_prefix_tokens == 1


def test_embeddings_start_as_the_learned_ones_do():
    for layer, names in (
        (layers.AddPositionEmbs2D((30, 40)), ("column_embedding", "row_embedding")),
        (layers.RelativePositionEmbedding(), ("offset_embedding",)),
    ):
        layer.build((None, 1201, 200) if len(names) == 2 else (None, 1201, 2, 100))
        for name in names:
            deviation = np.std(numpy(getattr(layer, name)))
            assert deviation == pytest.approx(0.02, rel=0.05)


@functools.cache
def params_without(pooling):
    none = config_of("none", "stem")
    model = VisionTransformer(none, image_size=SIZE, classes=5, pooling=pooling)
    return model.count_params()


# Where they are added makes no difference to what a class token adds to each.
CASES = [("token", *kind) for kind in KINDS]
CASES += [("gap", *kind) for kind in KINDS if kind[1] == "stem"]


@pytest.mark.parametrize(
    ("pooling", "kind", "place", "of_patches", "of_class_token"), CASES
)
def test_models(pooling, kind, place, of_patches, of_class_token, tmp_path):
    options = {"pooling": "gap"} if pooling == "gap" else {}
    model = random_model(config_of(kind, place), **options)
    added = of_patches + (of_class_token if pooling == "token" else 0)
    assert model.count_params() - params_without(pooling) == added
    assert num_prefix_tokens(model) == (pooling == "token")
    if kind == "relative":
        positions = model.get_layer("encoder_block_0").positions
        assert positions.length == 12 + (pooling == "token")
    paths = [variable.path for variable in model.weights]
    assert len(set(paths)) == len(paths)

    images = normal((2, *SIZE, 3))
    found = numpy(model(images))
    # The order of the patches makes a difference exactly where positions are known.
    turned = np.concatenate([images[:, 8:], images[:, :8]], axis=1)
    difference = np.abs(numpy(model(turned)) - found).max()
    assert (difference < 1e-5) if kind == "none" else (difference > 1e-2)

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(loaded(images)), found)


@pytest.mark.parametrize("place", ["stem", "every_layer", "every_layer_shared"])
@pytest.mark.parametrize("kind", ["learned", "2d"])
def test_where_they_are_added(kind, place):
    model = random_model(config_of(kind, place))
    images = normal((2, *SIZE, 3))
    kinds = (layers.AddPositionEmbs, layers.AddPositionEmbs2D)
    adding = [layer for layer in model.layers if isinstance(layer, kinds)]
    assert len(adding) == (2 if place == "every_layer" else 1)

    def table(layer):
        if kind == "learned":
            return numpy(layer.position_embedding)
        return table_reference(layer, class_token=True)

    tokens = model.get_layer("class_token")(model.get_layer("embedding")(images))
    for index in range(2):
        if place != "stem":
            layer = adding[index % len(adding)]
        elif index == 0:
            layer = adding[0]
        else:
            layer = None
        if layer is not None:
            tokens = numpy(tokens) + table(layer)
        block = model.get_layer(f"encoder_block_{index}")
        tokens = block(ops.cast(tokens, "float32"))
    states = model.get_layer("encoder_norm")(tokens[:, 0])
    expected = numpy(model.get_layer("head")(states))
    np.testing.assert_allclose(numpy(model(images)), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "place"), [row[:2] for row in KINDS if row[:2] != ("learned", "stem")]
)
def test_released_files_hold_the_learned_ones_at_the_stem_only(kind, place, tmp_path):
    path = tmp_path / "released.npz"
    save_released_weights(random_model(PLAIN), path)
    config = config_of(kind, place)
    message = f"position_embedding='{kind}' and position_embedding_at='{place}': leave"
    with pytest.raises(ValueError, match=message):
        VisionTransformer(config, path, image_size=SIZE)
    model = random_model(config)
    kept = model.get_weights()
    message = "no learned position embeddings added at the stem, and released files"
    with pytest.raises(ValueError, match=message):
        load_released_weights(model, path)
    for one, other in zip(kept, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    for name in ("model.npz", "model.safetensors"):
        with pytest.raises(ValueError, match=message):
            save_released_weights(model, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_the_variants_have_the_learned_ones_at_the_stem():
    assert all(config.has_released_positions for config in VARIANTS.values())
    model = VisionTransformer(PLAIN, image_size=SIZE)
    assert model.get_layer("position_embedding").grid_size == (2, 6)

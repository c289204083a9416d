import dataclasses
import functools
import itertools
import math

import keras
import numpy as np
import pytest
import small_models
from harness import check_refusal, numpy
from keras import ops
from layer_references import pooling_weights

import keras_vit
from keras_vit import explain
from keras_vit.explain import one_pass
from keras_vit.explain.attention import distance_of
from keras_vit.layers.forward_pass import Watcher, running
from keras_vit.models.bit import BiTResNet
from keras_vit.structure import num_registers, pooling_of
from zoo.network import BiTConfig


def images_of(model, count=2, seed=0):
    shape = (count, *model.input_shape[1:])
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


SEES = (
    explain.attention_maps,
    explain.attention_rollout,
    explain.attention_distance,
    explain.gradient_attention,
    explain.token_features,
)
ONE = np.zeros((1, 32, 48, 3), "float32")


@pytest.mark.parametrize(
    "name", ["token", "pre_logits", "gap", "non_square", "hybrid_three_stages"]
)
def test_maps_and_tokens_are_those_of_the_released_code(name, goldens, golden_index):
    size = golden_index[name]["image_size"]
    model = keras_vit.load_model(goldens / f"{name}.npz", image_size=size)
    expected = np.load(goldens / f"{name}.expected.npz")
    maps = explain.attention_maps(model, expected["images"])
    assert maps.shape == expected["attention"].shape
    np.testing.assert_allclose(maps, expected["attention"], atol=1e-5)
    features = explain.token_features(model, expected["images"])
    tokens = features.patches.reshape(len(features.patches), -1, 48)
    if features.class_token is not None:
        tokens = np.concatenate([features.class_token[:, None], tokens], axis=1)
    assert (features.class_token is None) == (name == "gap")
    np.testing.assert_allclose(tokens, expected["tokens"], atol=4e-5)


# Pixels from patch to patch, the grid of patches and the tokens before them, by hand.
PLACES = dict.fromkeys(small_models.MODELS, ((8, 8), (4, 6), 1)) | {
    "patches not square": ((8, 12), (4, 4), 1),
    "mean of the tokens": ((8, 8), (4, 6), 0),
    "rotary, attention pooling": ((8, 8), (4, 6), 0),
    "registers": ((8, 8), (4, 6), 3),
    "relative biases": ((8, 8), (4, 6), 2),
    "hybrid of no multiple": ((8, 8), (4, 6), 1),
}
NO_MULTIPLE = {"config": small_models.HYBRID, "image_size": (30, 46)}


def rollout_reference(maps):
    """Rollout (images, tokens, tokens) of maps (layers, images, heads, ...)."""
    rollout = np.eye(maps.shape[-1])
    for layer in maps:
        step = layer.mean(axis=1) + np.eye(maps.shape[-1])
        rollout = (step / step.sum(axis=-1, keepdims=True)) @ rollout
    return rollout


def distance_reference(maps, stride, grid):
    """Mean distances (layers, images, heads) of patches to what they attend to."""
    first = maps.shape[-1] - math.prod(grid)
    centres = [
        (stride[0] * (row + 0.5), stride[1] * (column + 0.5))
        for row, column in np.ndindex(grid)
    ]
    lengths = [[math.dist(one, other) for other in centres] for one in centres]
    weights = maps[..., first:, first:]
    return ((weights * lengths).sum(axis=-1) / weights.sum(axis=-1)).mean(axis=-1)


@pytest.mark.parametrize("kind", PLACES)
def test_what_follows_from_maps_equals_numpy(kind):
    known = kind in small_models.MODELS
    model = small_models.shared(kind) if known else small_models.made(**NO_MULTIPLE)
    images = images_of(model)
    stride, grid, prefix = PLACES[kind]
    assert explain.grid_size(model) == grid
    maps = explain.attention_maps(model, images)
    tokens = prefix + math.prod(grid)
    assert maps.shape == (2, 2, 3, tokens, tokens) and maps.dtype == "float32"
    np.testing.assert_allclose(maps.sum(axis=-1), 1, atol=1e-6)
    assert (maps >= 0).all()
    maps = maps.astype("float64")
    for see, expected in (
        (explain.mean_attention_maps, maps.mean(axis=2)),
        (explain.attention_rollout, rollout_reference(maps)),
        (explain.attention_distance, distance_reference(maps, stride, grid)),
    ):
        found = see(model, images)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_heads_that_look_at_the_class_token_alone_have_no_distance():
    weights = np.zeros((1, 3, 25, 25), "float32")
    weights[..., 0] = 1
    # In the second head only one patch does.
    weights[:, 1, 2:] = 1 / 25
    found = distance_of(small_models.shared(), small_models.SIZE)(weights)
    assert np.isnan(found).tolist() == [[True, False, True]]


@pytest.mark.parametrize("at", ["stem", "every_layer", "every_layer_shared"])
@pytest.mark.parametrize("positions", ["learned", "2d"])
def test_similarity_equals_numpy(positions, at):
    model = small_models.made(**small_models.positions(positions, at))
    tables = []
    for layer in model.layers:
        if isinstance(layer, keras_vit.AddPositionEmbs):
            tables.append(numpy(layer.position_embedding)[0, 1:])
        if isinstance(layer, keras_vit.layers.AddPositionEmbs2D):
            row, column = numpy(layer.row_embedding), numpy(layer.column_embedding)
            places = np.ndindex(4, 6)
            tables.append([np.append(column[0, j], row[i, 0]) for i, j in places])
    count = small_models.PLAIN.num_layers if at == "every_layer" else 1
    assert len(tables) == count
    for index, table in enumerate(tables):
        unit = np.array(table) / np.linalg.norm(table, axis=1, keepdims=True)
        expected = (unit @ unit.T).reshape(4, 6, 4, 6)
        found = explain.position_embedding_similarity(model, index)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    check_refusal(
        lambda: explain.position_embedding_similarity(model, count),
        f"position embeddings in {count} places",
    )


def slopes(model, image, asked, maps, adding):
    """The class's output by each attention weight, from a small change of each.

    `adding` is a function from a change to a watcher that adds it.
    """
    steps = 0.02 * np.eye(maps.size, dtype="float32").reshape(-1, *maps.shape)
    outputs = []
    for change in (steps, -steps):
        with running(watcher=adding(ops.convert_to_tensor(change))):
            found = model(np.repeat(image[None], maps.size, axis=0))
        outputs.append(numpy(found)[:, asked])
    return ((outputs[0] - outputs[1]) / 0.04).reshape(maps.shape)


def adding_to(layer):
    """A watcher that adds a change to the attention weights of one layer."""

    def adding(change):
        count = itertools.count()
        return Watcher(
            lambda weights: weights + change if next(count) == layer else weights
        )

    return adding


NARROW = dataclasses.replace(small_models.PLAIN, hidden_size=8, num_heads=2)


@pytest.mark.parametrize("pooling", ["token", "gap"])
def test_gradient_attention_equals_small_changes(pooling):
    model = small_models.made(NARROW, image_size=(16, 16), pooling=pooling)
    images = images_of(model, 2)
    maps = explain.attention_maps(model, images)
    found = explain.gradient_attention(model, images, [3, 1])
    for index, asked in enumerate((3, 1)):
        expected = np.eye(maps.shape[-1])
        for layer in range(2):
            weights = maps[layer, index]
            slope = slopes(model, images[index], asked, weights, adding_to(layer))
            expected = expected + np.maximum(slope * weights, 0).mean(axis=0) @ expected
        limit = 2e-3 * np.abs(expected - np.eye(len(expected))).max()
        np.testing.assert_allclose(found[index], expected, atol=limit)


def test_gradient_of_a_pooling_equals_small_changes():
    config = dataclasses.replace(
        NARROW, num_registers=1, tokens_with_positions="patches"
    )
    model = small_models.made(config, image_size=(16, 16), pooling="map")
    images = images_of(model, 2)
    weights = explain.pooling_attention(model, images)
    matrices, found = explain.gradient_attention(model, images, [3, 1], True)
    np.testing.assert_array_equal(
        matrices, explain.gradient_attention(model, images, [3, 1])
    )

    def adding(change):
        return Watcher(pooling=functools.partial(ops.add, change))

    for index, asked in enumerate((3, 1)):
        # The register, which the pooling leaves out, comes first.
        one = weights[index][:, None, 1:]
        slope = slopes(model, images[index], asked, one, adding)
        expected = np.maximum(slope * one, 0).mean(axis=0)[0]
        assert found[index, 0] == 0
        limit = 2e-3 * expected.max()
        np.testing.assert_allclose(found[index, 1:], expected, atol=limit)


def pooling_reference(model, images):
    """Weights (images, heads, tokens) of the pooling in float64, from its tokens."""
    layer = model.get_layer("pooling")
    tokens = numpy(keras.Model(model.input, layer.input)(images))
    first = layer.num_prefix_tokens
    weights, _ = pooling_weights(tokens[:, first:], layer, layer.num_heads)
    return np.pad(weights, ((0, 0), (0, 0), (first, 0)))


# Perception Encoder's pooling reads all tokens, others leave registers out.
POOLED_BY_ATTENTION = {
    "all tokens": small_models.MODELS["rotary, attention pooling"],
    "no registers": small_models.of(
        small_models.PLAIN, num_registers=2, tokens_with_positions="patches"
    )
    | {"pooling": "map"},
}


@pytest.mark.parametrize("kind", POOLED_BY_ATTENTION)
def test_the_attention_of_a_pooling_equals_numpy(kind):
    model = small_models.made(**POOLED_BY_ATTENTION[kind])
    # As small as it begins, its attention would be nearly even.
    layer = model.get_layer("pooling")
    layer.probe.assign(8 * numpy(layer.probe))
    images = images_of(model, 3)
    expected = pooling_reference(model, images)
    found = explain.pooling_attention(model, images)
    assert found.shape == expected.shape and found.dtype == "float32"
    assert expected.std() > 0.02
    np.testing.assert_allclose(found, expected, atol=1e-5)
    registers = num_registers(model)
    assert (found[..., :registers] == 0).all()

    # Followed back through all layers: the rows that its heads attend to, on average.
    rollout = explain.attention_rollout(model, images)
    rows = np.einsum("bk,bkt->bt", expected.mean(axis=1), rollout.astype("float64"))
    grid = explain.grid_size(model)
    picture = explain.patch_map(rollout, grid, found.mean(axis=1), registers)
    wanted = rows[:, registers:].reshape(-1, *grid)
    np.testing.assert_allclose(picture, wanted, atol=1e-6)
    mean = explain.patch_map(rollout, grid, "gap", registers)
    assert np.abs(mean - picture).max() > 1e-3

    seen = one_pass.inspect(model, images)
    np.testing.assert_allclose(seen.rollout, wanted, atol=1e-6)
    pooled = expected[..., registers:].reshape(*expected.shape[:2], *grid)
    np.testing.assert_allclose(seen.pooled, pooled, atol=1e-5)
    np.testing.assert_array_equal(seen.of_image(1).pooled, seen.pooled[1])


def test_one_pass_gives_what_the_functions_give():
    model = small_models.shared("registers")
    images = images_of(model)
    seen = one_pass.inspect(model, images)
    maps = explain.attention_maps(model, images)
    received = [explain.received_attention(layer, (4, 6), 2) for layer in maps]
    for found, expected in (
        (seen.outputs, numpy(model(images))),
        (seen.distance, explain.attention_distance(model, images)),
        (seen.received, np.stack(received)),
        (seen.features.patches, explain.token_features(model, images).patches),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert seen.pooled is None
    assert explain.gradient_attention(model, images, return_pooling=True)[1] is None


def test_gradient_attention_asks_for_the_likeliest_class():
    model = small_models.shared()
    images = images_of(model)
    likeliest = numpy(model(images)).argmax(axis=1)
    found = explain.gradient_attention(model, images)
    expected = explain.gradient_attention(model, images, likeliest)
    np.testing.assert_array_equal(found, expected)
    one, other = explain.gradient_attention(model, images[[0, 0]], [2, 3])
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_sees_nearly_the_same(policy):
    model = small_models.shared()
    images = images_of(model, 1)
    half = small_models.made(dtype=policy)
    half.set_weights(model.get_weights())
    for see in (
        explain.attention_rollout,
        lambda *given: explain.gradient_attention(*given, 1),
        lambda *given: explain.token_features(*given).patches,
    ):
        expected, found = see(model, images), see(half, images)
        assert found.dtype == "float32"
        error = np.abs(found - expected).max()
        assert 0 < error < 5e-2 * np.abs(expected).max()


def test_filters_are_the_principal_components():
    model = small_models.shared()
    found = explain.embedding_filters(model, components=5)
    kernel = numpy(model.get_layer("embedding").kernel)
    np.testing.assert_array_equal(found.kernel, kernel.astype("float32"))
    filters = kernel.reshape(-1, 24).T
    values, vectors = np.linalg.eigh(np.cov(filters.T))
    order = np.argsort(-values)[:5]
    np.testing.assert_allclose(
        found.explained_variance_ratio, values[order] / values.sum(), rtol=1e-5
    )
    for component, vector in zip(found.components, vectors.T[order], strict=True):
        assert abs(abs(component.ravel() @ vector) - 1) < 1e-5
        assert component.ravel()[np.abs(component).argmax()] > 0
    assert found.layer == "embedding"
    assert explain.embedding_filters(model).components.shape == (23, 8, 8, 3)


def test_filters_of_hybrids_and_of_bit_are_those_of_their_root():
    for model, root in (
        (small_models.shared("hybrid"), "conv_root"),
        (bit(), "root_conv"),
    ):
        found = explain.embedding_filters(model)
        assert found.layer == root
        assert found.components.shape == (28, 7, 7, 3)
        np.testing.assert_allclose(found.kernel.mean(axis=(0, 1, 2)), 0, atol=1e-6)
        np.testing.assert_allclose(found.kernel.std(axis=(0, 1, 2)), 1, atol=1e-3)


def test_colors_tell_features_apart():
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(4, 16))
    places = rng.integers(4, size=(2, 5, 7))
    patches = kinds[places] + 0.01 * rng.normal(size=(2, 5, 7, 16))
    colors = explain.principal_colors(patches)
    assert colors.shape == (2, 5, 7, 3)
    assert (colors.min(), colors.max()) == (0, 1)
    means = [colors[places == kind].mean(axis=0) for kind in range(4)]
    for kind in range(4):
        assert colors[places == kind].std(axis=0).max() < 0.05
    for one, other in itertools.combinations(means, 2):
        assert np.abs(one - other).max() > 0.2


def test_layers_and_heads_are_chosen():
    model = small_models.shared()
    images = images_of(model)
    maps = explain.attention_maps(model, images)
    chosen = explain.attention_maps(model, images, layers=[-1, 0, 1], heads=[2, -3])
    np.testing.assert_array_equal(chosen, maps[[1, 0, 1]][:, :, [2, 0]])
    one = explain.attention_maps(model, images, layers=-1, heads=1)
    np.testing.assert_array_equal(one, maps[1:, :, 1:2])


def test_many_images_go_in_parts(monkeypatch):
    model = small_models.shared()
    images = images_of(model, 3)
    seen = (
        explain.attention_maps,
        explain.attention_rollout,
        explain.attention_distance,
        lambda *given: explain.token_features(*given).patches,
    )
    whole = [see(model, images) for see in seen]
    # Two at a time.
    monkeypatch.setattr("keras_vit.explain.running._NUMBERS_AT_ONCE", 2 * 3 * 25**2)
    for see, expected in zip(seen, whole, strict=True):
        np.testing.assert_allclose(see(model, images), expected, rtol=1e-4, atol=1e-6)


def test_pictures_of_the_pooled_state():
    matrix = np.arange(49.0).reshape(7, 7)
    np.testing.assert_array_equal(
        explain.patch_map(matrix, (2, 3)), [[1, 2, 3], [4, 5, 6]]
    )
    without = explain.patch_map(matrix[None, :6, :6], (2, 3))
    np.testing.assert_array_equal(without, [[[17.5, 18.5, 19.5], [20.5, 21.5, 22.5]]])


def test_models_of_other_making():
    model = small_models.shared()
    images = images_of(model, 1)
    expected = explain.attention_maps(model, images)
    inputs = keras.Input((32, 48, 3))
    outer = keras.Model(inputs, keras.layers.Softmax()(model(inputs)))
    np.testing.assert_array_equal(explain.attention_maps(outer, images), expected)
    assert explain.gradient_attention(outer, images).shape == (1, 25, 25)

    int8 = keras_vit.quantize_weights(model)
    difference = np.abs(explain.attention_maps(int8, images) - expected)
    assert 0 < difference.max() < 0.02
    kernel = explain.embedding_filters(int8).kernel
    assert 0 < np.abs(kernel - explain.embedding_filters(model).kernel).max() < 0.01


def test_maps_of_a_model_that_averages_patches_beside_a_class_token():
    model = small_models.patches_averaged()
    images = images_of(model)
    grid = explain.grid_size(model)
    assert pooling_of(model) == "gap"
    rollout = explain.attention_rollout(model, images)
    found = explain.patch_map(rollout, grid, "gap")
    expected = rollout[:, 1:, 1:].mean(axis=1).reshape(2, *grid)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert explain.gradient_attention(model, images).shape == (2, 25, 25)


def test_attention_sinks_are_at_the_border_and_ten_times_an_even_share():
    received = np.full((2, 6, 8), 0.01)
    # A sink, one a little below ten forty-eighths, and one inside the picture.
    received[0, 0, 7] = received[1, 2, 3] = 10 / 48 + 1e-6
    received[1, 5, 0] = 10 / 48 - 1e-6
    assert np.argwhere(explain.attention_sinks(received)).tolist() == [[0, 0, 7]]


def test_received_attention_is_the_mean_over_heads_and_queries():
    weights = np.random.default_rng(0).random((2, 3, 7, 7))
    found = explain.received_attention(weights, (2, 3))
    for row, column in np.ndindex(2, 3):
        keys = weights[..., 1 + 3 * row + column]
        expected = [keys[image].sum() / 21 for image in range(2)]
        np.testing.assert_allclose(found[:, row, column], expected)
    # Without a class token, all keys are patches.
    even = explain.received_attention(np.full((1, 1, 6, 6), 1 / 6), (2, 3))
    np.testing.assert_allclose(even, 1 / 6)


def block_called_twice():
    images = keras.Input((32, 48, 3))
    block = keras_vit.TransformerBlock(num_heads=3, mlp_dim=40)
    tokens = keras_vit.PatchEncoder(8, 24)(images)
    return keras.Model(images, block(block(tokens)))


def bit():
    return BiTResNet(BiTConfig((1, 1)), image_size=(32, 48), classes=2)


@pytest.mark.parametrize(
    ("make", "images", "words"),
    [
        (bit, ONE, "no TransformerBlock|PatchEncoder"),
        (small_models.shared, ONE[0], r"images of shape \(images, 32, 48"),
        (small_models.shared, ONE.swapaxes(1, 2), "build the model with their image_"),
        (small_models.shared, ONE[:0], "at least one"),
        (small_models.shared, ONE.astype("uint8"), "keras_vit.preprocess_input"),
    ],
)
def test_what_cannot_be_looked_into_is_refused(make, images, words):
    model = make()
    for see in SEES:
        with pytest.raises(ValueError, match=words):
            see(model, images)


def on_the_mean_of_patches():
    model = small_models.patches_averaged()
    return keras.Model(model.input, model.get_layer("pooling").output)


def gradients_of(make, classes=None, count=1):
    return explain.gradient_attention(make(), np.repeat(ONE, count, axis=0), classes)


def similarity_of(kind):
    model = small_models.made(**small_models.positions(kind))
    return explain.position_embedding_similarity(model)


def new():
    return keras_vit.VisionTransformer(small_models.PLAIN, image_size=(32, 48))


shared = small_models.shared
NO_HEAD = "no head that gives"
REFUSED = [
    (lambda: explain.attention_maps(shared(), ONE, layers=[2]),
     "has no layer 2: pass numbers from -2 to 1"),
    (lambda: explain.attention_maps(shared(), ONE, heads=[-4]), "has no head -4: pa"),
    (lambda: explain.attention_maps(shared(), ONE, layers=["a"]), "has no layer a: p"),
    (lambda: explain.token_features(shared(), ONE, layer=2), "no layer 2"),
    (lambda: explain.pooling_attention(shared(), ONE),
     "has no layers of class AttentionPooling"),
    (lambda: similarity_of("none"), "no position emb"),
    (lambda: similarity_of("relative"), "relative positions"),
    (lambda: gradients_of(shared, 5), "no class 5: pass one of 0 to 4"),
    (lambda: gradients_of(shared, "cat"), "no class 'cat': pass one of 0 to 4"),
    (lambda: gradients_of(shared, [0, 1, 2], 2), "3 classes for 2 images: pass one"),
    (lambda: gradients_of(new), "its head is new"),
    (lambda: gradients_of(lambda: shared("pre-logits without head")), NO_HEAD),
    (lambda: gradients_of(on_the_mean_of_patches), NO_HEAD),
    (lambda: explain.attention_maps(block_called_twice(), ONE), "more than once"),
    (lambda: explain.patch_map(np.eye(29), (4, 6)), "num_registers where there are"),
    (lambda: explain.patch_map(np.eye(7), (2, 2)), "a grid of 2x2 patches and at",
     "got 7 tokens: pass the grid that"),
    (lambda: explain.patch_map(np.eye(4), (2, 2), "token"), "pooling must be",
     "got 'token' for 4"),
    (lambda: explain.patch_map(np.ones((3, 24, 24)), (4, 6), np.zeros((3, 5))),
     "pooling has shape (3, 5) for a matrix of"),
    (lambda: explain.principal_colors(np.zeros((1, 1, 2, 16))), "at least 4 patches"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_refused_by_name_with_what_to_do(row):
    call, *parts = row
    check_refusal(call, *parts)

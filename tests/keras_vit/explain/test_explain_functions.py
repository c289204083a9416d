import dataclasses
import functools
import itertools
import math
import weakref

import keras
import numpy as np
import pytest
import small_models
from keras import ops

import keras_vit
from keras_vit import explain
from keras_vit.explain import one_pass
from keras_vit.explain.attention import by_layer
from keras_vit.layers.forward_pass import Watcher, running
from keras_vit.models.bit import BiTResNet
from keras_vit.structure import num_layers, num_registers, patch_stride, pooling_of
from zoo.network import BiTConfig

GOLDENS = (
    "token",
    "pre_logits",
    "gap",
    "non_square",
    "hybrid_stem",
    "hybrid_three_stages",
)
KINDS = sorted(small_models.MODELS)


def images_of(model, count=2, seed=0):
    shape = (count, *model.input_shape[1:])
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def golden(name, goldens, index):
    """The model of a golden, and what the released one computed."""
    facts = index[name]
    file = goldens / f"{facts.get('checkpoint', name)}.npz"
    model = keras_vit.load_model(str(file), image_size=facts["image_size"])
    return model, np.load(goldens / f"{name}.expected.npz")


@pytest.mark.parametrize("name", GOLDENS)
def test_goldens(name, goldens, golden_index):
    model, expected = golden(name, goldens, golden_index)
    maps = explain.attention_maps(model, expected["images"])
    stored = expected["attention"]
    assert maps.shape == stored.shape
    np.testing.assert_allclose(maps, stored, atol=1e-5)
    features = explain.token_features(model, expected["images"])
    tokens = features.patches.reshape(len(features.patches), -1, 48)
    if features.class_token is not None:
        tokens = np.concatenate([features.class_token[:, None], tokens], axis=1)
    assert (features.class_token is None) == (name == "gap")
    np.testing.assert_allclose(tokens, expected["tokens"], atol=1e-5 * 4)


@pytest.mark.parametrize("kind", KINDS)
def test_maps_means_and_rollout_equal_numpy(kind):
    model = small_models.shared(kind)
    images = images_of(model)
    maps = explain.attention_maps(model, images)
    others = {"mean of the tokens": 0, "rotary, attention pooling": 0}
    others |= {"registers": 3, "relative biases": 2}
    tokens = 24 + others.get(kind, 1)
    if kind == "patches not square":
        tokens = 4 * 4 + 1
    assert maps.shape == (2, 2, 3, tokens, tokens)
    assert maps.dtype == "float32"
    means = explain.mean_attention_maps(model, images)
    rollouts = explain.attention_rollout(model, images)
    for rows in (maps, means, rollouts):
        assert (rows >= 0).all()
        np.testing.assert_allclose(rows.sum(axis=-1), 1, atol=1e-6)
    maps = maps.astype("float64")
    np.testing.assert_allclose(means, maps.mean(axis=2), atol=1e-6)
    for index, rollout in enumerate(rollouts):
        expected = np.eye(maps.shape[-1])
        for layer in maps[:, index]:
            step = sum(layer) / len(layer) + np.eye(len(expected))
            expected = (step / step.sum(axis=1)[:, None]).dot(expected)
        np.testing.assert_allclose(rollout, expected, atol=1e-6)


# Pixels from patch to patch, and the grid of patches, by hand.
PLACES = {
    "plain": ((8, 8), (4, 6)),
    "patches not square": ((8, 12), (4, 4)),
    "mean of the tokens": ((8, 8), (4, 6)),
    "registers": ((8, 8), (4, 6)),
    "hybrid": ((8, 8), (4, 6)),
    "hybrid of no multiple": ((8, 8), (4, 6)),
    "relative": ((8, 8), (4, 6)),
}
NO_MULTIPLE = {"config": small_models.HYBRID, "image_size": (30, 46)}


@pytest.mark.parametrize("kind", PLACES)
def test_distance_equals_numpy(kind):
    known = kind in small_models.MODELS
    model = small_models.shared(kind) if known else small_models.made(**NO_MULTIPLE)
    images = images_of(model)
    (down, across), (rows, columns) = PLACES[kind]
    assert explain.grid_size(model) == (rows, columns)
    maps = explain.attention_maps(model, images).astype("float64")
    first = maps.shape[-1] - rows * columns
    centres = [
        (down * (row + 0.5), across * (column + 0.5))
        for row, column in itertools.product(range(rows), range(columns))
    ]
    found = explain.attention_distance(model, images)
    assert found.shape == (2, 2, 3)
    for layer, image, head in np.ndindex(found.shape):
        weights = maps[layer, image, head, first:, first:]
        lengths = [
            sum(
                weight * np.linalg.norm(np.subtract(centre, other))
                for weight, other in zip(row, centres, strict=True)
            )
            / sum(row)
            for row, centre in zip(weights, centres, strict=True)
        ]
        np.testing.assert_allclose(
            found[layer, image, head], np.mean(lengths), rtol=1e-5
        )


def test_distance_of_heads_that_look_everywhere():
    model = small_models.made()
    attention = model.get_layer("encoder_block_0").attention
    attention.query.kernel.assign(np.zeros((24, 24)))
    attention.query.bias.assign(np.zeros(24))
    places = list(itertools.product(range(4), range(6)))
    uniform = np.mean(
        [
            8 * np.linalg.norm(np.subtract(one, other))
            for one, other in itertools.product(places, places)
        ]
    )
    found = explain.attention_distance(model, images_of(model, 1))
    np.testing.assert_allclose(found[0], uniform, rtol=1e-5)
    assert np.abs(found[1] - uniform).max() > 0.1


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_distance_of_heads_that_look_at_the_class_token_alone():
    model = small_models.made()
    for name in ("embedding", "position_embedding"):
        layer = model.get_layer(name)
        layer.set_weights([np.zeros(weight.shape) for weight in layer.weights])
    # The norm leaves the patches at zero and the class token at one and minus one.
    signs = np.tile([1.0, -1.0], 12)
    model.get_layer("class_token").token.assign(signs[None, None])
    block = model.get_layer("encoder_block_0")
    block.attention_norm.set_weights([np.ones(24), np.zeros(24)])
    for projection, kernel in (
        (block.attention.query, np.zeros((24, 24))),
        (block.attention.key, np.outer(signs, np.ones(24))),
    ):
        projection.kernel.assign(kernel)
        projection.bias.assign(np.full(24, 10.0))
    distance = explain.attention_distance(model, images_of(model, 1))
    assert np.isnan(distance[0]).all()
    assert np.isfinite(distance[1]).all()


@pytest.mark.parametrize("at", ["stem", "every_layer", "every_layer_shared"])
@pytest.mark.parametrize("positions", ["learned", "2d"])
def test_similarity_equals_numpy(positions, at):
    model = small_models.made(**small_models.positions(positions, at))
    count = small_models.PLAIN.num_layers if at == "every_layer" else 1
    tables = []
    for layer in model.layers:
        if isinstance(layer, keras_vit.AddPositionEmbs):
            tables.append(np.array(layer.position_embedding)[0, 1:])
        if isinstance(layer, keras_vit.layers.AddPositionEmbs2D):
            row, column = (
                np.array(layer.row_embedding),
                np.array(layer.column_embedding),
            )
            tables.append(
                [
                    np.concatenate([column[0, j], row[i, 0]])
                    for i, j in itertools.product(range(4), range(6))
                ]
            )
    assert len(tables) == count
    for index, table in enumerate(tables):
        similarity = explain.position_embedding_similarity(model, index)
        for i, j, k, m in np.ndindex(4, 6, 4, 6):
            one, other = (np.float64(table[6 * a + b]) for a, b in ((i, j), (k, m)))
            cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
            assert abs(similarity[i, j, k, m] - cosine) < 1e-6
    with pytest.raises(ValueError, match=f"position embeddings in {count} places"):
        explain.position_embedding_similarity(model, count)


def test_models_without_embeddings_of_places_say_so():
    for kind, words in (
        ("none", "no position emb"),
        ("relative", "relative positions"),
    ):
        model = small_models.made(**small_models.positions(kind))
        with pytest.raises(ValueError, match=words):
            explain.position_embedding_similarity(model)


def changing(layer, change):
    """A watcher that adds something to the attention weights of one layer."""
    layers = itertools.count()
    return Watcher(
        lambda weights: weights + change if next(layers) == layer else weights
    )


def slopes(model, image, asked, layer, maps):
    """The class's output by each attention weight, from a small change of each."""
    steps = 0.02 * np.eye(maps.size, dtype="float32").reshape(-1, *maps.shape)
    outputs = []
    for change in (steps, -steps):
        with running(watcher=changing(layer, ops.convert_to_tensor(change))):
            found = model(np.repeat(image, maps.size, axis=0))
        outputs.append(ops.convert_to_numpy(found)[:, asked].astype("float64"))
    return ((outputs[0] - outputs[1]) / 0.04).reshape(maps.shape)


@pytest.mark.parametrize("pooling", ["token", "gap"])
def test_gradient_attention_equals_small_changes(pooling):
    config = dataclasses.replace(small_models.PLAIN, hidden_size=8, num_heads=2)
    model = small_models.made(config, image_size=(16, 16), pooling=pooling)
    images = images_of(model, 2)
    maps = explain.attention_maps(model, images)
    found = explain.gradient_attention(model, images, [3, 1])
    for index, asked in enumerate((3, 1)):
        expected = np.eye(maps.shape[-1])
        for layer in range(2):
            weights = maps[layer, index]
            slope = slopes(model, images[index : index + 1], asked, layer, weights)
            expected = expected + np.maximum(slope * weights, 0).mean(axis=0) @ expected
        off = expected - np.eye(len(expected))
        np.testing.assert_allclose(
            found[index] - np.eye(len(expected)), off, atol=2e-3 * np.abs(off).max()
        )


def pooling_reference(model, images):
    """Weights (images, heads, tokens) of the pooling in float64, from its tokens."""
    layer = model.get_layer("pooling")
    reads = keras.Model(model.input, layer.input)(images)
    tokens = ops.convert_to_numpy(reads).astype("float64")

    def projected(part, values):
        kernel, bias = (ops.convert_to_numpy(weight) for weight in part.weights)
        found = values @ kernel.astype("float64") + bias
        return found.reshape(*found.shape[:-1], layer.num_heads, -1)

    query = projected(layer.query, ops.convert_to_numpy(layer.probe)[0, 0])
    key = projected(layer.key, tokens[:, layer.num_prefix_tokens :])
    weights = np.zeros((len(images), layer.num_heads, tokens.shape[1]))
    for image, head in np.ndindex(weights.shape[:2]):
        scores = key[image, :, head] @ query[head] / math.sqrt(len(query[head]))
        shares = np.exp(scores - scores.max())
        weights[image, head, layer.num_prefix_tokens :] = shares / shares.sum()
    return weights


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
    layer.probe.assign(8 * ops.convert_to_numpy(layer.probe))
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
    rows = np.stack(
        [
            sum(
                one[:, number].mean() * matrix[number] for number in range(one.shape[1])
            )
            for one, matrix in zip(expected, rollout.astype("float64"), strict=True)
        ]
    )
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
    with pytest.raises(ValueError, match=r"pooling has shape \(3, 5\) for a matrix of"):
        explain.patch_map(rollout, grid, np.zeros((3, 5)), registers)


def test_other_models_have_no_attention_of_a_pooling():
    model = small_models.shared()
    images = images_of(model)
    with pytest.raises(ValueError, match="has no layers of class AttentionPooling"):
        explain.pooling_attention(model, images)
    assert one_pass.inspect(model, images).pooled is None
    _, pooled = explain.gradient_attention(model, images, return_pooling=True)
    assert pooled is None


def test_gradient_of_a_pooling_equals_small_changes():
    config = dataclasses.replace(
        small_models.PLAIN,
        hidden_size=8,
        num_heads=2,
        num_registers=1,
        tokens_with_positions="patches",
    )
    model = small_models.made(config, image_size=(16, 16), pooling="map")
    images = images_of(model, 2)
    weights = explain.pooling_attention(model, images)
    matrices, found = explain.gradient_attention(model, images, [3, 1], True)
    np.testing.assert_array_equal(
        matrices, explain.gradient_attention(model, images, [3, 1])
    )
    for index, asked in enumerate((3, 1)):
        # The register, which the pooling leaves out, comes first.
        one = weights[index][:, None, 1:]
        steps = 0.02 * np.eye(one.size, dtype="float32").reshape(-1, *one.shape)
        outputs = []
        for change in (steps, -steps):
            watcher = Watcher(pooling=functools.partial(ops.add, change))
            with running(watcher=watcher):
                given = np.repeat(images[index : index + 1], one.size, axis=0)
                outputs.append(ops.convert_to_numpy(model(given))[:, asked])
        slope = ((outputs[0] - outputs[1]) / 0.04).reshape(one.shape)
        expected = np.maximum(slope * one, 0).mean(axis=0)[0]
        assert found[index, 0] == 0
        np.testing.assert_allclose(
            found[index, 1:], expected, atol=2e-3 * expected.max()
        )


def test_gradient_attention_asks_for_the_likeliest_class():
    model = small_models.made(**small_models.of(small_models.PLAIN, num_layers=1))
    model.get_layer("head").bias.assign(np.zeros(5))
    images = images_of(model, 6)
    likeliest = ops.convert_to_numpy(model(images)).argmax(axis=1)
    first, second = np.unique(likeliest, return_index=True)[1][:2]
    images, likeliest = images[[first, second]], likeliest[[first, second]]
    np.testing.assert_array_equal(
        explain.gradient_attention(model, images),
        explain.gradient_attention(model, images, likeliest),
    )
    one, other = explain.gradient_attention(model, images[[0, 0]], [2, 3])
    assert np.abs(one - other).max() > 1e-3


def test_half_precision_sees_nearly_the_same():
    model = small_models.shared()
    images = images_of(model, 1)
    kept = keras.config.dtype_policy()
    halves = []
    for precision in ("mixed_float16", "mixed_bfloat16"):
        keras.config.set_dtype_policy(precision)
        try:
            halves.append(small_models.made())
        finally:
            keras.config.set_dtype_policy(kept)
        halves[-1].set_weights(model.get_weights())
    for see, tolerance in (
        (explain.attention_maps, 3e-2),
        (explain.attention_rollout, 3e-2),
        (lambda *given: explain.gradient_attention(*given, 1), 5e-2),
        (lambda *given: explain.token_features(*given).patches, 1e-1),
    ):
        expected = see(model, images)
        for half in halves:
            found = see(half, images)
            assert found.dtype == "float32"
            error = np.abs(found - expected).max()
            assert error < tolerance * np.abs(expected).max()
    dtypes = [half.get_layer("embedding").compute_dtype for half in halves]
    assert dtypes == ["float16", "bfloat16"]


def test_filters_are_the_principal_components():
    model = small_models.shared()
    found = explain.embedding_filters(model, components=5)
    kernel = ops.convert_to_numpy(model.get_layer("embedding").kernel).astype("float64")
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


def test_filters_of_a_hybrid_are_those_of_its_root():
    model = small_models.shared("hybrid")
    found = explain.embedding_filters(model)
    assert found.layer == "conv_root"
    assert found.components.shape == (28, 7, 7, 3)
    np.testing.assert_allclose(found.kernel.mean(axis=(0, 1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(found.kernel.std(axis=(0, 1, 2)), 1, atol=1e-3)


def test_bit_has_filters_and_no_attention():
    config = BiTConfig(depths=(1, 1), width_factor=1)
    model = BiTResNet(config, image_size=32, classes=2)
    assert explain.embedding_filters(model).components.shape == (28, 7, 7, 3)
    images = np.zeros((1, 32, 32, 3), "float32")
    for see in (
        explain.attention_maps,
        explain.attention_rollout,
        explain.attention_distance,
        explain.gradient_attention,
        explain.token_features,
    ):
        with pytest.raises(ValueError, match=r"no TransformerBlock|PatchEncoder"):
            see(model, images)


def test_features_of_a_layer():
    model = small_models.shared()
    images = images_of(model)
    outputs = [model.get_layer(f"encoder_block_{index}").output for index in range(2)]
    norm = model.get_layer("encoder_norm")
    # The last block of the model itself computes the class token alone.
    first, last = keras.Model(model.input, outputs)(images)
    features = explain.token_features(model, images, layer=0)
    tokens = ops.convert_to_numpy(first)
    np.testing.assert_allclose(features.class_token, tokens[:, 0], atol=1e-6)
    np.testing.assert_allclose(
        features.patches.reshape(2, 24, 24), tokens[:, 1:], atol=1e-6
    )
    for layer in (1, -1):
        features = explain.token_features(model, images, layer=layer)
        np.testing.assert_allclose(
            features.class_token, ops.convert_to_numpy(last)[:, 0], atol=1e-6
        )
    final = explain.token_features(model, images)
    np.testing.assert_allclose(
        final.class_token, ops.convert_to_numpy(norm(last))[:, 0], atol=1e-6
    )
    with pytest.raises(ValueError, match="no layer 2"):
        explain.token_features(model, images, layer=2)


def test_colors_tell_features_apart():
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(4, 16))
    places = rng.integers(4, size=(2, 5, 7))
    patches = kinds[places] + 0.01 * rng.normal(size=(2, 5, 7, 16))
    colors = explain.principal_colors(patches)
    assert colors.shape == (2, 5, 7, 3)
    assert colors.min() == 0
    assert colors.max() == 1
    means = [colors[places == kind].mean(axis=0) for kind in range(4)]
    for kind in range(4):
        assert colors[places == kind].std(axis=0).max() < 0.05
    for one, other in itertools.combinations(means, 2):
        assert np.abs(one - other).max() > 0.2
    with pytest.raises(ValueError, match="at least 4 patches"):
        explain.principal_colors(np.zeros((1, 1, 2, 16)))


def test_layers_and_heads_are_chosen():
    model = small_models.shared()
    images = images_of(model)
    maps = explain.attention_maps(model, images)
    chosen = explain.attention_maps(model, images, layers=[-1, 0, 1], heads=[2, -3])
    np.testing.assert_array_equal(chosen, maps[[1, 0, 1]][:, :, [2, 0]])
    one = explain.attention_maps(model, images, layers=-1, heads=1)
    np.testing.assert_array_equal(one, maps[1:, :, 1:2])
    with pytest.raises(ValueError, match="has no layer 2: pass numbers from -2 to 1"):
        explain.attention_maps(model, images, layers=[2])
    with pytest.raises(ValueError, match=r"^The model \w+ has no head -4: pass"):
        explain.attention_maps(model, images, heads=[-4])


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


def test_of_each_layer_only_what_is_asked_for_is_kept():
    model = small_models.shared()
    images = images_of(model)
    matrices = []

    def reduction(weights):
        assert weights.shape == (2, 3, 25, 25)
        # Those of the layers before are gone.
        assert [matrix() for matrix in matrices] == [None] * len(matrices)
        matrices.append(weakref.ref(weights))
        return weights[:, :, 0, 0]

    kept = by_layer(model, images, reduction)
    assert len(matrices) == len(kept) == num_layers(model) > 1
    assert [matrix() for matrix in matrices] == [None] * len(matrices)
    assert kept.base is None
    expected = explain.attention_maps(model, images)[..., 0, 0]
    np.testing.assert_array_equal(kept, expected)


def test_pictures_of_the_pooled_state():
    matrix = np.arange(49.0).reshape(7, 7)
    np.testing.assert_array_equal(
        explain.patch_map(matrix, (2, 3)), [[1, 2, 3], [4, 5, 6]]
    )
    without = explain.patch_map(matrix[None, :6, :6], (2, 3))
    np.testing.assert_array_equal(without, [[[17.5, 18.5, 19.5], [20.5, 21.5, 22.5]]])
    with pytest.raises(
        ValueError,
        match="a grid of 2x2 patches and at .* got 7 tokens: pass the grid that",
    ):
        explain.patch_map(matrix, (2, 2))


def test_looking_changes_nothing():
    one_block = small_models.of(small_models.PLAIN, num_layers=1)
    model = small_models.made(**one_block, remat=True)
    images = images_of(model, 1)
    before = ops.convert_to_numpy(model(images))
    weights = model.get_weights()
    explain.attention_rollout(model, images)
    explain.gradient_attention(model, images)
    explain.token_features(model, images)
    np.testing.assert_array_equal(ops.convert_to_numpy(model(images)), before)
    for old, new in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)
    assert [layer.output.shape for layer in model.layers]
    model.predict(images, verbose=0)


def test_models_of_other_making(tmp_path):
    model = small_models.shared()
    images = images_of(model, 1)
    expected = explain.attention_maps(model, images)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(explain.attention_maps(loaded, images), expected)

    inputs = keras.Input((32, 48, 3))
    outer = keras.Model(inputs, keras.layers.Softmax()(model(inputs)))
    np.testing.assert_array_equal(explain.attention_maps(outer, images), expected)
    assert explain.gradient_attention(outer, images).shape == (1, 25, 25)

    int8 = keras_vit.quantize_weights(model)
    difference = np.abs(explain.attention_maps(int8, images) - expected)
    assert 0 < difference.max() < 0.02
    kernel = explain.embedding_filters(int8).kernel
    assert 0 < np.abs(kernel - explain.embedding_filters(model).kernel).max() < 0.01


def test_a_block_called_twice_is_refused():
    images = keras.Input((32, 32, 3))
    tokens = keras_vit.PatchEncoder(8, 24)(images)
    block = keras_vit.TransformerBlock(num_heads=3, mlp_dim=40)
    model = keras.Model(images, block(block(tokens)))
    given = images_of(model)
    for see in (
        explain.attention_maps,
        explain.attention_rollout,
        explain.attention_distance,
        explain.token_features,
    ):
        with pytest.raises(ValueError, match="more than once"):
            see(model, given)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (np.zeros((32, 48, 3), "float32"), r"takes images of shape \(images, 32, 48"),
        (np.zeros((1, 48, 32, 3), "float32"), "build the model with their image_size"),
        (np.zeros((0, 32, 48, 3), "float32"), "at least one"),
        (np.zeros((1, 32, 48, 3), "uint8"), r"keras_vit.preprocess_input\(images\)"),
    ],
)
def test_unfit_images_are_refused(images, words):
    model = small_models.shared()
    for see in (
        explain.attention_maps,
        explain.attention_rollout,
        explain.attention_distance,
        explain.gradient_attention,
        explain.token_features,
    ):
        with pytest.raises(ValueError, match=words):
            see(model, images)


def test_unfit_classes_are_refused():
    model = small_models.shared()
    images = images_of(model)
    with pytest.raises(ValueError, match="no class 5: pass one of 0 to 4"):
        explain.gradient_attention(model, images, 5)
    with pytest.raises(ValueError, match="3 classes for 2 images: pass one per image"):
        explain.gradient_attention(model, images, [0, 1, 2])
    new = keras_vit.VisionTransformer(small_models.PLAIN, image_size=(32, 48))
    with pytest.raises(ValueError, match="its head is new"):
        explain.gradient_attention(new, images)
    for size in (None, 16):
        features = small_models.made(include_top=False, representation_size=size)
        inputs = keras.Input(features.input_shape[1:])
        for model in (features, keras.Model(inputs, features(inputs))):
            with pytest.raises(ValueError, match="no head that gives .images, classes"):
                explain.gradient_attention(model, images)


# Of an even and an odd half of a patch, and hybrids of a stem alone and of stages.
@pytest.mark.parametrize(
    "variant", ["ViT-Ti_16", "ViT-H_14", "R+ViT-Ti_16", "R26+ViT-S_32"]
)
def test_variants(variant):
    """With a narrow block, short stages and the smallest image of two patches."""
    config = dataclasses.replace(
        keras_vit.VARIANTS[variant],
        hidden_size=48,
        num_heads=3,
        mlp_dim=40,
        num_layers=1,
    )
    if config.is_hybrid:
        stages = tuple(1 for _ in config.resnet_stages)
        config = dataclasses.replace(config, resnet_stages=stages, resnet_width=32)
    down, across = config.stride
    model = keras_vit.VisionTransformer(
        config, image_size=(down, 2 * across), classes=3
    )
    model.get_layer("head").kernel.assign(np.eye(config.hidden_size, 3))
    images = images_of(model, 1)
    tokens = 3
    assert explain.grid_size(model) == (1, 2)
    maps = explain.attention_maps(model, images)
    assert maps.shape == (1, 1, config.num_heads, tokens, tokens)
    assert explain.attention_distance(model, images).max() <= across
    assert explain.gradient_attention(model, images).shape == (1, tokens, tokens)
    size = (7, 7) if config.is_hybrid else (config.patch_size,) * 2
    assert explain.embedding_filters(model).components.shape == (28, *size, 3)
    features = explain.token_features(model, images)
    assert features.patches.shape == (1, 1, 2, config.hidden_size)


def behind_resizing(model, size=(64, 96), **arguments):
    images = keras.Input((*size, 3))
    resized = keras.layers.Resizing(32, 48, **arguments)(images)
    return keras.Model(images, model(resized))


@pytest.mark.parametrize("size", [(64, 96), (None, None)])
def test_the_grid_behind_a_resizing(size):
    model = small_models.shared()
    wrapper = behind_resizing(model, size)
    assert explain.grid_size(wrapper) == (4, 6)
    assert explain.grid_size(wrapper, (320, 48)) == (4, 6)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 64, 96, 3)).astype("float32")
    rollout = explain.attention_rollout(wrapper, images)
    assert explain.patch_map(rollout, explain.grid_size(wrapper)).shape == (2, 4, 6)
    assert explain.token_features(wrapper, images).patches.shape == (2, 4, 6, 24)
    # Every pixel of the model is two of what it is given.
    resized = keras.layers.Resizing(32, 48)(images)
    np.testing.assert_allclose(
        explain.attention_distance(wrapper, images),
        2 * explain.attention_distance(model, resized),
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, (32, 16)),
        ({"crop_to_aspect_ratio": True}, (16, 16)),
        ({"pad_to_aspect_ratio": True}, (32, 32)),
    ],
)
def test_the_stride_of_images_of_another_shape(arguments, expected):
    wrapper = behind_resizing(small_models.shared(), (128, 96), **arguments)
    assert patch_stride(wrapper) == expected


class Shrunk(keras.layers.Layer):
    """A layer of one's own that gives images of one size."""

    def call(self, images):
        return ops.image.resize(images, (32, 48), data_format="channels_last")


# What stands in front, the size of what it is given and the pixels between patches.
IN_FRONT = {
    "operation": (
        lambda images: ops.image.resize(images, (32, 48), data_format="channels_last"),
        (100, 96),
        None,
    ),
    "own": (Shrunk(name="own"), (100, 96), None),
    "pipeline": (
        lambda images: keras.layers.Pipeline([keras.layers.Resizing(32, 48)])(images),
        (64, 96),
        (16, 16),
    ),
    "model": (
        lambda images: keras.Sequential(
            [keras.Input((64, 96, 3)), keras.layers.Resizing(32, 48)]
        )(images),
        (64, 96),
        (16, 16),
    ),
    "padding": (keras.layers.ZeroPadding2D(4), (24, 40), (8, 8)),
    "cropping": (keras.layers.Cropping2D(4), (40, 56), (8, 8)),
    "crop": (keras.layers.CenterCrop(32, 48), (40, 56), (8, 8)),
    "crop of small ones": (keras.layers.CenterCrop(32, 48), (16, 24), None),
    "upsampling": (keras.layers.UpSampling2D(2), (16, 24), (4, 4)),
    "what keeps the size": (lambda images: ops.abs(images) + 1.0, (32, 48), (8, 8)),
}


@pytest.mark.parametrize(("layer", "size", "stride"), IN_FRONT.values(), ids=IN_FRONT)
def test_the_grid_is_that_of_what_is_cut(layer, size, stride):
    images = keras.Input((*size, 3))
    model = small_models.shared()
    wrapper = keras.Model(images, model(layer(images)))
    nodes = len(wrapper.to_json())
    assert explain.grid_size(wrapper) == (4, 6)
    assert explain.grid_size(wrapper, size) == (4, 6)
    assert len(wrapper.to_json()) == nodes
    assert model.get_layer("embedding").input.shape[1:3] == (32, 48)
    if stride is None:
        with pytest.raises(ValueError, match="changes the size of images in a way"):
            patch_stride(wrapper)
    else:
        assert patch_stride(wrapper) == stride
    rollout = np.ones((1, 25, 25), "float32")
    assert explain.patch_map(rollout, explain.grid_size(wrapper)).shape == (1, 4, 6)


@pytest.mark.parametrize("kind", ["plain", "hybrid"])
def test_the_grid_of_a_sequential_that_was_not_called_yet(kind):
    model = small_models.shared(kind)
    wrapper = keras.Sequential(
        [keras.Sequential([keras.layers.ZeroPadding2D(8)]), model]
    )
    assert explain.grid_size(wrapper, (16, 32)) == (4, 6)
    assert patch_stride(wrapper, (16, 32)) == (8, 8)
    with pytest.raises(ValueError, match="any size: pass image_size"):
        explain.grid_size(wrapper)


def test_models_of_a_class_of_their_own_have_no_known_grid():
    class Mine(keras.Model):
        def __init__(self):
            super().__init__(name="mine")
            self.inner = small_models.made()

        def call(self, images):
            return self.inner(images)

    with pytest.raises(
        ValueError, match="the model mine does to images.*unknown.*functional"
    ):
        explain.grid_size(Mine(), (32, 48))


def test_what_comes_after_the_patches_is_no_stem():
    model = small_models.shared("all tokens")
    places = keras.layers.Reshape((5, 5, 24))(model.output)
    convolved = keras.layers.Conv2D(2, 3, strides=2)(places)
    assert explain.grid_size(keras.Model(model.input, convolved)) == (4, 6)


def test_maps_of_a_model_that_averages_patches_beside_a_class_token():
    model = small_models.patches_averaged()
    images = images_of(model)
    grid = explain.grid_size(model)
    assert pooling_of(model) == "gap"
    assert pooling_of(small_models.made()) == "token"
    rollout = explain.attention_rollout(model, images)
    found = explain.patch_map(rollout, grid, "gap")
    expected = rollout[:, 1:, 1:].mean(axis=1).reshape(2, *grid)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert explain.gradient_attention(model, images).shape == (2, 25, 25)
    headless = keras.Model(model.input, model.get_layer("pooling").output)
    with pytest.raises(ValueError, match="no head that gives"):
        explain.gradient_attention(headless, images)
    with pytest.raises(ValueError, match="pooling must be .* got 'token' for 4"):
        explain.patch_map(np.eye(4), (2, 2), "token")


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

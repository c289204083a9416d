"""Segmenters with queries for masks: loss, masked attention, what `fit` trains."""

import itertools

import keras
import layer_references as references
import numpy as np
import pytest
import small_models
from harness import check_refusal, flags, global_policy, normal, numpy, randomize

import keras_vit
from keras_vit.layers import MaskAnnealing
from keras_vit.models.mask_model import MaskModel
from zoo.network.head import NO_OBJECT

SIZE = (16, 24)
IMAGES = normal((3, *SIZE, 3))
MASKS = np.where(IMAGES[..., 0] > 1.5, 255, (IMAGES[..., 1] > 0) + 0).astype("uint8")
OPTIONS = {"classes": 3, "head": "eomt", "num_queries": 4, "query_blocks": 2}


def made(kind=None, image_size=SIZE, **options):
    """Returns a small backbone and its segmenter, all variables random."""
    arguments = small_models.MODELS[kind] if kind else {}
    backbone = small_models.made(**arguments | {"image_size": image_size})
    model = keras_vit.segmenter(backbone, **OPTIONS | options)
    trainable = model.trainable_variables
    for layer in model.layers:
        if layer.name.startswith(("head", "mask", "upscale")):
            randomize(layer)
    assert len(model.trainable_variables) == len(trainable)
    return backbone, model


def assert_close(found, expected, tolerance=1e-5):
    limit = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(numpy(found), expected, rtol=0, atol=limit)


# The loss


def shares(labels, sides, classes, ignored):
    """The share of each class in each pixel of a mask, by loops."""
    found = np.zeros((classes, *sides))
    height, width = labels.shape
    for row, column in np.ndindex(*sides):
        rows = [r for r in range(height) if r * sides[0] // height == row]
        columns = [c for c in range(width) if c * sides[1] // width == column]
        cell = labels[np.ix_(rows, columns)]
        for number in range(classes):
            if number != ignored and cell.size:
                found[number, row, column] = (cell == number).mean()
    return found


def loss_in_numpy(labels, outputs, ignored=255, weights=(5, 5, 2), no_object=0.1):
    """The loss with every matching tried, mask by mask, in float64."""
    logits, masks = outputs["class_logits"], outputs["mask_logits"]
    queries, classes = logits.shape[1], logits.shape[2] - 1
    likely = references.softmax(logits.astype("float64"))
    of_masks, of_classes, of_weights, count = 0, 0, 0, 0
    for photo in range(len(labels)):
        segments = shares(labels[photo], masks.shape[2:], classes, ignored)
        labelled = segments.sum(axis=0)
        present = [k for k in range(classes) if segments[k].any()]
        count += len(present)
        pairs = np.zeros((queries, classes))
        for query, k in itertools.product(range(queries), present):
            probability = 1 / (1 + np.exp(-masks[photo, query].astype("float64")))
            inside, target = np.log(probability), segments[k]
            outside = np.log(1 - probability)
            bce = -(target * inside + (labelled - target) * outside).sum()
            both = 2 * (probability * target).sum() + 1
            areas = (probability * labelled).sum() + target.sum() + 1
            pairs[query, k] = weights[0] * bce / labelled.sum()
            pairs[query, k] += weights[1] * (1 - both / areas)
        cost = pairs - weights[2] * likely[photo, :, :classes]
        taken = min(queries, len(present))
        best = min(
            (
                dict(zip(chosen, found, strict=True))
                for chosen in itertools.permutations(range(queries), taken)
                for found in itertools.combinations(present, taken)
            ),
            key=lambda match: sum(cost[pair] for pair in match.items()),
        )
        of_masks += sum(pairs[pair] for pair in best.items())
        for query in range(queries):
            weight = 1 if query in best else no_object
            of_weights += weight
            of_class = likely[photo, query, best.get(query, classes)]
            of_classes -= weight * np.log(of_class)
    return of_masks / max(count, 1) + weights[2] * of_classes / of_weights


def outputs_of(queries, classes, sides, photos=3, scale=2.0):
    return {
        "class_logits": scale * normal((photos, queries, classes + 1), seed=1),
        "mask_logits": scale * normal((photos, queries, *sides), seed=2),
    }


def labels_of(values, size, seed=0, photos=3):
    return np.random.default_rng(seed).choice(values, (photos, *size)).astype("uint8")


LOSSES = {
    "whole cells": ((5, 3, (2, 3)), ((0, 1, 2), (8, 6)), {}),
    "unlabelled": ((5, 3, (2, 3)), ((0, 2, 255), (8, 6)), {}),
    "cells that are not whole": ((4, 3, (4, 4)), ((0, 1, 255), (7, 10)), {}),
    "fewer pixels than cells": ((4, 2, (4, 6)), ((0, 1), (3, 5)), {}),
    "more classes than queries": ((2, 4, (3, 3)), ((0, 1, 2, 3), (6, 6)), {}),
    "background": ((4, 3, (3, 3)), ((0, 1, 2), (6, 6)), {"ignore_class": 0}),
    "nothing labelled": ((4, 3, (3, 3)), ((255,), (6, 6)), {}),
    "weights": (
        (4, 3, (3, 3)),
        ((0, 1), (6, 6)),
        {"mask_weight": 3, "dice_weight": 7, "class_weight": 1.5,
         "no_object_weight": 0.3, "ignore_class": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_are_those_of_numpy(kind):
    shapes, (values, size), arguments = LOSSES[kind]
    outputs, labels = outputs_of(*shapes), labels_of(values, size)
    weights = [
        arguments.get(f"{name}_weight", default)
        for name, default in (("mask", 5), ("dice", 5), ("class", 2))
    ]
    expected = loss_in_numpy(
        labels,
        outputs,
        arguments.get("ignore_class", 255),
        weights,
        arguments.get("no_object_weight", 0.1),
    )
    loss = keras_vit.MaskLoss(**arguments)
    np.testing.assert_allclose(float(loss(labels, outputs)), expected, rtol=1e-5)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert float(again(labels, outputs)) == float(loss(labels, outputs))


def test_losses_of_intermediate_predictions_are_added():
    first, second = outputs_of(4, 3, (3, 3)), outputs_of(4, 3, (3, 3), scale=1.0)
    labels, loss = labels_of((0, 1), (6, 6)), keras_vit.MaskLoss()
    found = loss(labels, {**first, "intermediate": [second, second]})
    expected = loss(labels, first) + 2 * loss(labels, second)
    np.testing.assert_allclose(float(found), float(expected), rtol=1e-6)


def test_other_backends_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(NotImplementedError, match="torch: set KERAS_BACKEND=tensorfl"):
        keras_vit.MaskLoss()(labels_of((0, 1), (6, 6)), outputs_of(4, 3, (3, 3)))


# The network


KINDS = [None, "registers", "rotary, attention pooling", "hybrid"]


@pytest.mark.parametrize("kind", KINDS)
def test_queries_come_to_the_weights_of_any_backbone(kind):
    backbone, model = made(kind)
    assert isinstance(model, MaskModel)
    first = "class_token" if kind is None else "embedding"
    found, expected = (
        keras.Model(one.input, one.get_layer(first).output)(IMAGES)
        for one in (model, backbone)
    )
    np.testing.assert_array_equal(numpy(found), numpy(expected))
    for layer in backbone.layers:
        if layer.name not in ("head", "pooling"):
            for one, other in zip(
                model.get_layer(layer.name).weights, layer.weights, strict=True
            ):
                np.testing.assert_array_equal(numpy(one), numpy(other))
    side = 1 if kind == "hybrid" else 2
    grid = keras_vit.explain.grid_size(backbone)
    shapes = {name: one.shape[1:] for name, one in model.output.items()}
    masks = (4, side * grid[0], side * grid[1])
    assert shapes == {"class_logits": (4, 4), "mask_logits": masks}


def test_blocks_that_are_frozen_stay_so():
    backbone = small_models.made(image_size=SIZE)
    backbone.get_layer("encoder_block_0").trainable = False
    model = keras_vit.segmenter(backbone, **OPTIONS)
    frozen = {layer.name for layer in model.layers if not layer.trainable}
    assert frozen == {"encoder_block_0"}


def test_new_parts_start_as_those_of_eomt():
    config = keras_vit.ViTConfig(64, 6, 2, 64, patch_size=16)
    backbone = keras_vit.VisionTransformer(config, image_size=32)
    model = keras_vit.segmenter(backbone, class_names=["a", "b"], head="eomt")
    config = model.config
    assert (config.num_queries, config.query_blocks, config.upscale_blocks) == (
        100,
        4,
        2,
    )
    head = model.get_layer("head")
    assert head.class_names == ("a", "b", NO_OBJECT)
    assert not numpy(head.kernel).any()
    assert abs(numpy(model.get_layer("queries").registers).std() - 1) < 0.05
    block = model.get_layer("upscale_block_1")
    for variable, bound in (
        (model.get_layer("mask_head_1").kernel, 1 / 8),
        (model.get_layer("mask_head_1").bias, 1 / 8),
        (block.expand.kernel, 1 / 16),
        (block.expand.bias, 1 / 16),
        (block.smooth.kernel, 1 / 3),
    ):
        assert 0.8 * bound < np.abs(numpy(variable)).max() <= bound


@pytest.mark.parametrize(
    ("policy", "masked_steps"), [("float32", 12), ("mixed_bfloat16", None)]
)
def test_fit_trains_masks_and_gives_keras_the_semantic_map(policy, masked_steps):
    with global_policy(policy):
        backbone = small_models.made(image_size=SIZE)
    model = keras_vit.segmenter(backbone, **OPTIONS, masked_steps=masked_steps)
    model.compile(keras.optimizers.Adam(0.01), keras_vit.MaskLoss())
    history = model.fit(IMAGES, MASKS, epochs=8, batch_size=3, verbose=0).history
    assert history["loss"][-1] < 0.9 * history["loss"][0]
    if masked_steps:
        assert int(model.get_layer("mask_annealing").count.value) == 8
        model = model.rebuild()
    iou = keras.metrics.MeanIoU(3, ignore_class=255, sparse_y_pred=False, name="iou")
    model.compile("sgd", keras_vit.MaskLoss(), metrics=[iou])
    outputs = model.predict(IMAGES, verbose=0)
    found = model.evaluate(IMAGES, MASKS, verbose=0, return_dict=True)
    answers = numpy(keras_vit.semantic_map(outputs, SIZE)).argmax(axis=-1)
    labelled, ratios = MASKS != 255, []
    for number in range(3):
        here, there = (one[labelled] == number for one in (answers, MASKS))
        if (here | there).any():
            ratios.append((here & there).sum() / (here | there).sum())
    # In half precision graphs round elsewhere, and a pixel may change its class.
    if policy == "float32":
        np.testing.assert_allclose(found["iou"], np.mean(ratios), rtol=1e-5)
    outputs = {name: one.astype("float32") for name, one in outputs.items()}
    tolerance = 1e-5 if policy != "mixed_bfloat16" else 1e-3
    expected = loss_in_numpy(MASKS, outputs)
    np.testing.assert_allclose(found["loss"], expected, rtol=tolerance)


def test_what_fit_cannot_do_is_refused_and_other_losses_are_those_of_keras():
    _, model = made()
    model.compile("sgd", keras_vit.MaskLoss())
    with pytest.raises(ValueError, match="leave sample_weight and class_weight out"):
        model.fit(IMAGES, MASKS, sample_weight=np.ones(3), verbose=0)
    model.compile("sgd", {"class_logits": "mse", "mask_logits": "mse"})
    targets = {
        name: np.zeros((3, *one.shape[1:])) for name, one in model.output.items()
    }
    loss = model.evaluate(IMAGES, targets, verbose=0)[0]
    expected = sum(np.square(numpy(one)).mean() for one in model(IMAGES).values())
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


@pytest.mark.parametrize("masked_steps", [None, 10])
def test_copies_compute_the_same_and_keep_what_is_frozen(masked_steps, tmp_path):
    backbone, model = made(masked_steps=masked_steps, frozen=True)
    trained = {one.path.split("/")[0] for one in model.trainable_variables}
    new = ["queries", "head", "upscale_block_0", *(f"mask_head_{n}" for n in range(3))]
    assert trained == {*new}
    assert all(layer.trainable for layer in backbone.layers)
    if masked_steps:
        model.get_layer("mask_annealing").count.assign(7)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    for_all = keras_vit.at_image_size(model, (None, None))
    again = keras_vit.at_image_size(for_all, SIZE)
    expected = model(IMAGES)
    for one in (loaded, copy, for_all, again):
        assert flags(one) == flags(model)
        for name, found in one(IMAGES).items():
            assert_close(found, numpy(expected[name]), 1e-6)
        if masked_steps:
            assert len(one(IMAGES, training=True)["intermediate"]) == 2
            assert int(one.get_layer("mask_annealing").count.value) == 8
    plain = model.rebuild()
    assert not [one for one in plain.layers if isinstance(one, MaskAnnealing)]
    for name, found in plain(IMAGES).items():
        np.testing.assert_array_equal(numpy(found), numpy(expected[name]))
    path = keras_vit.save_released_weights(model, tmp_path / "model.safetensors")
    for name, found in keras_vit.load_model(path)(IMAGES).items():
        assert_close(found, numpy(expected[name]), 1e-6)


def test_backbones_for_images_of_any_size():
    backbone, model = made()
    backbone = keras_vit.at_image_size(backbone, (None, None))
    other = keras_vit.segmenter(backbone, **OPTIONS, masked_steps=6)
    assert other.input_shape == (None, None, None, 3)
    fixed = keras_vit.at_image_size(other, (24, 32))
    images = normal((1, 24, 32, 3))
    for name, found in other(images).items():
        assert_close(found, numpy(fixed(images)[name]), 1e-5)
    assert len(other(images, training=True)["intermediate"]) == 2


# Masked attention


def test_probabilities_fall_block_by_block():
    layer = MaskAnnealing(num_blocks=4, steps=60)
    layer.build((None, 7, 24))
    for step in (0, 9, 10, 11, 15, 20, 29, 42, 49, 50, 60, 70):
        layer.count.assign(step)
        expected = []
        for block in range(4):
            start = 10 * (block + 1)
            progress = min(max((step - start) / 10, 0), 1)
            expected.append((1 - progress) ** 0.9)
        np.testing.assert_allclose(numpy(layer.probabilities()), expected, atol=1e-6)


# Steps of 60, and the probability that a query of the second block of 4 is masked.
@pytest.mark.parametrize(("step", "probability"), [(0, 1.0), (25, 0.5**0.9), (31, 0)])
def test_masks_are_those_of_a_softmax_without_what_is_hidden(step, probability):
    layer = MaskAnnealing(num_blocks=4, steps=60, seed=1)
    layer.build((None, 7, 24))
    layer.count.assign(step)
    queries, photos, tokens = 5, 40, 5 + 2 + 6
    logits = normal((photos, queries, 4, 6))
    scores = 3 * normal((photos, 2, tokens, tokens), seed=1)
    weights = references.softmax(scores.astype("float64"))
    watcher = layer.watcher(1, logits, (2, 3))
    found = numpy(watcher.attention(keras.ops.cast(weights, "float32")))
    # With twice the pixels a patch is the mean of 2 x 2.
    means = logits.reshape(photos, queries, 2, 2, 3, 2).mean(axis=(3, 5))
    hidden = np.zeros((photos, queries, tokens), bool)
    hidden[..., 7:] = (means <= 0).reshape(photos, queries, 6)
    masked = np.where(hidden[:, None], -np.inf, scores[:, :, :queries])
    masked = references.softmax(masked.astype("float64"))
    np.testing.assert_allclose(
        found[:, :, queries:], weights[:, :, queries:], atol=1e-6
    )
    errors = np.abs(found[:, :, :queries] - masked).max(axis=(1, 3))
    errors_of_free = np.abs(found - weights)[:, :, :queries].max(axis=(1, 3))
    is_masked, is_free = errors < 1e-6, errors_of_free < 1e-6
    assert (is_masked | is_free).all()
    # Four standard deviations of 200 draws.
    margin = 4 * np.sqrt(probability * (1 - probability) / is_masked.size)
    some_hidden = hidden.any(axis=-1)
    assert abs(is_masked[some_hidden].mean() - probability) <= margin + 1e-9


def test_training_masks_the_blocks_of_queries_and_predicts_before_each():
    _, model = made(masked_steps=100)
    outputs = model(IMAGES, training=True)
    assert int(model.get_layer("mask_annealing").count.value) == 1
    first = keras.Model(model.input, model.get_layer("mask_annealing").output)
    tokens = numpy(first(IMAGES))
    predict = keras.Function(
        [model.input, model.get_layer("encoder_block_1").output], model.output
    )
    predictions = []
    for index in range(2):
        found = predict([IMAGES, tokens.astype("float32")])
        predictions.append({name: numpy(one) for name, one in found.items()})
        logits = predictions[-1]["mask_logits"]
        visible = logits.reshape(3, 4, 2, 2, 3, 2).mean(axis=(3, 5)) > 0
        assert 0 < visible.mean() < 1
        visible = np.concatenate([np.ones((3, 4, 5)), visible.reshape(3, 4, 6)], -1)
        block = model.get_layer(f"encoder_block_{index}")
        tokens = block_in_numpy(tokens, block, visible)
    found = predict([IMAGES, tokens.astype("float32")])
    predictions.append({name: numpy(one) for name, one in found.items()})
    every = [*outputs["intermediate"], outputs]
    for one, expected in zip(every, predictions, strict=True):
        for name, values in expected.items():
            assert_close(one[name], values, 5e-5)
    plain = model(IMAGES)
    assert plain.keys() == {"class_logits", "mask_logits"}
    assert (
        np.abs(numpy(plain["mask_logits"]) - predictions[-1]["mask_logits"]).max()
        > 0.01
    )


def block_in_numpy(x, block, visible):
    """A block whose first tokens see what is visible (batch, queries, tokens)."""
    batch, length, size = x.shape
    attention, heads = block.attention, block.attention.num_heads
    normed = references.layer_norm(x, block.attention_norm)
    query, key, value = (
        references.dense(normed, part).reshape(batch, length, heads, size // heads)
        for part in (attention.query, attention.key, attention.value)
    )
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(size // heads)
    queries = visible.shape[1]
    scores[:, :, :queries][np.repeat(visible[:, None] == 0, heads, 1)] = -np.inf
    mixed = np.einsum("bhqk,bkhd->bqhd", references.softmax(scores), value)
    x = x + references.dense(mixed.reshape(x.shape), attention.out)
    normed = references.layer_norm(x, block.mlp_norm)
    return x + references.mlp(normed, block.mlp, block.mlp_dim, block.activation)


def test_training_lets_go_of_the_masks():
    _, model = made(masked_steps=100)
    model.get_layer("mask_annealing").count.assign(80)
    outputs, plain = model(IMAGES, training=True), model(IMAGES)
    assert len(outputs["intermediate"]) == 2
    for name, one in plain.items():
        assert_close(outputs[name], numpy(one), 1e-5)


# The map


def test_maps_of_masks_are_those_of_transformers(shared):
    for case in ("eomt_dinov2", "eomt_dinov3"):
        expected = np.load(shared / "goldens_segmentation" / f"{case}.expected.npz")
        outputs = {name: expected[name] for name in ("class_logits", "mask_logits")}
        found = keras_vit.semantic_map(outputs)
        maps = expected["semantic"].transpose(0, 2, 3, 1)
        assert_close(found, maps, 1e-6)


def test_maps_come_to_the_size_of_images_before_they_are_probabilities():
    from test_segmenter import enlarged

    outputs = outputs_of(4, 3, (3, 5))
    masks = enlarged(
        outputs["mask_logits"].transpose(0, 2, 3, 1).astype("float64"), (9, 11)
    )
    classes = references.softmax(outputs["class_logits"].astype("float64"))[..., :-1]
    expected = np.einsum("bhwq,bqc->bhwc", 1 / (1 + np.exp(-masks)), classes)
    assert_close(keras_vit.semantic_map(outputs, (9, 11)), expected)
    logits = normal((2, 3, 5, 4))
    for size in (None, (3, 5), (9, 11)):
        expected = references.softmax(
            enlarged(logits.astype("float64"), size or (3, 5))
        )
        found = keras_vit.semantic_map(logits.astype("float16"), size)
        assert_close(found, expected, 1e-2)
        assert_close(keras_vit.semantic_map(logits, size), expected)
        assert keras.backend.standardize_dtype(found.dtype) == "float32"


def test_what_has_no_queries_is_refused():
    backbone = small_models.shared()
    make = keras_vit.segmenter
    for options, *parts in (
        ({"head": "unet"}, "head must be one of linear, eomt, got 'unet'", "linear"),
        ({"layers": 2}, "layers is no argument of the head 'eomt'", "leave it out"),
        ({"head": "linear"}, "num_queries, query_blocks", "head 'linear'"),
        ({"num_queries": 0}, "num_queries"),
        ({"query_blocks": 0}, "query_blocks"),
        ({"masked_steps": -1}, "masked_steps"),
        ({"upscale_blocks": 9}, "masks larger than the image"),
    ):
        options = OPTIONS | options
        check_refusal(lambda options=options: make(backbone, **options), *parts)
    clone = keras.models.clone_model(backbone)
    check_refusal(lambda: make(clone, **OPTIONS), "does not know which network it is")
    _, model = made()
    check_refusal(lambda: make(model, **OPTIONS), "model.rebuild(include_top=False)")
    relative = small_models.shared("relative")
    check_refusal(lambda: make(relative, **OPTIONS), "Queries have no position")

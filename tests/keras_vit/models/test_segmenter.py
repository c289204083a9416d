"""Segmenters: heads that answer for every pixel, and how Keras trains them."""

import keras
import numpy as np
import pytest
import small_models
from harness import check_refusal, flags, global_policy, normal, numpy, randomize

import keras_vit
from keras_vit.models.bit import BiTResNet
from zoo.network import BiTConfig

SIZE = (16, 24)
IMAGES = normal((3, *SIZE, 3))
# Backbones with every kind of tokens before the patches, and of positions.
BACKBONES = {
    "plain": {},
    "registers": small_models.MODELS["registers"],
    "no class token": {"pooling": "gap"},
    "rotary, attention pooling": small_models.MODELS["rotary, attention pooling"],
    "hybrid": small_models.MODELS["hybrid"],
    "patches not square": small_models.MODELS["patches not square"],
}


def made(kind="plain", **options):
    """Returns a small backbone and its segmenter, all variables random."""
    backbone = small_models.made(**BACKBONES[kind] | {"image_size": SIZE})
    model = keras_vit.segmenter(backbone, **{"classes": 5} | options)
    randomize(model.get_layer("head"))
    norm = model.get_layer("head_norm")
    randomize(norm)
    norm.moving_mean.assign(normal(norm.moving_mean.shape, 3))
    norm.moving_variance.assign(normal(norm.moving_variance.shape, 4) ** 2)
    return backbone, model


def enlarged(maps, size):
    """Maps (batch, rows, columns, channels) at a size, bilinear, in float64."""
    for axis, side in zip((1, 2), size, strict=True):
        count = maps.shape[axis]
        places = (np.arange(side) + 0.5) * count / side - 0.5
        places = places.clip(0, count - 1)
        low = np.floor(places).astype(int)
        high = np.minimum(low + 1, count - 1)
        part = (places - low).reshape((-1,) + (1,) * (maps.ndim - axis - 1))
        maps = maps.take(low, axis) * (1 - part) + maps.take(high, axis) * part
    return maps


def head_in_numpy(model, maps, statistics=None):
    """What batch norm, convolution and upsampling make of maps, in float64."""
    norm, head = model.get_layer("head_norm"), model.get_layer("head")
    mean, variance = statistics or (
        numpy(norm.moving_mean), numpy(norm.moving_variance)
    )  # fmt: skip
    maps = (maps - mean) / np.sqrt(variance + 1e-5)
    maps = maps * numpy(norm.gamma) + numpy(norm.beta)
    return enlarged(maps @ numpy(head.kernel) + numpy(head.bias), SIZE)


def assert_close(found, expected, tolerance=1e-5):
    limit = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(numpy(found), expected, rtol=0, atol=limit)


@pytest.mark.parametrize("kind", BACKBONES)
def test_logits_are_those_of_numpy(kind):
    backbone, model = made(kind, layers=2)
    maps = keras_vit.features(backbone, (0, 1))(IMAGES)
    maps = np.concatenate([numpy(maps["layer_0"]), numpy(maps["layer_1"])], axis=-1)
    assert model.output_shape == (None, *SIZE, 5)
    assert_close(model(IMAGES), head_in_numpy(model, maps))


def test_blocks_are_read_in_their_order():
    config = dict.fromkeys(("hidden_size", "mlp_dim"), 16) | {"num_heads": 2}
    config = keras_vit.ViTConfig(**config, num_layers=12, patch_size=8)
    backbone = keras_vit.VisionTransformer(config, image_size=16)
    randomize(backbone)
    model = keras_vit.segmenter(backbone, classes=2, layers=(10, -3, 2))
    maps = keras_vit.features(backbone, (2, 9, 10))(IMAGES[:, :, :16])
    maps = np.concatenate([numpy(maps[f"layer_{n}"]) for n in (2, 9, 10)], axis=-1)
    part = model.get_layer("vision_transformer_features")
    np.testing.assert_array_equal(numpy(part(IMAGES[:, :, :16])), maps)
    last = keras_vit.segmenter(backbone, classes=2).get_layer(part.name)
    expected = keras_vit.features(backbone)(IMAGES[:, :, :16])["layer_11"]
    np.testing.assert_array_equal(numpy(last(IMAGES[:, :, :16])), numpy(expected))


def test_training_normalises_by_the_batch_whether_the_backbone_is_frozen_or_not():
    for options in ({}, {"frozen": True}):
        backbone, model = made(**options)
        maps = numpy(keras_vit.features(backbone)(IMAGES)["layer_1"])
        norm = model.get_layer("head_norm")
        before = numpy(norm.moving_mean)
        statistics = maps.mean(axis=(0, 1, 2)), maps.var(axis=(0, 1, 2))
        found = model(IMAGES, training=True)
        assert_close(found, head_in_numpy(model, maps, statistics), 2e-5)
        assert_close(norm.moving_mean, 0.9 * before + 0.1 * statistics[0])
        model.trainable = False
        # A backbone that is frozen whole is in use.
        assert_close(model(IMAGES, training=True), numpy(model(IMAGES)), 1e-6)


@pytest.mark.parametrize("how", ["argument", "backbone", "model"])
def test_a_frozen_backbone_keeps_its_weights_and_drops_nothing(how, tmp_path):
    rates = {"dropout_rate": 0.5, "stochastic_depth_rate": 0.5}
    backbone = small_models.made(image_size=SIZE, **rates)
    if how == "backbone":
        backbone.trainable = False
    model = keras_vit.segmenter(backbone, classes=3, frozen=how == "argument")
    maps = model.get_layer("vision_transformer_features")
    if how == "model":
        assert np.ptp([numpy(maps(IMAGES, training=True)) for _ in "ab"], 0).any()
        maps.trainable = False
    assert len(model.trainable_weights) == 4  # of the norm and the head
    before = [numpy(one) for one in backbone.weights]
    fit(model)
    for weight, values in zip(backbone.weights, before, strict=True):
        np.testing.assert_array_equal(numpy(weight), values)
    assert numpy(model.get_layer("head").kernel).any()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    resized = keras_vit.at_image_size(model, (None, None))
    resized = keras_vit.at_image_size(resized, SIZE)
    expected, models = flags(model), (model, loaded, copy, resized)
    assert all(flags(one) == expected for one in models)
    for one in models:
        one.get_layer("head_norm").trainable = False
        assert_close(one(IMAGES, training=True), numpy(model(IMAGES)), 1e-5)


MASKS = np.where(IMAGES[..., 0] > 1.5, 255, (IMAGES[..., 1] > 0) + 0).astype("uint8")


def fit(model, epochs=1, **options):
    """Trains on masks with 255 for unlabelled; returns the history, a dict."""
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=255
    )
    iou = keras.metrics.MeanIoU(
        model.output_shape[-1], ignore_class=255, sparse_y_pred=False, name="iou"
    )
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=[iou], **options)
    history = model.fit(
        IMAGES, MASKS, epochs=epochs, batch_size=3, shuffle=False, verbose=0
    )
    return history.history


def test_losses_and_metrics_of_keras_leave_out_what_is_unlabelled():
    _, model = made(frozen=True, classes=3)
    history = fit(model)
    [loss], [iou] = history["loss"], history["iou"]
    # The loss of the weights before the step, normalised by the batch.
    _, model = made(frozen=True, classes=3)
    logits = numpy(model(IMAGES, training=True))
    labelled = MASKS != 255
    assert 0 < labelled.mean() < 1
    likely = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    chosen = np.take_along_axis(likely, np.where(labelled, MASKS, 0)[..., None], -1)
    np.testing.assert_allclose(loss, -chosen[labelled].mean(), rtol=1e-5)
    answers, ratios = logits.argmax(axis=-1)[labelled], []
    for number in range(3):
        here, there = answers == number, MASKS[labelled] == number
        ratios.append((here & there).sum() / (here | there).sum())
    np.testing.assert_allclose(iou, np.mean(ratios), rtol=1e-5)


def test_fit_trains_the_backbone_too():
    backbone, model = made()
    before = numpy(backbone.get_layer("encoder_block_0").mlp.expand.kernel)
    losses = fit(model, epochs=8)["loss"]
    assert losses[-1] < 0.9 * losses[0]
    after = numpy(backbone.get_layer("encoder_block_0").mlp.expand.kernel)
    assert np.abs(after - before).max() > 1e-3


@pytest.mark.parametrize(
    ("policy", "logits"),
    [("mixed_bfloat16", "float32"), ("float64", "float64")],
)
def test_logits_are_float32_or_float64(policy, logits):
    expected = numpy(made(layers=2)[1](IMAGES))
    with global_policy(policy):
        backbone = small_models.made(image_size=SIZE)
    # The policy of the backbone counts.
    model = keras_vit.segmenter(backbone, classes=5, layers=2)
    randomize(model)
    reference = made(layers=2)[1]
    model.set_weights(reference.get_weights())
    found = model(IMAGES)
    assert keras.backend.standardize_dtype(found.dtype) == logits
    tolerance = 1e-5 if policy == "float64" else 0.05
    np.testing.assert_allclose(
        numpy(found), expected, rtol=0, atol=tolerance * np.abs(expected).max()
    )
    assert np.isfinite(fit(model)["loss"]).all()


def test_models_for_images_of_any_size():
    _, model = made(layers=2)
    of_any_size = keras_vit.at_image_size(model, (None, None))
    assert of_any_size.output_shape == (None, None, None, 5)
    assert_close(of_any_size(IMAGES), numpy(model(IMAGES)), 1e-6)
    images = normal((1, 24, 40, 3))
    expected = numpy(keras_vit.at_image_size(model, (24, 40))(images))
    assert expected.shape == (1, 24, 40, 5)
    assert_close(of_any_size(images), expected)
    backbone = keras_vit.at_image_size(small_models.made(image_size=SIZE), (None, None))
    again = keras_vit.segmenter(backbone, classes=5, layers=2)
    assert again.output_shape == (None, None, None, 5)
    again.set_weights(model.get_weights())
    assert_close(again(IMAGES), numpy(model(IMAGES)), 1e-6)


def test_a_new_head_is_zero_and_knows_the_classes():
    backbone = small_models.made(preparation="central crop", image_size=SIZE)
    model = keras_vit.segmenter(backbone, class_names=["sky", "road"])
    assert not numpy(model(IMAGES)).any()
    head = model.get_layer("head")
    assert (head.class_names, head.preparation) == (("sky", "road"), "central crop")
    assert model.name == "vision_transformer_segmenter"
    assert keras_vit.segmenter(backbone, classes=2, name="mine").name == "mine"


@pytest.mark.parametrize("kind", ["registers", "patches not square"])
def test_exports_compute_the_same(kind, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from keras_vit.runtimes import onnx

    _, model = made(kind, layers=2)
    onnx.write(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    [found] = session.run(None, {"images": IMAGES})
    assert_close(found, numpy(model(IMAGES)))


def test_exports_know_the_head_behind_convolutions_too(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from keras_vit.runtimes import onnx

    images = keras.Input((*SIZE, 3), name="images")
    features = keras_vit.layers.StdConv2D(4, 3)(images)
    norm = keras.layers.BatchNormalization(center=False, epsilon=0.1)
    enlarge = keras.layers.UpSampling2D((2, 3), interpolation="bilinear")
    model = keras.Model(images, enlarge(norm(features)))
    randomize(model)
    norm.moving_mean.assign(normal((4,)))
    onnx.write(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert_close(session.run(None, {"images": IMAGES})[0], numpy(model(IMAGES)))
    for layer, said in (
        (keras.layers.BatchNormalization(axis=1), "normalises along axis 1"),
        (keras.layers.UpSampling2D(), "enlarges by 'nearest'"),
    ):
        other = keras.Model(images, layer(features))
        check_refusal(lambda other=other: onnx.write(other, tmp_path / "o.onnx"), said)


def test_what_makes_no_segmenter_is_refused():
    backbone = small_models.shared()
    refusals = [
        ({}, "does not know its classes", "pass classes= or class_names="),
        ({"classes": 0}, "classes"),
        ({"classes": 2, "layers": 3}, "no layer -3"),
        ({"classes": 2, "layers": 0}, "layers"),
        ({"classes": 2, "layers": "pooled"}, "layers must be", "pass 1, 4 or (5, 11)"),
        ({"classes": 2, "layers": (0, "pooled")}, "leave out what gives no map"),
        ({"classes": 2, "class_names": ["a"]}, "class"),
    ]
    for options, *parts in refusals:
        check_refusal(
            lambda options=options: keras_vit.segmenter(backbone, **options), *parts
        )
    check_refusal(
        lambda: keras_vit.segmenter("vit", classes=2), "must be a keras.Model"
    )
    bit = BiTResNet(BiTConfig((1, 1)), image_size=32, classes=2)
    check_refusal(
        lambda: keras_vit.segmenter(bit, classes=2), "pass a Vision Transformer"
    )
    model = keras_vit.segmenter(backbone, classes=2)
    for call in (keras_vit.classify, keras_vit.embed):
        check_refusal(
            lambda call=call: call(model, np.zeros((8, 8, 3), "uint8")), "upsampling"
        )
    with pytest.raises(TypeError, match="pass classes="):
        keras_vit.segmenter(backbone, num_classes=2)

"""Networks with queries for masks (EoMT) in transformers' files."""

import json

import keras
import numpy as np
import pytest
from families import TOLERANCE, arrays_of, assert_close
from harness import check_refusal, normal, numpy, randomize

import keras_vit
import zoo
from train import recipes
from train.common.errors import RunError
from train.models import loaded_model
from train.run import building
from zoo.containers import safetensors

CASES = ("eomt_dinov2", "eomt_swiglu", "eomt_dinov3")
PLAIN = {
    "hidden_size": 16, "num_layers": 3, "num_heads": 2, "mlp_dim": 32, "patch_size": 4,
    "activation": "gelu", "layer_scale": 0.5, "num_registers": 2,
    "num_queries": 3, "query_blocks": 2, "upscale_blocks": 1,
}  # fmt: skip
CONFIGS = {
    "eomt": zoo.ViTConfig(**PLAIN, tokens_with_positions="patches"),
    "eomt_swiglu": zoo.ViTConfig(
        **PLAIN | {"activation": "swiglu", "mlp_dim": 48, "num_registers": 0},
        tokens_with_positions="patches",
    ),
    "eomt_dinov3": zoo.ViTConfig(
        **PLAIN | {"upscale_blocks": 0},
        **{"tokens_with_positions": "none", "rotary": "dinov3"},
        **{"qkv_bias": "query and value", "rotary_base": 30.0},
    ),
}
NAMES = ("sky", "road")
IMAGES = normal((2, 16, 16, 3))


def made(name="eomt", **options):
    """Returns a small model whose every variable is random."""
    options = {"image_size": 16, "class_names": NAMES} | options
    model = keras_vit.VisionTransformer(CONFIGS[name], pooling="queries", **options)
    randomize(model)
    return model


def computed(model, images):
    return {name: numpy(one) for name, one in model(images).items()}


def assert_same(model, other, images=IMAGES, tolerance=1e-6):
    expected = computed(model, images)
    for name, found in computed(other, images).items():
        assert_close(found, expected[name], tolerance)


@pytest.fixture
def written(tmp_path):
    """Returns a function that writes a model for transformers, with changes."""

    def write(name="eomt", settings=lambda said: None, arrays=lambda found: found):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        path = folder / "model.safetensors"
        keras_vit.save_released_weights(made(name), path, naming="transformers")
        said = json.loads((folder / "config.json").read_text())
        settings(said)
        (folder / "config.json").write_text(json.dumps(said))
        # Without the header that is ours.
        safetensors.write(path, arrays(arrays_of(path)))
        return folder

    return write


@pytest.fixture(params=CASES)
def golden(request, shared):
    """The folder of a checkpoint of transformers, and what it computes in float64."""
    folder = shared / "goldens_segmentation" / request.param
    return folder, dict(np.load(f"{folder}.expected.npz"))


def test_masks_and_classes_are_those_of_transformers(golden):
    folder, expected = golden
    model = keras_vit.load_model(folder)
    outputs = computed(model, expected["photos"].astype("float32") / 127.5 - 1)
    semantic = numpy(keras_vit.semantic_map(outputs))
    outputs["semantic"] = semantic.transpose(0, 3, 1, 2)
    for name in ("class_logits", "mask_logits", "semantic"):
        assert_close(outputs[name], expected[name], TOLERANCE)
    names = model.get_layer("head").class_names
    assert names == ("sky", "road", "car", "tree", "sign", "no object")


def test_files_of_transformers_are_written_back_to_the_bit(golden, tmp_path):
    folder, _ = golden
    checkpoint, path = zoo.read(folder), tmp_path / "model.safetensors"
    zoo.write(path, checkpoint, naming="transformers")
    ours, theirs = arrays_of(path), arrays_of(folder / path.name)
    np.testing.assert_equal(ours, theirs)
    said = json.loads((tmp_path / "config.json").read_text())
    for name, value in json.loads((folder / "config.json").read_text()).items():
        assert name not in said or said[name] == value, name
    safetensors.write(path, ours)
    for again in (zoo.read(path), zoo.read(tmp_path)):
        assert again.config == checkpoint.config
        assert again.head == checkpoint.head


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_written_for_transformers_computes_the_same(name, written):
    folder = written(name)
    said = json.loads((folder / "config.json").read_text())
    dinov3 = "Dinov3" if name == "eomt_dinov3" else ""
    assert said["architectures"] == [f"Eomt{dinov3}ForUniversalSegmentation"]
    assert said["id2label"] == {"0": "sky", "1": "road"}
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    assert processor["image_processor_type"] == "EomtImageProcessor"
    again = keras_vit.load_model(folder)
    assert again.config.query_blocks == 2
    assert_same(made(name), again)
    saved = folder.parent / "model.keras"
    again.save(saved)
    loaded = keras.saving.load_model(saved)
    assert_same(again, loaded, tolerance=0)
    images = normal((1, 24, 32, 3))
    fixed, other = (
        keras_vit.load_model(folder, image_size=size)
        for size in ((24, 32), (None, None))
    )
    assert_same(fixed, other, images, 1e-5)
    assert_same(fixed, keras_vit.at_image_size(loaded, (24, 32)), images, 1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_copies_are_of_the_same_network(name, tmp_path):
    model = made(name)
    shapes = {key: one.shape[1:] for key, one in model.output.items()}
    side = 4 * 2 ** CONFIGS[name].upscale_blocks
    assert shapes == {"class_logits": (3, 3), "mask_logits": (3, side, side)}
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == model.config
    assert loaded.description == model.description
    assert_same(model, loaded, tolerance=0)
    assert_same(model, model.rebuild())
    released = tmp_path / "released.safetensors"
    keras_vit.save_released_weights(model, released)
    assert_same(model, keras_vit.load_model(released))
    int8 = keras_vit.quantize_weights(model)
    assert_same(model, int8, tolerance=0.2)
    resized = keras_vit.at_image_size(model, (24, 32))
    images = normal((1, 24, 32, 3))
    assert resized.output["mask_logits"].shape[2:] == (side * 6 // 4, side * 2)
    assert_same(resized, keras_vit.at_image_size(model, (None, None)), images, 1e-5)
    half = model.rebuild(dtype="mixed_bfloat16").output
    assert half["class_logits"].dtype == "float32"
    assert half["mask_logits"].dtype == "bfloat16"


def test_a_head_for_other_classes_has_one_output_more():
    model = made().rebuild(classes=4)
    assert model.output["class_logits"].shape == (None, 3, 5)
    assert not numpy(model.get_layer("head").kernel).any()
    model = made().rebuild(class_names=["a", "b"], new_head=True)
    assert model.get_layer("head").class_names == ("a", "b", "no object")


@pytest.mark.parametrize("name", CONFIGS)
def test_the_encoder_is_an_ordinary_network(name, written, tmp_path):
    model, folder = made(name), written(name)
    encoder = keras_vit.load_model(folder, include_top=False)
    assert encoder.output_shape == (None, 16)
    assert not encoder.config.num_queries and not encoder.config.query_blocks
    for other in (model.rebuild(include_top=False), encoder):
        # Queries change what comes after them alone.
        found, expected = (
            keras.Model(one.input, one.get_layer("encoder_block_0").output)
            for one in (other, model)
        )
        assert_close(numpy(found(IMAGES)), numpy(expected(IMAGES)), 1e-6)
    maps = keras_vit.features(encoder, (0, -1))(IMAGES)
    assert maps["layer_2"].shape == (2, 4, 4, 16)
    classifier = keras_vit.load_model(folder, pooling="gap", classes=5)
    assert classifier.output_shape == (None, 5)
    path = tmp_path / "encoder.safetensors"
    keras_vit.save_released_weights(encoder, path)
    again = keras_vit.load_model(path, include_top=False)
    np.testing.assert_array_equal(numpy(again(IMAGES)), numpy(encoder(IMAGES)))


@pytest.mark.parametrize(
    "refuse",
    [
        lambda model: keras_vit.classify(model, np.zeros((8, 8, 3), "uint8")),
        lambda model: keras_vit.embed(model, np.zeros((8, 8, 3), "uint8")),
        keras_vit.Predictor,
        keras_vit.features,
        lambda model: keras_vit.explain.attention_maps(model, IMAGES),
        lambda model: keras_vit.explain.token_features(model, IMAGES),
        lambda model: keras_vit.explain.gradient_attention(model, IMAGES),
    ],
)
def test_what_takes_one_answer_for_a_photo_refuses_masks(refuse):
    remedy = r"model.rebuild(include_top=False)"
    check_refusal(lambda: refuse(made()), "makes masks of queries", remedy)


def test_commands_take_the_encoder_or_say_that_they_do_not(written, tmp_path):
    folder, saved = written(), tmp_path / "masks.keras"
    made().save(saved)
    for source in (folder, saved):
        with pytest.raises(RunError, match="cannot be used: .*makes masks"):
            loaded_model.load(str(source))
    loaded = loaded_model.load(str(folder), features=True)
    assert loaded.model.output_shape == (None, 16)
    recipe = recipes.for_dataset("digits").override(model=str(folder), image_size=16)
    assert building.model(recipe, classes=10).output_shape == (None, 10)


def test_exports_write_the_masks(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from keras_vit.runtimes import onnx

    model = made()
    for name, output in model.output.items():
        part, path = keras.Model(model.input, output), tmp_path / f"{name}.onnx"
        onnx.write(part, path)
        [found] = onnxruntime.InferenceSession(path).run(None, {"images": IMAGES})
        assert_close(found, numpy(part(IMAGES)), 1e-5)


# Files that were changed


def packed(arrays):
    """Names that older versions of transformers have for gates."""
    found = {}
    for key, array in arrays.items():
        if ".mlp.gate_proj." in key:
            values = arrays[key.replace("gate_proj", "up_proj")]
            key = key.replace("gate_proj", "weights_in")
            found[key] = np.concatenate([array, values])
        elif ".mlp.up_proj." not in key:
            found[key.replace(".mlp.down_proj.", ".mlp.weights_out.")] = array
    return found


def test_gates_and_values_in_one_array_are_read(written):
    folder = written("eomt_swiglu", arrays=packed)
    assert_same(made("eomt_swiglu"), keras_vit.load_model(folder))


def without(*parts):
    return lambda arrays: {
        key: array
        for key, array in arrays.items()
        if not any(part in key for part in parts)
    }


def test_what_training_alone_needs_may_be_missing(written):
    arrays = without("attn_mask_probs", "criterion.")
    assert_same(made(), keras_vit.load_model(written(arrays=arrays)))


@pytest.mark.parametrize(
    ("settings", "arrays", "message"),
    [
        ({}, {"attn_mask_probs": np.ones(2)}, "attn_mask_probs hides patches"),
        ({"hidden_act": "gelu_new"}, {}, "hidden_act='gelu_new': only gelu, gelu_p"),
        ({"num_blocks": 4}, {}, "query_blocks from 1 to the number of layers, got 4"),
        ({"num_blocks": 0}, {}, "num_blocks of 0: write a whole number above 0"),
        ({"num_queries": 4}, {}, "num_queries 4 .the arrays have 3"),
        ({"num_upscale_blocks": 2}, {}, "upscale_blocks 2 .the arrays have 1"),
        ({"num_labels": 3}, {}, "num_labels 3 .the arrays have 2"),
        ({"model_type": "dinov2"}, {}, "arrays have the names of another type"),
        ({"model_type": "eomt_dinov3"}, {}, "arrays have the names of another type"),
        ({}, {"query.weight": None}, "missing query.weight"),
        ({}, {"mask_head.fc2.bias": None}, "missing mask_head.fc2.bias"),
        ({}, {"mask_head.fc4.bias": np.ones(16)}, "unknown mask_head.fc4.bias"),
        ({}, {"class_predictor.weight": None}, "missing classifier.weight"),
        (
            {},
            {"upscale_block.block.2.conv2.weight": np.ones((16, 1, 3, 3))},
            "Upscale 1 is missing",
        ),
    ],
)  # fmt: skip
def test_other_networks_are_refused_by_name(settings, arrays, message, written):
    def changed(found):
        found = found | arrays
        return {key: one for key, one in found.items() if one is not None}

    folder = written(settings=lambda said: said.update(settings), arrays=changed)
    with pytest.raises(zoo.CheckpointError, match=message):
        zoo.read(folder)


def test_gates_of_dinov3_are_refused(written):
    """Its head for masks would have their activation."""
    gated = {"use_gated_mlp": True, "hidden_act": "silu"}
    folder = written("eomt_dinov3", lambda said: said.update(gated))
    with pytest.raises(zoo.CheckpointError, match="hidden_act='silu': only gelu"):
        zoo.read(folder)


@pytest.mark.parametrize(
    ("naming", "name", "message"),
    [
        ("released", "model.npz", "cannot say .*query_blocks=2"),
        ("timm", "model.safetensors", "has pooling 'token', not 'queries'"),
    ],
)
def test_files_that_cannot_say_it_are_not_written(naming, name, message, tmp_path):
    with pytest.raises(zoo.CheckpointError, match=message):
        keras_vit.save_released_weights(made(), tmp_path / name, naming=naming)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_queries": 0}, "go with num_queries"),
        ({"query_blocks": 0}, "from 1 to the number of layers, got 0"),
        ({"query_blocks": 4}, "from 1 to the number of layers, got 4"),
        ({"upscale_blocks": 3}, "masks larger than the image"),
        ({"upscale_blocks": 2**30}, "masks larger than the image"),
        ({"num_queries": 2**31}, "num_queries must be at most"),
        ({"relative_position_bias": True}, "Queries have no position"),
        ({"position_embedding": "relative"}, "Queries have no position"),
        ({"position_embedding_at": "every_layer"}, "Queries have no position"),
    ],
)
def test_configs_that_no_network_has_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        zoo.ViTConfig(**PLAIN | changes)


@pytest.mark.parametrize("pooling", ["queries", "token"])
def test_queries_go_with_their_pooling(pooling):
    config = CONFIGS["eomt"]
    config = config if pooling == "token" else config.without_queries()
    with pytest.raises(ValueError, match='pooling="queries" and the num_queries'):
        keras_vit.VisionTransformer(config, image_size=16, classes=2, pooling=pooling)

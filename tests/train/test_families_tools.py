"""Every tool for one small random model of each family, and the table of both."""

import functools
import pathlib
from unittest import mock

import families
import keras
import numpy as np
import pytest
from families import assert_close
from harness import randomize

import keras_vit
from keras_vit import explain
from keras_vit.explain import one_pass
from keras_vit.runtimes.precision import in_float32
from train import recipes
from train.data import run_data, sources
from train.export.onnx import write_onnx
from train.export.tflite import write_tflite
from train.models.exports import exported_model
from train.models.exports.saved_model import write_saved_model
from train.publish import publishing
from train.run import classification, supervised, training
from train.run.classification import FineTuning
from train.scoring import linear_probe

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "models.md"
# One case per row of the table.
FAMILIES = {
    "DeiT, distilled": "deit_distilled_timm",
    "DeiT III": "deit3_timm",
    "DINO": "dino_transformers",
    "DINOv2": "dinov2_giant_timm",
    "DINOv2, registers": "dinov2_reg4_classifier_transformers",
    "TIPSv2": "tipsv2_timm",
    "MAE": "mae_timm",
    "I-JEPA": "ijepa_timm",
    "BEiT": "beit_transformers",
    "BEiT v2": "beitv2_timm",
    "FlexiViT": "flexivit_timm",
    "SBB": "sbb_reg4_gap_timm",
    "SigLIP": "siglip_transformers",
    "SigLIP 2": "siglip2_timm",
    "CLIP": "clip_timm",
    "DINOv3": "dinov3_plus_timm",
    "EVA-02": "eva02_base_timm",
    "Perception Encoder": "pe_core_timm",
}
# The columns, in the order of `TRAINING`, `SHOWN` and `EXPORTS`.
BIASES = (
    "relative positions alone",
    "BEiT adds biases of offsets to the scores of attention and has no position "
    "embeddings either.",
)
REFUSED = {
    ("DINOv3", "positions"): (
        "rotary positions alone",
        "DINOv3 turns queries and keys by angles and has no position embeddings, whose "
        "similarity the figure shows.",
    ),
    ("BEiT", "positions"): BIASES,
    ("BEiT v2", "positions"): BIASES,
}
# Networks with parts that those of the other rows do not have; make soak has all.
OFTEN = (
    "DeiT, distilled", "DINOv2, registers", "BEiT", "EVA-02", "Perception Encoder",
)  # fmt: skip
IMAGES = 4


def path_of(family):
    return families.FOLDER / FAMILIES[family]


@functools.cache
def model_of(family):
    """A model of five classes whose head is random, too; only for what changes none."""
    model = keras_vit.load_model(path_of(family), classes=5)
    randomize(model.get_layer("head"))
    return model


def images_for(model):
    shape = (IMAGES, *model.input_shape[1:])
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


# Training.


def recipe_of(family, **settings):
    small = {"steps": 2, "batch_size": 8, "micro_batches": 1}
    small |= {"train_examples": 32, "test_examples": 16, "model": str(path_of(family))}
    small |= {"image_size": model_of(family).input_shape[1:3]}
    return recipes.for_dataset("digits").override(**small | settings)


def trained(family, run_dir, **settings):
    results = training.run(recipe_of(family, **settings), run_dir=run_dir)
    assert np.isfinite(results["test_loss"])
    return keras.saving.load_model(run_dir / "model.keras")


def changed(family, model):
    """The names of the layers that training has changed, the new head left out."""
    before = keras_vit.load_model(path_of(family), classes=10, new_head=True)
    found = set()
    for one, other in zip(before.layers, model.layers, strict=True):
        pairs = zip(one.weights, other.weights, strict=True)
        if any(np.any(np.asarray(a) != np.asarray(b)) for a, b in pairs):
            found.add(one.name)
    assert "head" in found
    return found - {"head"}


def frozen(family, tmp_path):
    task = FineTuning(recipe_of(family, frozen=True))
    task.build(training.load_source(task.recipe, log=lambda text: None))
    found = [weight.path for weight in task.model.trainable_weights]
    assert found == ["head/kernel", "head/bias"]


def lora(family, tmp_path):
    """Recomputed in the backward pass as well."""
    model = trained(family, tmp_path / "run", lora_rank=2, remat=True)
    blocks = {one.name for one in model.layers if hasattr(one, "attention")}
    assert changed(family, model) == blocks


def all_weights(family, tmp_path):
    """By layer decay in mixed precision, and published."""
    settings = {"layer_decay": 0.75, "precision": "mixed_bfloat16"}
    model = trained(family, tmp_path / "digits", **settings)
    assert {"embedding", "encoder_block_0", "encoder_block_1"} <= changed(family, model)
    folder = publishing.publish(tmp_path / "digits", tmp_path / "registry")
    again = keras_vit.load_model(folder)
    assert again.get_layer("head").class_names == tuple("0123456789")
    images = images_for(again)
    np.testing.assert_array_equal(again(images), in_float32(model)(images))


def few_shot(family, tmp_path):
    with mock.patch.object(sources, "load", functools.partial(few, sources.load)):
        model, rest = str(path_of(family)), {"shots": (1,), "seeds": 1}
        results = linear_probe.run(model, dataset="digits", out_dir=tmp_path, **rest)
    assert 0 <= results["rows"][0]["mean"] <= 1


def few(load, *args, **options):
    return run_data.limit(load(*args, **options), 64, 16)


# Figures and other sizes.


def other_size(family, tmp_path):
    model = model_of(family)
    height, width = model.input_shape[1:3]
    down, across = model.get_layer("embedding").patch_size
    resized = keras_vit.at_image_size(model, (height + down, width + 2 * across))
    images = images_for(resized)
    wanted = np.asarray(resized(images))
    assert np.isfinite(wanted).all()
    found = np.asarray(keras_vit.at_image_size(model, (None, None))(images))
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def attention(family, tmp_path):
    """Maps, distances and the roll-out, all without registers."""
    model = model_of(family)
    images, grid = images_for(model), explain.grid_size(model)
    found, rows = one_pass.inspect(model, images), explain.attention_maps(model, images)
    np.testing.assert_allclose(rows.sum(axis=-1), 1, rtol=1e-5)
    assert found.maps.shape == (*rows.shape[:3], *grid)
    assert found.rollout.shape == (IMAGES, *grid)
    assert np.isfinite(found.distance).all()
    relevance = explain.gradient_attention(model, images[:1])
    assert relevance.shape == (1, *rows.shape[-2:])


def features(family, tmp_path):
    model = model_of(family)
    images = images_for(model)
    patches = explain.token_features(model, images).patches
    assert explain.principal_colors(patches).shape == (*patches.shape[:3], 3)
    for map in keras_vit.features(model, (0, -1))(images).values():
        assert map.shape == patches.shape and np.isfinite(map).all()


def positions(family, tmp_path):
    similarity = explain.position_embedding_similarity(model_of(family))
    grid = explain.grid_size(model_of(family))
    assert similarity.shape == 2 * grid


# Smaller and exported models, against the model itself.


def int8_weights(family, tmp_path):
    model = model_of(family)
    quantized = keras_vit.quantize_weights(model)
    kinds = {one.dtype for one in quantized.weights if one.path.endswith("/kernel")}
    assert kinds == {"int8"}
    images = images_for(model)
    found = np.asarray(quantized(images))
    assert_close(found, np.asarray(model(images)), 0.1)
    quantized.save(tmp_path / "int8.keras")
    again = keras.saving.load_model(tmp_path / "int8.keras")
    np.testing.assert_array_equal(again(images), found)


def check_export(family, path, tolerance):
    images = images_for(model_of(family))
    wanted = np.asarray(model_of(family)(images))
    assert_close(exported_model.load(path).run(images), wanted, tolerance)


def saved_model(family, tmp_path):
    write_saved_model(model_of(family), tmp_path / "1")
    check_export(family, tmp_path / "1", 1e-5)


def onnx(family, tmp_path):
    write_onnx(model_of(family), tmp_path / "model.onnx")
    check_export(family, tmp_path / "model.onnx", 1e-5)


def tflite_float(family, tmp_path):
    found = write_tflite(model_of(family), tmp_path / "model.tflite")
    assert found.keys() == {"float32"}
    check_export(family, tmp_path / "model.tflite", 1e-5)


def tflite_int8(family, tmp_path):
    path, model = tmp_path / "model.tflite", model_of(family)
    found = write_tflite(model, path, precision="int8", calibration=images_for(model))
    # The converter leaves a matrix of less than 1024 numbers, such as the head, alone.
    assert found["static"] > 0
    assert found.keys() <= {"static", "dynamic", "float32"}
    check_export(family, path, 0.15)


# The title of each column, and the function that runs for it.
TRAINING = {
    "fine-tuned, published": all_weights,
    "`--frozen`": frozen,
    "`--lora_rank`": lora,
    "few-shot": few_shot,
}
SHOWN = {
    "another size": other_size,
    "attention": attention,
    "features": features,
    "positions": positions,
}
EXPORTS = {
    "int8 weights": int8_weights,
    "SavedModel": saved_model,
    "TFLite": tflite_float,
    "TFLite int8": tflite_int8,
    "ONNX": onnx,
}


pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="exports need TensorFlow"
)
# The rest are run by `make soak`.
SOME = [
    pytest.param(family, marks=() if family in OFTEN else pytest.mark.soak)
    for family in FAMILIES
]


def run(tools, family, tmp_path):
    for name, tool in tools.items():
        folder = tmp_path / tool.__name__
        folder.mkdir()
        if (family, name) in REFUSED:
            message, _ = REFUSED[family, name]
            with pytest.raises(ValueError, match=message):
                tool(family, folder)
        else:
            tool(family, folder)


@pytest.mark.slow
@pytest.mark.usefixtures("empty_figures")
@pytest.mark.parametrize("family", SOME)
def test_training(family, tmp_path, monkeypatch):
    # Pictures of a run, and the SavedModel of a published model, which another tool is.
    for module, name in (
        (supervised, "draw_batch"),
        (classification, "write_predictions_picture"),
    ):
        monkeypatch.setattr(module, name, lambda path, *args, **options: None)
    for name in ("write_saved_model", "_check_saved_model"):
        monkeypatch.setattr(publishing, name, lambda *args, **options: None)
    run(TRAINING, family, tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_shown(family, tmp_path):
    run(SHOWN, family, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", SOME)
def test_exports(family, tmp_path):
    run(EXPORTS, family, tmp_path)


def table():
    """The table in docs/models.md, and a sentence for each cell that cannot be."""
    tools = {**TRAINING, **SHOWN, **EXPORTS}
    lines = ["| Family | " + " | ".join(tools) + " |", "|---|" + "---|" * len(tools)]
    for family in FAMILIES:
        cells = ["no" if (family, tool) in REFUSED else "yes" for tool in tools]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def test_the_table_is_what_runs():
    page = PAGE.read_text()
    assert table() in page, table()
    for _, reason in REFUSED.values():
        assert " ".join(reason.split()) in " ".join(page.split())

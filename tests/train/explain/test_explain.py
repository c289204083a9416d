"""What the report of a model and photos holds, and what is refused."""

import re

import keras
import numpy as np
import PIL.Image
import pytest
import small_models
from explained import (
    NAMES,
    OF_ALL,
    OF_MODEL,
    OF_PHOTOS,
    check,
    check_map,
    numbers,
    prepared,
    save,
)
from html_page import Page
from small_models import HYBRID, made, of

import keras_vit
from keras_vit import explain
from keras_vit.models.bit import BiTResNet
from train.common.errors import RunError
from train.explain import inspection
from train.explain.report import explain as write_report
from train.models import loaded_model
from train.models.classes import Classes, classes_of
from train.models.loaded_model import LoadedModel
from zoo.network import BiTConfig


def bit():
    config = BiTConfig(depths=(1, 1), width_factor=1)
    model = BiTResNet(config, image_size=small_models.SIZE, classes=5)
    small_models.randomize(model)
    return model


NO_HEAD = dict.fromkeys(("answers", "gradient"), "has no head")
NO_ATTENTION = dict.fromkeys(
    (*OF_ALL, *OF_PHOTOS, "attention_distance"), "no TransformerBlock|PatchEncoder"
)
GRAY = {"pooling": "gap", "channels": 1, "classifier_activation": "softmax"}
MISSING = {
    "gap, gray": (lambda: made(**GRAY), {}),
    "features": (
        lambda: made(include_top=False),
        NO_HEAD | {"predictions": "has no head for classes"},
    ),
    "all tokens": (
        lambda: made(pooling=None),
        NO_HEAD | {"predictions": "a head for each token"},
    ),
    "hybrid, relative": (
        lambda: made(**of(HYBRID, position_embedding="relative")),
        {"position_similarity": "relative positions"},
    ),
    "BiT": (bit, NO_ATTENTION | {"position_similarity": "no position embeddings"}),
}


@pytest.mark.parametrize(("make", "missing"), MISSING.values(), ids=MISSING)
def test_what_a_model_lacks(make, missing, explain_model, photos, tmp_path):
    model = make()
    names = NAMES if model.output_shape[1:] == (5,) else None
    loaded = LoadedModel("tiny", model, names)
    facts = explain_model(loaded, [photos / "wide.png"], tmp_path)
    why = facts["missing"] | {"predictions": facts["why_no_predictions"]}
    assert {kind for kind, reason in why.items() if reason} == set(missing)
    page = Page(tmp_path / "report.html")
    for kind, reason in missing.items():
        assert re.search(reason, why[kind]), why[kind]
        assert why[kind] in page.text
    figures = (tmp_path / "figures").iterdir()
    drawn = {path.stem.removeprefix("01-wide-") for path in figures}
    assert drawn == {*OF_ALL, *OF_PHOTOS, *OF_MODEL} - set(missing)
    # The rest is right.
    image = prepared(photos / "wide.png", model.input_shape[-1])
    if "predictions" not in missing:
        outputs = model(image)
        if model.layers[-1].activation is keras.activations.linear:
            outputs = keras.ops.softmax(outputs)
        check(tmp_path, "predictions", 1e-3, 1e-3, probabilities=outputs.numpy())
        assert facts["photos"][0]["predictions"][0][1] in page.text
    if "rollout" not in missing:
        [rollout] = explain.attention_rollout(model, image)
        check_map(tmp_path, "01-wide-rollout", model, rollout, rtol=1e-3, atol=1e-5)


def test_a_pooling_by_attention_is_shown(explain_model, quick, photos, tmp_path):
    quick("rollout", "gradient", "layers", "pooling")
    model, photo = made(pooling="map"), photos / "wide.png"
    results = explain_model(LoadedModel("tiny", model, NAMES), [photo], tmp_path)
    assert results["attention_of"] == "the query of the pooling"
    text = Page(tmp_path / "report.html").text
    assert "How much of each patch reaches the query of the pooling" in text
    assert "Attention of the mean of the patches in each layer" in text
    image = prepared(photo)
    pooled = explain.pooling_attention(model, image)
    maps = pooled.reshape(-1, *explain.grid_size(model))
    check(tmp_path, "01-wide-pooling", maps=maps, map=maps.mean(axis=0))
    [rollout] = explain.attention_rollout(model, image)
    weights = pooled.mean(axis=1)[0]
    check_map(tmp_path, "01-wide-rollout", model, rollout, weights)
    [matrix], [weights] = explain.gradient_attention(model, image, return_pooling=True)
    check_map(tmp_path, "01-wide-gradient", model, matrix, weights, rtol=1e-3)


def test_one_forward_pass_shows_all_but_gradients(
    explain_model, quick, tiny, photos, tmp_path, monkeypatch
):
    quick("rollout", "layers", "heads", "features", "attention_distance")
    calls, call = [], keras.Model.__call__

    def counted(model, images, **options):
        if model is tiny.model and not isinstance(images, keras.KerasTensor):
            calls.append(len(images))
        return call(model, images, **options)

    def no_gradient(model, images, number, **_):
        raise ValueError("not this time")

    monkeypatch.setattr(keras.Model, "__call__", counted)
    monkeypatch.setattr(explain, "gradient_attention", no_gradient)
    facts = explain_model(tiny, [photos], tmp_path)
    assert calls == [len(facts["photos"])]


def sinks_of(counts, shares, photos):
    found = inspection.find_sinks(np.array(counts), np.array(shares), photos)
    return found, inspection.describe_sinks(found, np.shape(counts)[1:])


def test_attention_sinks_of_several_photos_are_named():
    counts, shares = np.zeros((3, 6, 8), int), np.zeros((3, 6, 8))
    assert sinks_of(counts, shares, 4) == ([], None)
    assert sinks_of(counts + 3, shares + 0.02, 3) == ([], None)
    assert len(sinks_of(counts + 4, shares + 0.02, 4)[0]) == 3 * 48
    # In half of the photos, and in fewer.
    counts[1, 0, 0], counts[1, 5, 7], counts[0, 0, 3] = 4, 2, 1
    shares[1, 0, 0], shares[1, 5, 7] = 0.31, 0.2
    rows, sentence = sinks_of(counts, shares, 4)
    assert rows == [
        {"layer": 2, "row": 1, "column": 1, "share": 0.31, "photos": 4},
        {"layer": 2, "row": 6, "column": 8, "share": 0.2, "photos": 2},
    ]
    assert sentence.count(".") == 1
    assert "2 patches at the border (row 1 column 1, row 6 column 8)" in sentence
    assert "shows, in layer 2 with 51% of all attention" in sentence
    counts[:], shares[:] = 0, 0
    for layer, share in ((1, 0.1), (2, 0.05)):
        counts[layer, ::5, ::7], shares[layer, ::5, ::7] = 4, share
    _, sentence = sinks_of(counts, shares, 4)
    assert "the patches at the four corners (row 1 column 1, row 1 column 8" in sentence
    assert "in layers 2, 3, most in layer 2 with 40% of all attention" in sentence
    # Four patches that are not at the corners.
    _, sentence = sinks_of(np.roll(counts, 1, axis=2), shares, 4)
    assert "4 patches at the border" in sentence


def test_a_new_head_and_outputs_that_are_not_finite(
    explain_model, quick, photos, tmp_path
):
    size = small_models.SIZE
    model = keras_vit.VisionTransformer(small_models.PLAIN, image_size=size, classes=5)
    loaded = LoadedModel("tiny", model, NAMES)
    for bias, why in ((0, "the head is new"), (np.nan, "not finite")):
        quick("gradient")
        model.get_layer("head").bias.assign([bias, 0, 0, 0, 0])
        facts = explain_model(loaded, [photos / "wide.png"], tmp_path)
        assert why in facts["why_no_predictions"]
        assert facts["why_no_predictions"] in Page(tmp_path / "report.html").text
        assert set(facts["missing"]) == {"answers", "gradient"}
        assert not (tmp_path / "predictions.csv").exists()


def test_a_class_that_is_asked_for(explain_model, quick, tiny, photos, tmp_path):
    quick("gradient")
    photo = photos / "wide.png"
    facts = explain_model(tiny, [photo], tmp_path, class_name="Red_Fox")
    assert facts["class"] == "red fox"
    assert numbers(tmp_path, "01-wide-gradient")["class_name"] == "red fox"
    [matrix] = explain.gradient_attention(tiny.model, prepared(photo), 2)
    check_map(tmp_path, "01-wide-gradient", tiny.model, matrix, rtol=1e-3)


def test_classes_without_names(explain_model, quick, photos, tmp_path):
    quick()
    loaded = LoadedModel("tiny", made())
    facts = explain_model(loaded, [photos / "wide.png"], tmp_path / "out")
    assert "has 5 classes, whose names are not known" in facts["why_no_class_names"]
    text = Page(tmp_path / "out" / "report.html").text
    assert facts["why_no_class_names"] in text and re.search(r"class \d", text)
    with pytest.raises(RunError, match="'cat' is not one .*give a number from 0 to 4"):
        explain_model(loaded, [photos], tmp_path / "other", class_name="cat")
    # ImageNet's names need no network.
    found = classes_of(LoadedModel("tiny", made(classes=1000), "imagenet2012"))
    assert found.why_no_names is None
    assert (found.names[0], found.names[2]) == ("tench", "great white shark")


def test_only_an_earlier_report_is_replaced(
    explain_model, quick, tiny, photos, tmp_path, monkeypatch
):
    quick()
    out = tmp_path / "out"
    explain_model(tiny, [photos], out, shown=2)
    # Its own figures are not photos of the next one.
    PIL.Image.new("RGB", (20, 20), "red").save(tmp_path / "red.png")
    facts = explain_model(tiny, [tmp_path], out)
    assert [photo["name"] for photo in facts["photos"]] == ["red.png"]
    assert not list((out / "figures").glob("02-*"))
    before = {p: p.read_bytes() for p in out.rglob("*.*")}

    # A failure leaves the earlier report, and so does a run that may not replace it.
    with monkeypatch.context() as failing, pytest.raises(ZeroDivisionError):
        failing.setattr("train.explain.report.render", lambda *_: 1 / 0)
        explain_model(tiny, [photos / "wide.png"], out)
    with pytest.raises(RunError, match="holds an earlier report: pass --overwrite"):
        explain_model(tiny, [photos], out, overwrite=False)
    assert {p: p.read_bytes() for p in out.rglob("*.*")} == before
    assert {path.name for path in tmp_path.iterdir()} == {"out", "red.png"}
    (out / "notes.txt").write_text("mine")
    for path, told in (
        (out, "an earlier report, and notes.txt besides"),
        (photos, "is not an earlier report"),
    ):
        with pytest.raises(RunError, match=told):
            explain_model(tiny, [photos], path)


REFUSED = [
    (lambda: Classes(NAMES).find("red fax"), "'red fax' .*5 classes: give one such as"),
    (lambda: Classes(NAMES).find("7"), "'7' is not one .* such as cat, dog, red fox"),
    (lambda: Classes(("a", "b", "A")).find("a"), "classes 0 and 2 are both called 'a'"),
    (
        lambda: loaded_model.image_shape_of(
            LoadedModel("many", made(channels=4)), channels=(1, 3)
        ),
        r"\(32, 48, 4\): .* \(height, width, 1\) or \(height, width, 3\) of",
    ),
]


@pytest.mark.parametrize(("call", "told"), REFUSED)
def test_classes_and_images_that_a_model_does_not_have_are_refused(call, told):
    assert Classes(NAMES).find("4") == (4, "crow")
    with pytest.raises(RunError, match=told):
        call()


def test_a_model_without_classes_is_asked_for_none(photos, tmp_path):
    out, features = tmp_path / "out", save(made(include_top=False), tmp_path)
    with pytest.raises(RunError, match="has no head for classes.*Leave --class out"):
        write_report(features, [photos], out, class_name="cat")
    assert not out.exists()

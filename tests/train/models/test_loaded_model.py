"""Models by all their names, with what lies beside them."""

import dataclasses

import keras
import pytest
from evaluated import COLOURS, CONFIG, tiny

import keras_vit
import zoo
from train.common.errors import RunError
from train.models import loaded_model
from train.scoring.class_matching import match_classes
from zoo.catalog import registry
from zoo.store import digest


def test_ways_to_name_a_model(tmp_path, monkeypatch):
    model, names = tiny(3), ("a", "b", "c")
    run, published = tmp_path / "digits", tmp_path / "registry" / "mine"
    for folder in (run, published):
        folder.mkdir(parents=True)
        (folder / "class_names.txt").write_text("a\nb\nc\n")
    model.save(run / "model.keras")
    (run / "config.json").write_text('{"dataset": "digits", "validation_fraction": 0}')
    weights = keras_vit.save_released_weights(model, published / "model.npz")
    card = zoo.PublishedModel(
        name="mine", architecture=dataclasses.asdict(CONFIG), image_size=(32, 32),
        channels=3, classes=3, class_names=names, parameters=1, weights="model.npz",
        file_size=weights.stat().st_size, sha256=digest(weights, "sha256"),
        data_set="digits", metrics={}, base=None, variant=None, licence="mit",
    )  # fmt: skip
    (published / "model.json").write_text(card.to_json())
    registry.write_index(published.parent)
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_VIT_REGISTRY", str(published.parent))
    for source, name in (
        (run, "digits"),
        (run / "model.keras", "model"),
        (published, "mine"),
        ("mine", "mine"),
        (weights, "model"),
    ):
        loaded = loaded_model.load(str(source))
        assert (loaded.name, loaded.class_names) == (name, names), source
        assert loaded.model.output_shape == (None, 3)
    assert loaded_model.load(str(run)).config["dataset"] == "digits"
    assert loaded_model.load("mine", features=True).model.output_shape == (None, 16)


def test_class_names_beside_a_model_of_ones_own(tmp_path):
    model = tiny(3)
    paths = [tmp_path / f"own{suffix}" for suffix in (".keras", ".npz", ".safetensors")]
    model.save(paths[0])
    for path in paths[1:]:
        keras_vit.save_released_weights(model, path)
    assert all(loaded_model.load(str(path)).class_names is None for path in paths)
    # As an editor leaves it, on Windows too: no line break at the end.
    names = tmp_path / "class_names.txt"
    names.write_bytes("\ufeffgreen\r\nred hot\r\nblue".encode())
    for path in paths:
        loaded = loaded_model.load(str(path))
        assert loaded.class_names == ("green", "red hot", "blue")
    shown, places, _ = match_classes(3, loaded.class_names, list(COLOURS))
    assert shown == loaded.class_names and places.tolist() == [2, 0, 1]
    names.write_text("green\nblue\n")
    for path in paths:
        with pytest.raises(RunError, match="class_names.txt has 2 lines, but .* 3"):
            loaded_model.load(str(path))
        assert loaded_model.load(str(path), features=True).class_names is None


def test_models_that_scale_pixels_take_them_from_a_layer_before(tmp_path):
    images = keras.Input((32, 32, 3))
    for scaling in (
        keras.layers.Normalization(mean=120.0, variance=3000.0, name="own"),
        keras.layers.Rescaling(1 / 255, name="own"),
    ):
        layers = [scaling, keras.layers.Flatten(), keras.layers.Dense(10)]
        model = keras.Sequential([images, *layers])
        with pytest.raises(RunError, match="layer own of the model net takes .* 255"):
            loaded_model.image_shape_of(loaded_model.LoadedModel("net", model))
    # As the message says, around the model or in it.
    to_pixels = keras.layers.Rescaling(127.5, 127.5)
    for rest in ([model], layers):
        keras.Sequential([images, to_pixels, *rest]).save(tmp_path / "whole.keras")
        loaded = loaded_model.load(str(tmp_path / "whole.keras"))
        assert loaded_model.image_shape_of(loaded) == (32, 32, 3)

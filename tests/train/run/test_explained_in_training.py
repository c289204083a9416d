"""Pictures of the attention, on TensorBoard while a model is trained."""

import dataclasses
import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from train import recipes
from train.common.errors import RunError
from train.run import explained_images, training

SMOKE = recipes.for_dataset("digits").smoke()
RECIPE = SMOKE.override(
    model=dataclasses.replace(SMOKE.model, hidden_size=8, num_layers=1, mlp_dim=16),
    **{"steps": 6, "eval_every": 2},
)
PICTURES = {"attention rollout", "figure 7"}


def pictures_of(run_dir):
    """The pictures that TensorBoard will show: {name: [(step, pixels)]}."""
    found = {}
    for path in sorted((run_dir / "tensorboard").iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name != "images":
                    continue
                _, _, encoded = tf.make_ndarray(value.tensor)
                pixels = tf.io.decode_png(encoded).numpy()
                found.setdefault(value.tag, []).append((event.step, pixels))
    return found


@pytest.mark.slow
def test_pictures_come_with_the_validations_and_change_nothing(
    tmp_path, capsys, monkeypatch
):
    def pictures(model, images, step):
        bias = model.get_layer("embedding").bias
        kept = np.array(bias)
        if step == 2:
            bias.assign(np.full(8, np.nan))
        try:
            return draw(model, images, step)
        finally:
            bias.assign(kept)

    draw = explained_images.pictures
    monkeypatch.setattr(explained_images, "pictures", pictures)
    with_pictures = RECIPE.override(explained_images=3, average_decay=0.5)
    training.run(with_pictures, run_dir=tmp_path / "shown")
    # What cannot be drawn does not end a run.
    assert "step 2: no pictures for TensorBoard: " in capsys.readouterr().out
    found = pictures_of(tmp_path / "shown")
    assert found.keys() == PICTURES
    for shown in found.values():
        assert [step for step, _ in shown] == [4, 6]
        for _, pixels in shown:
            assert min(pixels.shape[:2]) > 200
            assert pixels.std() > 10
        assert (shown[0][1] != shown[1][1]).any()

    training.run(RECIPE.override(average_decay=0.5), run_dir=tmp_path / "plain")
    assert pictures_of(tmp_path / "plain") == {}
    reports = [
        json.loads((tmp_path / name / "report.json").read_text())
        for name in ("shown", "plain")
    ]
    assert reports[0]["test_loss"] == reports[1]["test_loss"]
    # The same run, which may go on without pictures.
    assert with_pictures.deciding == RECIPE.override(average_decay=0.5).deciding


def test_without_validation_they_are_of_test_images(monkeypatch):
    monkeypatch.setattr(explained_images, "choose", lambda *arguments: arguments)
    recipe = RECIPE.override(validation_fraction=0.0)
    source = training.load_source(recipe, None, skip_corrupt=False)
    network = types.SimpleNamespace(input_shape=(None, 8, 8, 3))
    task = types.SimpleNamespace(recipe=recipe, source=source, network=network)
    run = training.Run(task, trainer=None, directory=None, devices=None)
    assert run.shown == (recipe, network, source.test)


def test_models_without_attention_are_refused_before_they_are_trained():
    recipe = RECIPE.override(model="ResNet50V2", image_size=32, explained_images=1)
    images = keras.Input((32, 32, 3))
    model = keras.Model(images, keras.layers.GlobalAveragePooling2D()(images))
    with pytest.raises(RunError, match="--explained_images shows what a Vision Tran"):
        explained_images.choose(recipe, model, split=None)

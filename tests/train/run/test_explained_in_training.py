"""What a model looks at, on TensorBoard while it is trained."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from train import recipes
from train.common.errors import RunError
from train.run import explained_images, training

ROOT = pathlib.Path(__file__).parents[3]
RECIPE = recipes.for_dataset("digits").smoke()
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
def test_pictures_come_with_the_validations_and_change_nothing(tmp_path):
    with_pictures = RECIPE.override(explained_images=3, average_decay=0.5)
    training.run(with_pictures, run_dir=tmp_path / "shown")
    found = pictures_of(tmp_path / "shown")
    assert found.keys() == PICTURES
    for shown in found.values():
        assert [step for step, _ in shown] == [4, 8]
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
    # The same run, which may be gone on with without pictures.
    training.run(RECIPE.override(average_decay=0.5), run_dir=tmp_path / "shown")


@pytest.mark.soak
def test_a_run_without_validation_shows_test_images(tmp_path):
    recipe = RECIPE.override(
        validation_fraction=0.0, explained_images=1, steps=2, eval_every=2
    )
    training.run(recipe, run_dir=tmp_path)
    assert pictures_of(tmp_path).keys() == PICTURES


@pytest.mark.slow
def test_what_cannot_be_drawn_does_not_end_a_run(tmp_path, capsys, monkeypatch):
    def pictures(model, images, step):
        bias = model.get_layer("embedding").bias
        kept = np.array(bias)
        bias.assign(np.full(32, np.nan))
        try:
            return draw(model, images, step)
        finally:
            bias.assign(kept)

    draw = explained_images.pictures
    monkeypatch.setattr(explained_images, "pictures", pictures)
    recipe = RECIPE.override(explained_images=1, steps=1, eval_every=1)
    assert training.run(recipe, run_dir=tmp_path)["steps"] == 1
    assert "step 1: no pictures for TensorBoard: " in capsys.readouterr().out
    assert pictures_of(tmp_path) == {}


@pytest.mark.slow
def test_models_without_attention_are_refused_before_they_are_trained(tmp_path):
    recipe = RECIPE.override(model="ResNet50V2", image_size=32, explained_images=1)
    with pytest.raises(RunError, match="--explained_images shows what a Vision Tran"):
        training.run(recipe, run_dir=tmp_path)
    assert not any(tmp_path.rglob("step-*"))


@pytest.mark.soak
def test_masked_patches_show_them_too(tmp_path):
    arguments = ["--dataset=digits", "--smoke", f"--run_dir={tmp_path}"]
    process = subprocess.run(
        [
            *[sys.executable, "-m", "train.masked_patches", *arguments],
            *["--explained_images=2", "--steps=2", "--eval_every=2"],
        ],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert pictures_of(tmp_path).keys() == PICTURES

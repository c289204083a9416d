"""Pictures of the attention, on TensorBoard while a model is trained."""

import keras
import numpy as np
import pytest
import same_runs
import tensorflow as tf

from keras_vit import ViTConfig
from train import recipes
from train.common.errors import RunError
from train.run import explained_images, training

RECIPE = recipes.for_dataset("digits").smoke()
# A grid of 2x2 patches, and as few filters as are not too few to be drawn.
TINY = ViTConfig(hidden_size=8, num_layers=1, num_heads=2, mlp_dim=8, patch_size=4)


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
    # Without validation they are of test images.
    plain = RECIPE.override(
        **{"model": TINY, "image_size": 8, "steps": 3, "warmup_steps": 1},
        **{"micro_batches": 1, "average_decay": 0.5, "validation_fraction": 0.0},
        eval_every=1,
    )
    with_pictures = plain.override(explained_images=3)
    assert training.run(with_pictures, run_dir=tmp_path / "shown")["steps"] == 3
    found = pictures_of(tmp_path / "shown")
    assert found.keys() == {"attention rollout", "figure 7"}
    # What cannot be drawn does not end a run.
    assert "step 2: no pictures for TensorBoard: " in capsys.readouterr().out
    for shown in found.values():
        assert [step for step, _ in shown] == [1, 3]
        for _, pixels in shown:
            assert min(pixels.shape[:2]) > 200
            assert pixels.std() > 10
        assert (shown[0][1] != shown[1][1]).any()

    training.run(plain, run_dir=tmp_path / "plain")
    assert pictures_of(tmp_path / "plain") == {}
    shown, without = (same_runs.report(tmp_path / name) for name in ("shown", "plain"))
    assert shown["test_loss"] == without["test_loss"]
    # The same run, which may go on without pictures.
    assert with_pictures.deciding == plain.deciding


def test_models_without_attention_are_refused_before_they_are_trained():
    recipe = RECIPE.override(model="ResNet50V2", image_size=32, explained_images=1)
    images = keras.Input((32, 32, 3))
    model = keras.Model(images, keras.layers.GlobalAveragePooling2D()(images))
    with pytest.raises(RunError, match="--explained_images shows what a Vision Tran"):
        explained_images.choose(recipe, model, split=None)

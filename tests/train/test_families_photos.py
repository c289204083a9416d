"""One model of each family from photos to its evaluation, by commands.

The weights are random and the steps few, so nothing is said of the accuracy: what is
held is that the commands of a user run, and that the second finds what the first wrote.
"""

import json
import math

import keras
import numpy as np
import pytest
from families import SHARED as GOLDENS
from test_families_tools import FAMILIES, path_of

import keras_vit

SHARED = GOLDENS.parent
STEPS = 4
# How many classes and images of a test there are, and the flags for them.
DATA = {
    "flower photos": (5, 150, [f"--dataset={SHARED / 'photos' / 'flowers5'}"]),
    "CIFAR-100": (
        100,
        10_000,
        [
            "--dataset=cifar100",
            f"--data_dir={SHARED / 'tfds'}",
            "--train_examples=256",
        ],
    ),
}

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not SHARED.is_dir(), reason=f"{SHARED} is not there: only developers and CI"
    ),
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="training needs TensorFlow"
    ),
]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", FAMILIES)
def test_from_photos_to_an_evaluation(family, data, tmp_path, forks):
    def run(command, *words):
        code, output = forks.run([f"train.{command}", *words], tmp_path, {})
        assert code == 0, output
        return output

    def report_of(folder):
        return json.loads((tmp_path / folder / "report.json").read_text())

    classes, tested, flags = DATA[data]
    model = keras_vit.load_model(path_of(family), classes=classes, new_head=True)
    height, width = model.input_shape[1:3]
    run(
        "finetune",
        f"--model={path_of(family)}",
        *flags,
        f"--image_size={height},{width}",
        f"--steps={STEPS}",
        "--warmup_steps=1",
        "--batch_size=16",
        "--run_dir=run",
    )
    trained = report_of("run")
    assert trained["steps"] == STEPS
    assert math.isfinite(trained["test_loss"])
    changed = keras.saving.load_model(tmp_path / "run" / "model.keras")
    assert changed.output_shape == (None, classes)
    for name in ("embedding", "encoder_block_0", "head"):
        before, after = (one.get_layer(name).get_weights() for one in (model, changed))
        assert any(map(np.any, map(np.subtract, before, after))), name

    places = [flag for flag in flags if flag.startswith("--data_dir=")]
    output = run("evaluate", "run", *places, "--out_dir=evaluation")
    found = report_of("evaluation")
    assert found["test_examples"] == trained["test_examples"] == tested
    assert found["test_accuracy"] == trained["test_accuracy"]
    assert found["test_loss"] == pytest.approx(trained["test_loss"], rel=1e-5)
    assert f"accuracy {found['test_accuracy']:.2%}" in output

"""Training computes no token that nobody uses; exports: tests/train/export."""

import numpy as np
import pytest
import small_models

from train.engine.optimizers import MomentumSGD
from train.engine.tensorflow_backend import TensorFlowTrainer

tf = pytest.importorskip("tensorflow")


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_last_block_trains_one_token(micro_batches, monkeypatch):
    seen = small_models.seen_by(monkeypatch)
    trainer = TensorFlowTrainer(
        small_models.made(), MomentumSGD(0.1), micro_batches=micro_batches
    )
    images = np.zeros((2, 32, 48, 3), "float32")
    # Traced for the harder of the two cases: tracing takes seconds.
    tf.config.run_functions_eagerly(micro_batches == 1)
    try:
        trainer.step(images, np.zeros(2, "int32"))
        assert seen and seen[::2] == [False] * len(seen[::2])
        assert seen[1::2] == [True] * len(seen[::2])
        seen.clear()
        trainer.answers(images, np.zeros(2, "int32"))
        assert seen == [False, True]
    finally:
        tf.config.run_functions_eagerly(False)

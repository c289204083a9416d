"""Training and ONNX compute no token that nobody uses; see test_export_variants too."""

import numpy as np
import pytest
import small_models

from train.engine.optimizers import MomentumSGD
from train.engine.tensorflow_backend import TensorFlowTrainer
from train.export.onnx import write_onnx

tf = pytest.importorskip("tensorflow")


@pytest.fixture
def seen(monkeypatch):
    return small_models.seen_by(monkeypatch)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_training(seen, micro_batches):
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


def test_onnx(tmp_path):
    onnx = pytest.importorskip("onnx")
    counts = {}
    for pooling in ("token", None):
        model = small_models.made(include_top=False, pooling=pooling)
        write_onnx(model, tmp_path / "model.onnx")
        nodes = onnx.load(tmp_path / "model.onnx").graph.node
        counts[pooling] = sum(node.op_type == "Slice" for node in nodes)
    # Of what asks and of the shortcut in the last block, and of the pooling.
    assert counts == {"token": 3, None: 0}

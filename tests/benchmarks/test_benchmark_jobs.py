"""The jobs of a benchmark, here in the test's own process."""

import numpy as np
import pytest
import small_variants

from benchmarks import growth, ours, peer_models, peers
from benchmarks.contest import choose
from benchmarks.model_flags import describe
from benchmarks.worker import load
from keras_vit.layers import attention
from train.common import freed_memory
from train.engine import tensorflow_backend

TABLES = {
    "ours": ours.INFERENCE,
    "peers": peers.PEERS,
    "training": ours.TRAINING,
    "training peers": peers.TRAINING,
}
# Their libraries can be in the process of the tests.
HERE = ["graph", "keras-predict", "predictor", "any-size", "xla"]
HERE += ["litert", "onnxruntime", "openvino"]


@pytest.mark.parametrize("name", HERE)
def test_steps_of_ours_end_with_logits(name, monkeypatch):
    small_variants.shrink(monkeypatch)
    contender = ours.INFERENCE[name]
    settings = contender.settings | describe("ViT-Ti_16", 32, 2).ours
    logits = load(contender.job)(**settings)()
    assert isinstance(logits, np.ndarray)
    assert (logits.shape, logits.dtype) == ((2, 1000), "float32")


def test_kept_memory(monkeypatch):
    small_variants.shrink(monkeypatch)
    monkeypatch.setattr(tensorflow_backend, "start", lambda devices: None)
    steps = describe("ViT-Ti_16", 32, 2).ours | {"micro_batches": 1, "remat": False}
    monkeypatch.setattr(freed_memory, "keep", lambda: False)
    with pytest.raises(RuntimeError, match="train.common.freed_memory"):
        ours.kept_memory_training_step(**steps)
    monkeypatch.setattr(freed_memory, "keep", lambda: True)
    assert ours.kept_memory_training_step(**steps)() > 0


def test_whole_scores(monkeypatch):
    small_variants.shrink(monkeypatch)
    # Threads can be set before the first test alone.
    monkeypatch.setattr(tensorflow_backend, "start", lambda devices: None)
    monkeypatch.setattr(attention, "MIN_TOKENS", 2)
    monkeypatch.delattr(attention, "blockwise_attention")
    settings = describe("ViT-Ti_16", 32, 2).ours
    steps = settings | {"micro_batches": 1, "remat": False}
    ours.graph_of_whole_scores(**settings)()
    ours.whole_scores_training_step(**steps)()
    for plain, given in ((ours.graph, settings), (ours.training_step, steps)):
        with pytest.raises(NameError, match="blockwise_attention"):
            plain(**given)()


@pytest.mark.parametrize(
    "output, shape", [("tokens", (2, 16, 48)), ("features", (2, 48))]
)
def test_steps_of_other_families_end_with_their_output(output, shape, shared):
    file = shared / "goldens_families" / "siglip2_timm"
    family = {"architecture": "siglip", "file": str(file), "output": output}
    found = ours.graph(sizes={}, image_size=32, batch=2, family=family)()
    assert found.shape == shape
    model = ours.build({}, 32, family | {"output": "logits"})
    assert model.output_shape == (None, 1000)


@pytest.mark.parametrize("table", TABLES)
def test_tables_name_functions_and_labels_differ(table):
    choices = TABLES[table].values()
    assert all(callable(load(choice.job)) for choice in choices)
    labels = [choice.name for choice in choices]
    assert len(set(labels)) == len(labels)


def test_flags_choose_rows():
    [choice] = choose(peers.PEERS, ["torch", "torch"], "peers")
    assert choice.name == "timm"
    assert choose(peers.PEERS, ["all"], "peers") == [*peers.PEERS.values()]
    assert choose(peers.PEERS, [], "peers") == []
    with pytest.raises(ValueError, match="--peers has no 'jax': name some of keras-hu"):
        choose(peers.PEERS, ["jax"], "peers")


def test_peers_with_other_models_are_refused():
    assert peer_models.same_size("model", 1009, 1000) == "model"
    with pytest.raises(ValueError, match="1,011 parameters, ours 1,000"):
        peer_models.same_size("model", 1011, 1000)


def test_growth_leaves_failed_points_out(tmp_path):
    failed, measured = {"error": "no"}, {"import_bytes": 1e6, "error": None}
    points = [
        (1, {"images_per_second": 40.0, "peak_bytes": 3e6, **measured}),
        (2, {"images_per_second": 20.0, "peak_bytes": 9e6, **measured}),
        (3, failed),
        (4, {"images_per_second": 10.0, "peak_bytes": 33e6, **measured}),
    ]
    panel = growth.panel("batch", points)
    assert panel["sizes"] == [1, 2, 4]
    assert panel["megabytes"] == [2.0, 8.0, 32.0]
    assert panel["speed"] == pytest.approx(-1)
    assert panel["memory"] == pytest.approx(2)
    assert "the power -1.00, memory as 2.00" in growth.describe(panel)
    one = growth.panel("batch", [points[0], (2, failed)])
    assert one["speed"] is one["memory"] is None
    assert "fewer than two points" in growth.describe(one)
    growth.draw(tmp_path / "one.png", [one, growth.panel("none", [])])
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")

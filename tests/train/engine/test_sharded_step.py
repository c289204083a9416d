"""Parts of a model on several devices; `test_same_steps.py` runs this file on four."""

import functools
import math

import keras
import numpy as np
import pytest
import same_runs
import small_models
from harness import randomize
from in_process import run_command
from made_steps import IS_JAX, noise, placed

import keras_vit
from keras_vit.models.bit import BiTResNet
from train.common.errors import RunError
from train.engine import devices
from train.engine.checkpoints import StoredVariables
from train.engine.optimizers import Adam, MomentumSGD
from zoo.network import BiTConfig

pytestmark = pytest.mark.skipif(not IS_JAX, reason="the backend is not JAX")
BATCH, SIDE, STEPS = 16, 16, 20
# Weights by their largest value; losses, which are near 2, absolutely.
TOLERANCE = 1e-6
CONFIG = keras_vit.ViTConfig(
    hidden_size=32, num_layers=2, num_heads=4, mlp_dim=64, patch_size=4
)
OPTIMIZERS = {"momentum": lambda: MomentumSGD(0.03), "adam": lambda: Adam(1e-3)}
# With every layer that has variables.
KINDS = (
    *("plain", "pre-logits", "hybrid", "rows and columns before every block"),
    *("relative", "registers", "relative biases", "rotary, attention pooling", "BiT"),
)


@functools.cache
def given(strategy, mesh=None):
    return devices.start(strategy, mesh)


def trained(where, optimizer="momentum", dropout=0.0, parts=1):
    """Returns the trainer and the losses of steps on images whose mean is the class."""
    keras.utils.set_random_seed(0)
    with where.strategy.scope():
        model = keras_vit.VisionTransformer(
            CONFIG, image_size=SIDE, classes=3, dropout_rate=dropout
        )
        randomize(model)
        trainer = where.trainer(
            model,
            OPTIMIZERS[optimizer](),
            micro_batches=where.micro_batches(BATCH, parts),
            average_decay=0.9,
        )
    steps = []
    for images, labels in noise(STEPS, BATCH, SIDE):
        images = images / 2 + (labels[:, None, None, None] - 1) / 4
        steps.append(trainer.step(*placed((images.astype("float32"), labels), where)))
    return trainer, [metrics["loss"] for metrics in trainer.fetch(steps)]


@functools.cache
def on_one_device(*case):
    return trained(given("one"), *case)


@pytest.mark.parametrize(
    ("mesh", "case", "expected"),
    [
        ("data:2,model:2", ("momentum",), ("momentum",)),
        ("model:4", ("adam",), ("adam",)),
        ("data:2", ("momentum", 0.3), ("momentum", 0.3)),
        ("data:2,model:2", ("momentum", 0.0, 4), ("momentum",)),
    ],
)
def test_parts_of_the_model_train_as_one_device_does(mesh, case, expected):
    trainer, losses = trained(given("sharded", mesh), *case)
    other, expected_losses = on_one_device(*expected)
    assert expected_losses[-1] < expected_losses[0] - 0.1
    np.testing.assert_allclose(losses, expected_losses, rtol=0, atol=TOLERANCE)
    weights = trainer.model.trainable_variables + trainer.averages
    others = other.model.trainable_variables + other.averages
    for weight, value in zip(weights, others, strict=True):
        if "key/bias" in weight.path or "key_bias" in weight.path:
            # Softmax does not see it: its gradient is rounding alone.
            continue
        largest = np.abs(value).max()
        error = np.abs(np.asarray(weight, "float64") - value).max()
        assert error <= TOLERANCE * max(largest, 1.0), weight.path


@pytest.mark.parametrize("mesh", ["model:4", "data:2,model:2", "data:4"])
def test_a_device_holds_its_share_of_weights_averages_and_optimizer(mesh):
    where = given("sharded", mesh)
    config = keras_vit.ViTConfig(
        hidden_size=256, num_layers=2, num_heads=4, mlp_dim=1024, patch_size=16
    )
    with where.strategy.scope():
        model = keras_vit.VisionTransformer(config, image_size=64, classes=10)
        trainer = where.trainer(model, Adam(1e-3), average_decay=0.9)
    images, labels = noise(1, 4, 64)[0]
    trainer.step(*placed((images, labels), where))
    held = bytes_of_devices(trainer.variables)
    share = sum(variable.value.nbytes for variable in trainer.variables) / 4
    assert len(held) == 4
    assert max(held.values()) <= 1.05 * share, (held, share)
    if mesh != "model:4":
        return
    text = trainer.compiled_text(*placed((images, labels), where))
    # Neither a kernel nor what Adam keeps of one is made whole.
    assert "f32[256,1024]" not in text and "f32[1024,256]" not in text


def bytes_of_devices(variables):
    held = {}
    for variable in variables:
        for shard in variable.value.addressable_shards:
            size = shard.data.nbytes
            held[shard.device] = held.get(shard.device, 0) + size
    return held


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_of_the_zoo_has_a_layout(kind):
    strategy = given("sharded", "data:2,model:2").strategy
    with strategy.scope():
        if kind == "BiT":
            model = BiTResNet(BiTConfig((1,)), image_size=32, classes=5)
        else:
            model = small_models.made(**small_models.MODELS[kind])
    for variable in model.variables:
        shape, path = variable.shape, variable.path
        even = sum(side % 2 == 0 for side in shape)
        # Along both axes of the mesh where that is possible; vectors are whole.
        cuts = min(even, 2) if len(shape) > 1 else 0
        if path.endswith(("query/bias", "key/bias", "value/bias", "expand/bias")):
            cuts = 1
        [shard, *_] = variable.value.addressable_shards
        assert shard.data.size * 2**cuts == math.prod(shape), path
        spec = variable.value.sharding.spec
        if path.endswith(("/out/kernel", "/project/kernel")):
            assert tuple(spec) == ("model", "data"), path
        elif path.endswith(("/query/kernel", "/expand/kernel")):
            assert tuple(spec) == ("data", "model"), path
        elif cuts and shape[-1] % 2 == 0:
            assert spec[-1] == "model", path


def test_what_a_mesh_cannot_share_is_refused():
    for mesh, message in (
        ("model:8", "--mesh=model:8 is not a mesh of the 4 devices.*product is 4"),
        ("data:3", "--mesh=data:3 is not a mesh of the 4 devices"),
        ("data:2,model:4", "--mesh=data:2,model:4 is not a mesh of the 4 devices"),
    ):
        with pytest.raises(RunError, match=message):
            devices.start("sharded", mesh)
    with pytest.raises(RunError, match="--mesh=model:4 is for --strategy=sharded"):
        devices.start("auto", "model:4")
    assert given("sharded").strategy.device_mesh.shape == (1, 4)
    with pytest.raises(RunError, match="batch of 15 .* 2 devices"):
        given("sharded", "data:2").micro_batches(15, 1)
    model = small_models.made()
    with pytest.raises(
        RunError, match="model:4 .*3 heads of encoder_block_0 .*--mesh=data:4,model:1"
    ):
        given("sharded", "model:4").trainer(model, MomentumSGD(0.1))


def test_processes_that_cannot_train_together_are_refused(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "127.0.0.1:1")
    with pytest.raises(RunError, match="--strategy=auto is for one process.*unset it"):
        devices.start("auto")
    for number in (None, "two"):
        if number is not None:
            monkeypatch.setenv("JAX_NUM_PROCESSES", number)
        told = "JAX_COORDINATOR_ADDRESS did not come together .*JAX_PROCESS_ID"
        with pytest.raises(RunError, match=told):
            devices.start("sharded", "model:4")


@pytest.mark.usefixtures("empty_figures")
def test_the_command_trains_saves_and_goes_on_with_other_devices(tmp_path, capsys):
    run, before = tmp_path / "run", tmp_path / "before"
    words = ["--dataset=digits", "--smoke", "--dropout_rate=0", f"--run_dir={run}"]
    mesh = ["--strategy=sharded", "--mesh=data:2,model:2"]
    run_command("finetune", *words, *mesh)
    assert "on 4 devices, data:2,model:2" in capsys.readouterr().out
    expected_loss = same_runs.report(run)["test_loss"]
    # Leave what a kill after 4 steps leaves, and go on with whole models.
    (run / "checkpoints" / "step-00000008.shards").rename(before.with_suffix(".shards"))
    for name in ("report.json", "model.keras"):
        (run / name).unlink()
    run_command("finetune", *words, "--strategy=mirrored")
    assert "going on after step 4" in capsys.readouterr().out
    assert abs(same_runs.report(run)["test_loss"] - expected_loss) < TOLERANCE
    found = StoredVariables(run / "checkpoints" / "step-00000008.npz")
    expected = StoredVariables(before.with_suffix(".shards"))
    assert found.shapes == expected.shapes
    for key, shape in found.shapes.items():
        index = (slice(None),) * len(shape)
        found.check(key, index)
        expected.check(key, index)
        if "key/bias" not in key and "key_bias" not in key:
            arrays = found.read(key, index), expected.read(key, index)
            # Sums of gradients are larger than weights.
            most = TOLERANCE * (5 if "velocity" in key else 1)
            np.testing.assert_allclose(*arrays, rtol=0, atol=most, err_msg=key)

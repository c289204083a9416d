"""What only JAX's step has; `test_same_steps.py` runs this file on four devices."""

import functools
import re
import shutil

import keras
import numpy as np
import pytest
import same_runs
import tensorflow as tf
from in_process import run_command
from made_steps import DEVICES, IS_JAX, batches_of, noise, placed, tiny_vit, trainer_of

import keras_vit
from benchmarks.devices import reduced_bytes
from train import recipes
from train.common.errors import RunError, explaining_full_memory
from train.data.pipeline import evaluation_batches
from train.data.sources.splits import in_memory
from train.engine import devices
from train.models.run_directory import RunDirectory
from train.run import micro_batches, training
from train.run.classification import FineTuning

pytestmark = pytest.mark.skipif(not IS_JAX, reason="the backend is not JAX")
# Its activations are most of what a step holds.
WIDE = keras_vit.ViTConfig(
    hidden_size=32, num_layers=1, num_heads=4, mlp_dim=128, patch_size=4
)
# All that a recipe may ask for.
PRETRAIN = [
    *("--dataset=digits", "--smoke", "--recipe=augreg_imagenet2012_strong1"),
    *("--micro_batches=8", "--dropout_rate=0.2", "--average_decay=0.9"),
]


def test_micro_batches_need_less_memory_and_old_values_leave_theirs():
    [batch] = batches_of(1, 512, 16)
    temporary = []
    for parts in (1, 8):
        make = functools.partial(tiny_vit, config=WIDE, image_size=16)
        trainer = trainer_of(make, micro_batches=parts)
        state = [[one.value for one in group] for group in trainer._groups]
        lowered = trainer._compiled_step.lower(state, *batch)
        used = lowered.compile().memory_analysis()
        assert used.alias_size_in_bytes == sum(one.nbytes for one in sum(state, []))
        temporary.append(used.temp_size_in_bytes)
    assert temporary[1] < temporary[0] / 2, temporary


@pytest.mark.parametrize("name", ["one", "auto"])
def test_one_function_trains_one_evaluates_and_neither_waits_for_the_host(name):
    import jax

    compiled = []

    def count(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(count)
    given = devices.start(name)
    trainer = trainer_of(tiny_vit, devices=given, average_decay=0.9)
    [(images, labels)] = noise(1, 24, 8)
    batch = placed((images[:16], labels[:16]), given)
    pending = []
    for _ in range(3):
        compiled.clear()
        with jax.transfer_guard("disallow"):
            pending.append(trainer.step(*batch))
        # Validation gives variables values of NumPy.
        with trainer.averaged():
            pass
        assert len(compiled) == (len(pending) == 1), len(pending)
    assert len({one["loss"] for one in trainer.fetch(pending)}) == 3
    split = in_memory("noise", images, labels, tf.identity, str)
    make = functools.partial(
        evaluation_batches, split, image_size=(8, 8), batch_size=16
    )
    counts = []
    for batch in [*given.batches(make), *given.batches(make)]:
        compiled.clear()
        with jax.transfer_guard("disallow"):
            trainer.answers(*batch)
        counts.append(len(compiled))
    assert counts == [1, 0, 0, 0], counts


def test_batches_are_cut_and_gradients_are_summed_in_few_pieces_within_the_step():
    [batch] = batches_of(1, 16, 8)
    for array in batch:
        assert array.sharding.shard_shape(array.shape)[0] == 16 // DEVICES.count
    trainer = trainer_of(tiny_vit)
    trainer.step(*batch)
    for variable in trainer.variables:
        assert len(variable.value.sharding.device_set) == DEVICES.count == 4
    text = trainer.compiled_text(*batch)
    variables = trainer.model.trainable_variables
    gradients = 4 * sum(int(variable.value.size) for variable in variables)
    # Loss, accuracy and norms are a few numbers more.
    assert gradients <= reduced_bytes(text) <= gradients + 64
    assert 1 <= len(re.findall(r" all-reduce(?:-start)?\(", text)) <= 3
    for other in ("all-gather", "all-to-all", "collective-permute"):
        assert f" {other}" not in text


def test_what_devices_cannot_do_is_refused(monkeypatch):
    keras.config.set_dtype_policy("mixed_float16")
    with pytest.raises(RunError, match="no float16 .*mixed_bfloat16"):
        DEVICES.trainer(tiny_vit(), None)
    keras.config.set_dtype_policy("float32")
    with pytest.raises(RunError, match=f"{DEVICES.count} devices: .*--batch_size"):
        DEVICES.micro_batches(DEVICES.count * 2 + 1, 1)
    with pytest.raises(RunError, match="unset KERAS_BACKEND"):
        devices.start("multiworker")
    with pytest.raises(RunError, match=r"needs a TPU, and JAX sees cpu:0.*jax\[tpu\]"):
        devices.start("tpu")
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["cpu:0"])
    with pytest.raises(RunError, match="two devices at least, .* cpu:0 alone"):
        devices.start("mirrored")
    assert devices.start("one").count == 1
    full = RuntimeError("RESOURCE_EXHAUSTED: Out of memory.")
    for error, kind in ((full, RunError), (RuntimeError("another"), RuntimeError)):
        with pytest.raises(kind), explaining_full_memory("lower --batch_size"):
            raise error


def test_full_memory_leaves_the_model_to_fewer_images(tmp_path, monkeypatch):
    from train.engine.jax_backend import JaxTrainer

    usual_step = JaxTrainer.step

    def step(self, inputs, labels):
        if self.micro_batches < 4:
            # It gives up its arrays of the model before it fails.
            state = [[one.value for one in group] for group in self._groups]
            self._compiled_step(state, inputs, labels)
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory.")
        return usual_step(self, inputs, labels)

    recipe = recipes.for_dataset("digits").smoke().override(micro_batches="auto")
    task = FineTuning(recipe)
    with DEVICES.strategy.scope():
        task.build(training.load_source(recipe))
    before = [keras.ops.convert_to_numpy(one) for one in task.model.variables]
    monkeypatch.setattr(JaxTrainer, "step", step)
    monkeypatch.setattr(type(DEVICES), "is_cpu", False)
    # One image on each of four devices.
    assert micro_batches.number_of(task, DEVICES, RunDirectory(tmp_path)) == 16
    for value, variable in zip(before, task.model.variables, strict=True):
        np.testing.assert_array_equal(value, variable, err_msg=variable.path)


@pytest.mark.usefixtures("empty_figures")
def test_the_command_goes_on_to_the_bit(tmp_path, capsys):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    run_command("pretrain", *PRETRAIN, f"--run_dir={whole}")
    told = capsys.readouterr().out
    assert "on 4 devices" in told and "on 128 test images" in told
    assert (whole / "weights.npz").is_file()
    # Leave what a kill after 4 steps leaves.
    shutil.copytree(whole, resumed)
    for path in ("checkpoints/step-00000008.npz", "report.json", "model.keras"):
        (resumed / path).unlink()
    run_command("pretrain", *PRETRAIN, f"--run_dir={resumed}")
    assert "going on after step 4" in capsys.readouterr().out
    same_runs.assert_same_bits(whole, resumed)
    reports = [same_runs.report(run)["test_loss"] for run in (whole, resumed)]
    assert reports[0] == reports[1]

"""What training does under the JAX backend, on one and on all devices there are.

python jax_checks.py FOLDER

FOLDER gets steps of each case on either, in 1 and 4, and two runs of the command. Each
check is a function; all are run, and nothing is printed but the names.
"""

import contextlib
import functools
import io
import pathlib
import re
import shutil
import sys
import tempfile

import jax
import keras
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[3]
sys.path += [str(ROOT), str(ROOT / "tests")]

from in_process import run_command  # noqa: E402
from jax_steps import save_steps  # noqa: E402

import keras_vit  # noqa: E402
from benchmarks.devices import reduced_bytes  # noqa: E402
from train import recipes  # noqa: E402
from train.common.errors import RunError  # noqa: E402
from train.data import pipeline, sources  # noqa: E402
from train.data.sources.splits import pick  # noqa: E402
from train.engine import devices, loop  # noqa: E402
from train.engine.jax_backend import JaxTrainer  # noqa: E402
from train.engine.optimizers import MomentumSGD  # noqa: E402
from train.models.run_directory import RunDirectory  # noqa: E402
from train.run import micro_batches, training  # noqa: E402
from train.run.classification import FineTuning  # noqa: E402

DEVICES = devices.start()
ONE = devices.start("one")
SIDE = 16
CONFIG = keras_vit.ViTConfig(
    hidden_size=8, num_layers=1, num_heads=2, mlp_dim=16, patch_size=8
)
# Whose activations are most of what a step holds.
WIDE = keras_vit.ViTConfig(
    hidden_size=32, num_layers=1, num_heads=4, mlp_dim=128, patch_size=4
)
# All that a recipe may ask for.
PRETRAIN = [
    *("--dataset=digits", "--smoke", "--recipe=augreg_imagenet2012_strong1"),
    *("--micro_batches=8", "--dropout_rate=0.2", "--average_decay=0.9"),
]


class Source:
    """Batches of noise, as a `tf.data.Dataset` has them."""

    def __init__(self, batch_size):
        self.batch_size = batch_size

    def __call__(self, share):
        self.sizes = [self.batch_size // share.devices] * share.devices
        return self

    def as_numpy_iterator(self):
        generator = np.random.default_rng(0)
        for size in self.sizes:
            images = generator.normal(0, 1, (size, SIDE, SIDE, 3)).astype("float32")
            yield images, generator.integers(0, 10, size).astype("int32")


def made(micro_batches=1, devices=DEVICES, config=CONFIG, **settings):
    keras.utils.set_random_seed(0)
    with devices.strategy.scope():
        model = keras_vit.VisionTransformer(config, image_size=SIDE, classes=10)
        return devices.trainer(
            model, MomentumSGD(0.1), micro_batches=micro_batches, **settings
        )


def values(trainer):
    return [keras.ops.convert_to_numpy(variable) for variable in trainer.variables]


def micro_batches_need_less_memory_and_old_values_leave_theirs():
    [(images, labels)] = DEVICES.batches(Source(512))
    temporary = []
    for parts in (1, 8):
        trainer = made(parts, config=WIDE)
        state = [[one.value for one in group] for group in trainer._groups]
        lowered = trainer._compiled_step.lower(state, images, labels)
        used = lowered.compile().memory_analysis()
        assert used.alias_size_in_bytes == sum(one.nbytes for one in sum(state, []))
        temporary.append(used.temp_size_in_bytes)
    assert temporary[1] < temporary[0] / 2, temporary


def overflow_changes_nothing_but_the_scale():
    [batch] = DEVICES.batches(Source(16))
    keras.config.set_dtype_policy("mixed_float16")
    with pytest.raises(RunError, match="no float16 .*mixed_bfloat16"):
        made()
    with DEVICES.strategy.scope():
        layers = [keras.layers.Flatten(), keras.layers.Dense(10, dtype="mixed_float16")]
        trainer = JaxTrainer(
            keras.Sequential([keras.Input((SIDE, SIDE, 3)), *layers]),
            MomentumSGD(0.1),
            average_decay=0.9,
            strategy=DEVICES.strategy,
        )
    keras.config.set_dtype_policy("float32")
    trainer.loss_scale.scale.assign(2.0**40)
    before = values(trainer)
    told = trainer.step(*batch)
    assert float(told["loss_scale"]) == 2.0**40 and float(told["gradient_norm"]) == 0
    for old, new in zip(before[:-2], values(trainer)[:-2], strict=True):
        np.testing.assert_array_equal(old, new)
    assert float(trainer.loss_scale.scale) == 2.0**39
    trainer.loss_scale.scale.assign(2.0**4)
    trainer.loss_scale.good_steps.assign(1_999)
    told = trainer.step(*batch)
    assert float(told["gradient_norm"]) > 0 and float(trainer.loss_scale.scale) == 32
    assert int(trainer.optimizer.iterations) == 1


def the_whole_gradient_is_clipped_and_variables_are_on_all_devices():
    [batch] = DEVICES.batches(Source(16))
    for array in batch:
        assert array.sharding.shard_shape(array.shape)[0] == 16 // DEVICES.count
    for clip_norm in (0.01, 1e6):
        trainer = made(clip_norm=clip_norm)
        told = trainer.step(*batch)
        norm = np.sqrt(
            sum(
                np.square(keras.ops.convert_to_numpy(velocity), dtype="float64").sum()
                for velocity in trainer.optimizer.velocities
            )
        )
        np.testing.assert_allclose(norm, min(clip_norm, told["gradient_norm"]), 1e-5)
    for variable in trainer.variables:
        assert variable.value.sharding.is_fully_replicated
        assert len(variable.value.sharding.device_set) == DEVICES.count


def a_smaller_last_batch_is_whole():
    trainer = made(devices=ONE)
    head = trainer.model.get_layer("head").kernel
    head.assign(np.random.default_rng(1).normal(0, 1, head.shape))
    batches = list(ONE.batches(test_images(21)))
    assert [len(labels) for _, labels in batches] == [16, 16]
    found, _ = loop.evaluate(trainer, batches, lambda *batch: batch)
    labels, probabilities = map(np.concatenate, zip(*found, strict=True))
    images = np.concatenate([np.asarray(images) for images, _ in batches])[:21]
    expected = keras.ops.softmax(trainer.model(images, training=False))
    np.testing.assert_allclose(probabilities, np.asarray(expected), atol=1e-5)
    assert len(labels) == 21


def test_images(count):
    split = pick(sources.load("digits").test, np.arange(count))
    return functools.partial(
        pipeline.evaluation_batches, split, image_size=(SIDE, SIDE), batch_size=16
    )


def one_function_trains_one_evaluates_and_neither_waits_for_the_host():
    compiled = []

    def count(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(count)
    for given in (ONE, DEVICES):
        trainer = made(devices=given, average_decay=0.9)
        [batch] = given.batches(Source(16))
        pending = []
        for _ in range(3):
            compiled.clear()
            with jax.transfer_guard("disallow"):
                pending.append(trainer.step(*batch))
            # Validation gives variables values of NumPy.
            with trainer.averaged():
                pass
            assert len(compiled) == (len(pending) == 1), (given.count, len(pending))
        assert len({told["loss"] for told in trainer.fetch(pending)}) == 3
        counts = []
        for _ in range(2):
            for batch in given.batches(test_images(21)):
                compiled.clear()
                trainer.answers(*batch)
                counts.append(len(compiled))
        assert counts == [1, 0, 0, 0], counts


def gradients_are_summed_in_few_pieces_within_the_step():
    trainer = made()
    [batch] = DEVICES.batches(Source(16))
    text = trainer.compiled_text(*batch)
    gradients = 4 * sum(
        int(variable.value.size) for variable in trainer.model.trainable_variables
    )
    # Loss, accuracy and norms are a few numbers more.
    assert gradients <= reduced_bytes(text) <= gradients + 64
    assert 1 <= len(re.findall(r" all-reduce(?:-start)?\(", text)) <= 3
    for other in ("all-gather", "all-to-all", "collective-permute"):
        assert f" {other}" not in text


def averages_take_the_place_of_weights_and_leave_it():
    [batch] = DEVICES.batches(Source(16))
    trainer = made(average_decay=0.9)
    for _ in range(3):
        trainer.step(*batch)
    before = values(trainer)
    trainer.step(*batch)
    expected = values(trainer)
    for variable, value in zip(trainer.variables, before, strict=True):
        variable.assign(value)
    with trainer.averaged():
        kernel = keras.ops.convert_to_numpy(trainer.model.get_layer("head").kernel)
        assert np.abs(kernel - before[-2]).max() == 0
    trainer.step(*batch)
    for one, other in zip(values(trainer), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def what_cannot_be_is_told():
    with pytest.raises(RunError, match=f"{DEVICES.count} devices .*--batch_size"):
        DEVICES.micro_batches(DEVICES.count * 2 + 1, 1)
    for name, told in [
        ("multiworker", "unset KERAS_BACKEND"),
        ("tpu", r"needs a TPU, and JAX sees cpu:0.*jax\[tpu\]"),
    ]:
        with pytest.raises(RunError, match=told):
            devices.start(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.distribution, "list_devices", lambda: ["cpu:0"])
        told = "mirrored needs two devices at least, and JAX sees cpu:0 alone"
        with pytest.raises(RunError, match=told):
            devices.start("mirrored")
    remedy = "lower --batch_size"
    for error, told in [
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory."), RunError),
        (RuntimeError("another"), RuntimeError),
    ]:
        with pytest.raises(told), loop.explaining_full_memory(remedy):
            raise error


def full_memory_leaves_the_model_to_fewer_images():
    def step(self, inputs, labels):
        if self.micro_batches < 4:
            # What it held of the model is given up before it fails.
            state = [[one.value for one in group] for group in self._groups]
            self._compiled_step(state, inputs, labels)
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory.")
        return usual_step(self, inputs, labels)

    usual_step = JaxTrainer.step
    recipe = recipes.for_dataset("digits").smoke().override(micro_batches="auto")
    task = FineTuning(recipe)
    source = training.load_source(recipe, None, False)
    with DEVICES.strategy.scope():
        task.build(source)
    before = [keras.ops.convert_to_numpy(one) for one in task.model.variables]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        directory = RunDirectory(folder)
        patch.setattr(JaxTrainer, "step", step)
        patch.setattr(type(DEVICES), "is_cpu", False)
        with contextlib.redirect_stdout(io.StringIO()):
            # One image on each of four devices.
            assert micro_batches.number_of(task, DEVICES, directory) == 16
    for value, variable in zip(before, task.model.variables, strict=True):
        np.testing.assert_array_equal(value, variable, err_msg=variable.path)


def steps_and_runs_are_saved(folder):
    for given, names in (
        (ONE, ("whole", "dropout", "adam")),
        (DEVICES, ("parts", "dropout")),
    ):
        save_steps(given, folder / str(given.count), names)
    # The second as if it had been killed after 4 steps.
    for name in ("whole", "resumed"):
        flags = [*PRETRAIN, f"--run_dir={folder / name}"]
        with contextlib.redirect_stdout(io.StringIO()) as output:
            run_command("pretrain", *flags)
        (folder / f"{name}.txt").write_text(output.getvalue())
        if name == "whole":
            shutil.copytree(folder / name, folder / "resumed")
            for path in ("checkpoints/step-00000008.npz", "report.json", "model.keras"):
                (folder / "resumed" / path).unlink()


if __name__ == "__main__":
    assert DEVICES.count == 4 and ONE.count == devices.alone().count == 1
    for check in (
        micro_batches_need_less_memory_and_old_values_leave_theirs,
        overflow_changes_nothing_but_the_scale,
        the_whole_gradient_is_clipped_and_variables_are_on_all_devices,
        a_smaller_last_batch_is_whole,
        one_function_trains_one_evaluates_and_neither_waits_for_the_host,
        gradients_are_summed_in_few_pieces_within_the_step,
        averages_take_the_place_of_weights_and_leave_it,
        what_cannot_be_is_told,
        full_memory_leaves_the_model_to_fewer_images,
    ):
        check()
        print(check.__name__, flush=True)
    steps_and_runs_are_saved(pathlib.Path(sys.argv[1]))

"""Shows how much of a run hides behind the steps of its device.

  python -m benchmarks.slow_device
  python -m benchmarks.slow_device --steps=1000 --milliseconds=20

The device is JAX on the processor, where each batch of training and validation turns a
loop on one core, so many milliseconds; while a callback waits, JAX would send nothing
more. The figure is the time of these batches alone, from memory and with nothing
fetched, divided by that of the run: reading images, logs, validations, checkpoints, and
the start and the end of the loop are in the latter. Both are compiled before.
"""

import contextlib
import io
import os
import pathlib
import tempfile
import time

from absl import app, flags

flags.DEFINE_integer("steps", 600, "Steps of the run.", lower_bound=10)
flags.DEFINE_integer("milliseconds", 50, "What a batch takes more.", lower_bound=1)
flags.DEFINE_integer("validations", 3, "Validations of the run.", lower_bound=1)
flags.DEFINE_integer("checkpoints", 10, "Checkpoints of the run.", lower_bound=1)


def measure(folder, steps, milliseconds, validations, checkpoints):
    """Returns seconds of the batches alone, seconds of the run, and the batches."""
    import jax

    from train import recipes
    from train.engine import jax_backend
    from train.engine.loop import TrainingLoop
    from train.models.run_directory import RunDirectory
    from train.run import training
    from train.run.classification import FineTuning

    def turned(value, rounds):
        return jax.lax.fori_loop(0, rounds, lambda _, one: jax.numpy.sin(one), value)

    turn = jax.jit(turned)
    turn(1.0, 1).block_until_ready()
    started = time.perf_counter()
    turn(1.0, 100_000).block_until_ready()
    rounds = int(100 * milliseconds / (time.perf_counter() - started))

    def waited(value):
        # JAX sends nothing more while a callback waits.
        return value + 0.0 * turned(value.ravel()[0], rounds)

    class Trainer(jax_backend.JaxTrainer):
        def _step(self, *batch):
            state, metrics = super()._step(*batch)
            return state, {**metrics, "loss": waited(metrics["loss"])}

        def _answers(self, *batch):
            labels, logits, losses = super()._answers(*batch)
            return labels, waited(logits), losses

    class Devices(jax_backend.JaxDevices):
        def trainer(self, model, optimizer, **settings):
            return Trainer(model, optimizer, strategy=self.strategy, **settings)

    devices = Devices(jax_backend.start("one").strategy)
    recipe = recipes.for_dataset("digits").smoke()
    recipe = recipe.override(
        steps=steps,
        eval_every=steps // validations,
        checkpoint_every=steps // checkpoints,
    )
    task, directory = FineTuning(recipe), RunDirectory(folder)
    source = training.suitable_source(task, devices)
    run = training.built(task, source, directory, devices)
    batch = next(run.batches(0))
    run.trainer.fetch([run.trainer.step(*batch)])
    rows = recipe.batch_size // recipe.micro_batches
    times = -(-steps // recipe.eval_interval)
    tested = times * -(-source.validation.num_examples // rows)
    share = [part[:rows] for part in batch]
    jax.block_until_ready(run.trainer.answers(*share))

    started = time.perf_counter()
    for _ in range(steps):
        metrics = run.trainer.step(*batch)
    run.trainer.fetch([metrics])
    for _ in range(tested):
        answers = run.trainer.answers(*share)
    jax.block_until_ready(answers)
    bare = time.perf_counter() - started

    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        TrainingLoop(run).train()
    return bare, time.perf_counter() - started, steps + tested


def main(_):
    """Runs what the flags describe."""
    given = flags.FLAGS
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sizes = {
        name: given[name].value
        for name in ("steps", "milliseconds", "validations", "checkpoints")
    }
    with tempfile.TemporaryDirectory(prefix="keras_vit_slow_device_") as folder:
        bare, run, batches = measure(pathlib.Path(folder), **sizes)
    print(
        f"{batches} batches: {bare:.2f} s alone, {run:.2f} s in a run with "
        f"{given.validations} validations and {given.checkpoints} checkpoints: "
        f"{bare / run:.3f}"
    )


if __name__ == "__main__":
    app.run(main)

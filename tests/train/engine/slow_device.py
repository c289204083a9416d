"""A run on a slow device: what is done while batches are under way.

python slow_device.py FOLDER ROUNDS

JAX on the processor, where each batch turns a loop of so many rounds (JAX sends
nothing more while a callback waits). FOLDER gets the run, and events.txt: a line for
each event, with "busy" where the last batch sent was still under way then.
"""

import pathlib
import sys
import threading

import jax

from train import recipes
from train.engine import callbacks, checkpoints, jax_backend, loop
from train.run import classification, training

ROUNDS = int(sys.argv[2])
events, sent = [], []
goes_on = threading.Event()


def noted(name, function):
    def call(*args, **settings):
        is_busy = sent and not sent[-1].is_ready()
        events.append(f"{name} {'busy' if is_busy else 'idle'}")
        return function(*args, **settings)

    return call


def turned(value):
    def turn(_, one):
        return jax.numpy.sin(one)

    return value + 0.0 * jax.lax.fori_loop(0, ROUNDS, turn, value.ravel()[0])


class Trainer(jax_backend.JaxTrainer):
    def _step(self, *batch):
        state, metrics = super()._step(*batch)
        return state, {**metrics, "loss": turned(metrics["loss"])}

    def _answers(self, *batch):
        labels, logits, losses = super()._answers(*batch)
        return labels, turned(logits), losses

    def step(self, *batch):
        metrics = noted("step", super().step)(*batch)
        sent.append(metrics["loss"])
        if len(sent) == 7:
            goes_on.set()
        return metrics

    def answers(self, *batch):
        found = noted("validation", super().answers)(*batch)
        sent.append(found[1])
        return found


class Devices(jax_backend.JaxDevices):
    def trainer(self, model, optimizer, **settings):
        return Trainer(model, optimizer, strategy=self.strategy, **settings)


class Checkpoints(checkpoints.Checkpoints):
    def _write(self, path, arrays):
        # The first file is slower than the next step.
        events.append(f"file {'behind' if goes_on.wait(600) else 'ahead of'} step")
        super()._write(path, arrays)


def main(folder):
    recipe = recipes.for_dataset("digits").smoke()
    recipe = recipe.override(
        steps=12, eval_every=12, checkpoint_every=6, train_examples=64, test_examples=32
    )
    callbacks.RunLog.__call__ = noted("log", callbacks.RunLog.__call__)
    classification.ranked = noted("answers", classification.ranked)
    training.Run.validation_batches = noted("input", training.Run.validation_batches)
    loop.Checkpoints = Checkpoints
    devices = Devices(jax_backend.start("one").strategy)
    task = classification.FineTuning(recipe)
    training.run(task, run_dir=folder / "run", devices=devices)
    (folder / "events.txt").write_text("\n".join(events) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

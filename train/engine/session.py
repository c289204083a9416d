"""The steps of a run, with all that goes on beside them."""

import contextlib
import functools

import numpy as np

from train.common.errors import RunError
from train.data import pipeline
from train.engine.callbacks import (
    Diary,
    EarlyStopping,
    Every,
    Progress,
    Silence,
    StepLog,
    StopOnSignal,
)
from train.engine.checkpoints import Checkpoints
from train.engine.loop import check_finite, explaining_full_memory, fit
from train.engine.metrics import MetricLog

LESS_MEMORY = (
    "raise --micro_batches, pass --remat, lower --image_size or choose a smaller "
    "--model."
)


def train(
    recipe,
    trainer,
    directory,
    devices,
    *,
    batches,
    validate=None,
    show=None,
    announce,
):
    """Takes the steps of a run that are left, from its last checkpoint on.

    Args:
        recipe: `train.recipes.Recipe`.
        trainer: `train.engine.trainer.Trainer`.
        directory: `train.inference.run_directory.RunDirectory`.
        devices: `train.engine.distribution.Devices`.
        batches: function of the number of steps taken to an iterable of the batches
            that follow.
        validate: None, or function to a dict of floats, `val_loss` and `val_accuracy`
            among them, with the averages of the weights where there are any.
        show: None, or function of the number of steps taken to a dict of pictures for
            TensorBoard, uint8 arrays (height, width, 3) by name.
        announce: function of the number of steps taken, which tells what begins.

    Raises:
        RunError: the run cannot go on; what is saved is whole.
    """
    checkpoints = Checkpoints(directory.checkpoints)
    start_step = _restored(checkpoints, trainer, devices)
    log = MetricLog(directory.metrics)
    stopping = EarlyStopping(
        log,
        recipe.early_stopping,
        lambda: checkpoints.save_best(trainer.variables),
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(watched(devices))
        if devices.is_chief:
            log.rewind(start_step)
            announce(start_step)
            if devices.count > 1:
                print(f"on {devices.count} devices")
        is_over = _everyone_knows(devices, stopping.is_over)
        if devices.is_chief:
            if start_step >= recipe.steps:
                print("all steps were taken before: testing and reporting again")
            elif is_over:
                print(
                    f"the run stopped early, after step {start_step:,}: testing and "
                    "reporting again"
                )
            elif start_step:
                print(f"going on after step {start_step:,}")
            if recipe.early_stopping and len(log.series("val_accuracy")[0]):
                # Now, rather than after the last step.
                checkpoints.require_best()
        diary = _diary(recipe, log, directory, start_step, devices)
        stack.callback(diary.close)

        def save(step):
            if devices.is_chief and step not in checkpoints.steps():
                # What is logged up to here must not be logged again after a resume.
                diary.flush(step)
                checkpoints.save(step, trainer.variables)

        callbacks = [diary]
        if validate is not None:

            def judge(step):
                with trainer.averaged():
                    found = validate()
                check_finite(
                    f"The validation loss after step {step}", found["val_loss"]
                )
                diary.validated(step, **found)
                ends = _everyone_knows(devices, lambda: stopping.after(step))
                if ends:
                    # From here the same command has nothing left to do.
                    save(step)
                return ends

            callbacks.append(Every(recipe.eval_interval, recipe.steps, judge))
        if show is not None:

            def look(step):
                with trainer.averaged():
                    if not devices.is_chief:
                        return
                    try:
                        diary.show(step, show(step))
                    except ValueError as error:
                        # As of weights that are not finite: no reason to stop.
                        diary.say(f"step {step}: no pictures for TensorBoard: {error}")

            callbacks.append(Every(recipe.eval_interval, recipe.steps, look))
        callbacks.append(Every(recipe.checkpoint_interval, recipe.steps, save))
        stop = stack.enter_context(StopOnSignal(save, devices.everyone))
        fit(
            trainer,
            batches(start_step),
            start_step=start_step,
            steps=start_step if is_over else recipe.steps,
            callbacks=[*callbacks, stop],
        )
        if recipe.early_stopping:
            # Only now have all workers seen the last validation, and the file.
            checkpoints.restore_best(trainer.variables)
            if devices.is_chief:
                diary.say(
                    f"the best validation was after step {stopping.best()[0]:,}: "
                    "taking the weights of then"
                )


def spread(devices, batches_of, split, **settings):
    """Returns batches of a split on the devices; if one fails, the error names images.

    Args:
        devices: `train.engine.distribution.Devices`.
        batches_of: `train.data.pipeline.training_batches` or `evaluation_batches`.
        split: `train.data.sources.splits.Split`.
        **settings: of that function.
    """
    batches = devices.batches(functools.partial(batches_of, split, **settings))
    return pipeline.explained(batches, split)


@contextlib.contextmanager
def watched(devices):
    """Explains what ends a run from outside of it: lost workers, full memory.

    Args:
        devices: `train.engine.distribution.Devices`.

    Raises:
        RunError: it ended so.
    """
    with devices.watched(), explaining_full_memory(LESS_MEMORY):
        yield


def accuracy(labels, probabilities):
    """Returns the share of examples whose likeliest class is the true one."""
    return float(np.mean(probabilities.argmax(axis=1) == labels))


def _restored(checkpoints, trainer, devices):
    """Goes back to the newest checkpoint and returns its step."""
    step = checkpoints.restore(trainer.variables)
    with devices.watched():
        steps = devices.everyone(step)
    if len(set(steps)) > 1:
        raise RunError(
            f"The workers found checkpoints of steps {steps} in {checkpoints.folder}: "
            "pass a --run_dir on a disk that all of them share."
        )
    trainer.spread_seeds()
    return step


def _everyone_knows(devices, of_chief):
    """Returns on all hosts the bool that a function returns on the first."""
    return bool(max(devices.everyone(int(devices.is_chief and of_chief()))))


def _diary(recipe, log, directory, start_step, devices):
    """What is told of a run and written down, by one process alone."""
    if not devices.is_chief:
        return Silence()
    return Diary(
        StepLog(
            log, directory.tensorboard, max(recipe.steps // 200, 1), recipe.batch_size
        ),
        Progress(recipe.steps, start_step, recipe.batch_size),
    )

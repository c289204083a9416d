"""A fine-tuning run from recipe to report."""

import contextlib
import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf

import keras_vit
import zoo
from keras_vit.weights import read_weights
from train.callbacks import (
    Diary,
    Every,
    Progress,
    Silence,
    StepLog,
    StopOnSignal,
    progress_bar,
)
from train.checkpoints import Checkpoints
from train.data import pipeline, sources
from train.distribution import Devices
from train.errors import RunError
from train.figures import PICTURES, write_predictions_picture
from train.files import whole_file
from train.loop import Trainer, evaluate, explaining_full_memory, fit
from train.losses import softmax_cross_entropy
from train.metrics import MetricLog
from train.optimizers import MomentumSGD
from train.report import classification_summary, write_report
from train.run_directory import RunDirectory
from train.schedules import WarmupCosine

# Settings that change what is written on the way, not what comes out.
_HARMLESS = ("eval_every", "checkpoint_every", "published")
_LESS_MEMORY = "raise --micro_batches, lower --image_size or choose a smaller --model."


def run(recipe, *, run_dir, data_dir=None, devices=None, command=""):
    """Fine-tunes a model, or goes on where a killed run left off.

    With several hosts each of them calls it, and the first writes the files, which
    all of them must be able to read.

    Args:
        recipe: `train.recipes.Recipe`.
        run_dir: path of the run's directory.
        data_dir: path of the TFDS data, None for the usual one.
        devices: `train.distribution.Devices`, one device by default.
        command: str, what was typed, for the report.

    Returns:
        Dict of the results, as in `report.json`; None on all hosts but the first.

    Raises:
        RunError: data, weights, checkpoints or directory are not as needed; the
            message says what to do.
    """
    settings = dataclasses.asdict(recipe)
    deciding = {key: settings[key] for key in settings if key not in _HARMLESS}
    devices = devices or Devices(tf.distribute.get_strategy())
    parts = devices.parts(recipe.batch_size, recipe.micro_batches)
    changes = pipeline.Changes(
        recipe.rand_augment, recipe.random_erasing, recipe.mixup, recipe.cutmix
    )
    if changes.mixes and devices.has_hosts:
        raise RunError(
            "Mixup and CutMix take the examples of a whole batch, of which each worker "
            "has a part: leave --mixup and --cutmix out, or use one machine."
        )
    directory = RunDirectory(run_dir)
    if devices.is_chief:
        directory.claim(deciding)
    keras.utils.set_random_seed(recipe.seed)
    keras.config.set_dtype_policy(recipe.precision)

    source = sources.load(
        recipe.dataset, data_dir, validation_fraction=recipe.validation_fraction
    )
    schedule = WarmupCosine(recipe.learning_rate, recipe.steps, recipe.warmup_steps)
    with devices.strategy.scope():
        model = build_model(recipe, len(source.class_names))
        optimizer = MomentumSGD(schedule, recipe.momentum, recipe.momentum_dtype)
    image_size = model.input_shape[1:3]
    trainer = Trainer(
        model,
        optimizer,
        micro_batches=parts,
        clip_norm=recipe.clip_norm,
        loss=functools.partial(
            softmax_cross_entropy, label_smoothing=recipe.label_smoothing
        ),
        strategy=devices.strategy,
    )
    checkpoints = Checkpoints(directory.checkpoints)
    start_step = _restored(checkpoints, trainer, devices)

    # What a device holds at once in training is what fits in its memory.
    def evaluated(split, on_batch=None):
        batches = devices.batches(
            functools.partial(
                pipeline.evaluation_batches,
                split,
                image_size=image_size,
                batch_size=recipe.batch_size // parts,
            )
        )
        return evaluate(trainer, pipeline.explained(batches, split), on_batch)

    with contextlib.ExitStack() as stack:
        stack.enter_context(devices.watched())
        stack.enter_context(explaining_full_memory(_LESS_MEMORY))
        if devices.is_chief:
            _announce(recipe, source, model, directory, start_step, devices)
        diary = _diary(recipe, directory, start_step, devices)
        stack.callback(diary.close)

        def save(step):
            if devices.is_chief:
                # What is logged up to here must not be logged again after a resume.
                diary.flush(step)
                checkpoints.save(step, trainer.variables)

        def validate(step):
            labels, probabilities, loss = evaluated(source.validation)
            accuracy = float(np.mean(probabilities.argmax(axis=1) == labels))
            diary.validated(step, loss, accuracy)

        callbacks = [diary]
        if source.validation is not None:
            callbacks.append(Every(recipe.eval_interval, recipe.steps, validate))
        callbacks.append(Every(recipe.checkpoint_interval, recipe.steps, save))
        stop = stack.enter_context(StopOnSignal(save, devices.everyone))
        batches = devices.batches(
            functools.partial(
                pipeline.training_batches,
                source.train,
                image_size=image_size,
                batch_size=recipe.batch_size,
                seed=recipe.seed,
                start_step=start_step,
                crop=recipe.crop,
                flip=recipe.flip,
                changes=changes,
                classes=len(source.class_names),
            )
        )
        fit(
            trainer,
            pipeline.explained(batches, source.train),
            start_step=start_step,
            steps=recipe.steps,
            callbacks=[*callbacks, stop],
        )
        diary.close()
        bar = progress_bar(
            total=source.test.num_examples,
            unit="image",
            desc="testing",
            disable=not devices.is_chief,
        )
        with bar:
            tested = evaluated(source.test, lambda done: bar.update(done - bar.n))
    if not devices.is_chief:
        return None
    _save_model(model, directory, source.class_names)
    _picture(source, directory, model)
    return _report(recipe, source, model, directory, tested, command)


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


def _diary(recipe, directory, start_step, devices):
    """What is told of a run and written down, by one process alone."""
    if not devices.is_chief:
        return Silence()
    log = MetricLog(directory.metrics)
    log.rewind(start_step)
    return Diary(
        StepLog(
            log, directory.tensorboard, max(recipe.steps // 200, 1), recipe.batch_size
        ),
        Progress(recipe.steps, start_step, recipe.batch_size),
    )


def build_model(recipe, classes):
    """Returns the recipe's model with a new head, its weights loaded.

    Args:
        recipe: `train.recipes.Recipe`.
        classes: int.

    Returns:
        `keras.Model`.

    Raises:
        RunError: the model, its size or its weights are not to be had.
    """
    try:
        return keras_vit.VisionTransformer(
            recipe.model,
            weights=_checkpoint(recipe),
            image_size=recipe.image_size,
            classes=classes,
            dropout_rate=recipe.dropout_rate,
        )
    except (ValueError, zoo.StoreError) as error:
        raise RunError(str(error)) from error


def _checkpoint(recipe):
    """The weights without their head, which is always new, or None."""
    if recipe.weights is None:
        return None
    variant, num_heads = recipe.model, None
    if not isinstance(recipe.model, str):
        variant, num_heads = None, recipe.model.num_heads
    return read_weights(recipe.weights, variant, num_heads).without_head()


def _announce(recipe, source, model, directory, start_step, devices):
    validation = source.validation.num_examples if source.validation else 0
    print(
        f"{source.name}: {source.train.num_examples:,} training, {validation:,} "
        f"validation and {source.test.num_examples:,} test images of "
        f"{len(source.class_names)} classes\n"
        f"{model.name}: {model.count_params():,} parameters, "
        f"weights {recipe.weights or 'random'}, images "
        f"{model.input_shape[1]}x{model.input_shape[2]}\n"
        f"{recipe.steps:,} steps of {recipe.batch_size} images in {directory.path}"
    )
    if devices.count > 1:
        print(f"on {devices.count} devices")
    if start_step:
        print(f"going on after step {start_step:,}")


def _save_model(model, directory, class_names):
    with whole_file(directory.model) as temporary:
        model.save(temporary)
    with whole_file(directory.class_names) as temporary:
        temporary.write_text("\n".join(class_names) + "\n", encoding="utf-8")


def _report(recipe, source, model, directory, tested, command):
    labels, probabilities, loss = tested
    log = MetricLog(directory.metrics)
    results = {
        "test_loss": loss,
        "train_examples": source.train.num_examples,
        "steps": recipe.steps,
        "parameters": model.count_params(),
        "command": command,
    }
    if source.validation:
        results["validation_examples"] = source.validation.num_examples
    _, seconds = log.series("seconds")
    if len(seconds):
        results["seconds"] = float(seconds.sum())
        _, rates = log.series("images_per_second")
        results["images_per_second"] = float(np.median(rates))
    summary = classification_summary(labels, probabilities, source.class_names)
    write_report(
        directory.path,
        config=_settings(recipe),
        summary=summary,
        results=results,
        history=log,
    )
    return {
        "test_accuracy": summary["accuracy"],
        "test_examples": len(labels),
        **results,
        "report": str(directory.report),
        "model": str(directory.model),
    }


def _settings(recipe):
    """The recipe as the report shows it: what it leaves open, nothing empty."""
    settings = {
        **dataclasses.asdict(recipe),
        "eval_every": recipe.eval_interval,
        "checkpoint_every": recipe.checkpoint_interval,
    }
    return {name: value for name, value in settings.items() if value != ""}


def _picture(source, directory, model):
    """Shows that the saved model, loaded again, sees what the trained one saw."""
    _, images, labels = pipeline.samples(
        source.test, PICTURES, image_size=model.input_shape[1:3]
    )
    # Both the same way: compiled, bfloat16 rounds elsewhere, by more than 1%.
    trained, loaded = (
        keras.ops.convert_to_numpy(keras.ops.softmax(one(images, training=False)))
        for one in (model, keras.saving.load_model(directory.model))
    )
    if not np.allclose(loaded, trained, atol=1e-3):
        raise RunError(
            f"The saved model {directory.model} does not compute what the trained one "
            "does: please report this."
        )
    write_predictions_picture(
        directory.predictions,
        images,
        labels,
        loaded,
        source.class_names,
        title=f"{source.name}: what {directory.model.name} says, loaded again",
    )

"""A run of masked patch prediction, from recipe to report."""

import numpy as np
from keras import ops

import keras_vit
from train.common.progress import progress_bar
from train.data import pipeline
from train.data.sources.splits import pick
from train.engine import session
from train.engine.devices import alone
from train.engine.loop import check_finite
from train.engine.metrics import MetricLog
from train.masked_patches import patches
from train.masked_patches.evaluation import by_chance, evaluate, training_frequencies
from train.masked_patches.report import write_picture, write_report
from train.run import building
from train.run.explained_images import shower
from train.run.training import (
    about_loss,
    announcement,
    begun,
    check_source,
    load_source,
    speed,
    written_settings,
)

_PICTURES = 6


def run(
    recipe,
    *,
    run_dir,
    data_dir=None,
    skip_corrupt=False,
    devices=None,
    command="",
):
    """Trains a model to tell hidden patches, or goes on where a killed run left off.

    With several hosts each of them calls it, and the first writes the files, which
    all of them must be able to read. No label is looked at. Keras's precision and the
    random numbers of Python and NumPy are afterwards as they were.

    Args:
        recipe: `train.recipes.masking.MaskingRecipe`.
        run_dir: path of the run's directory, which gets `weights.npz` in the released
            naming, to be fine-tuned.
        data_dir: path of the TFDS data, None for the usual one.
        skip_corrupt: bool, whether to leave out images that cannot be read.
        devices: `train.engine.distribution.Devices`, one device by default.
        command: str, what was typed, for the report.

    Returns:
        Dict of the results, as in `report.json`; None on all hosts but the first.

    Raises:
        RunError: data, weights, checkpoints or directory are not as needed, another run
            is using the directory, or the loss is not finite; the message says what to
            do.
    """
    devices = devices or alone()
    with begun(recipe, run_dir, devices) as directory:
        return _run(recipe, directory, data_dir, skip_corrupt, devices, command)


def _run(recipe, directory, data_dir, skip_corrupt, devices, command):
    parts = devices.parts(recipe.batch_size, recipe.micro_batches)
    source = load_source(recipe, data_dir, skip_corrupt, devices.tell)
    check_source(recipe, source, directory, devices, is_decoded=skip_corrupt)
    with devices.scope():
        model, vit, corruption = patches.build(recipe)
        trainer = devices.trainer(
            model,
            building.optimizer(recipe),
            micro_batches=parts,
            clip_norm=recipe.clip_norm,
            loss=patches.colour_loss,
            correct=patches.colour_accuracy,
            average_decay=recipe.average_decay,
        )
    image_size = vit.input_shape[1:3]
    in_evaluation = {"image_size": image_size, "batch_size": recipe.batch_size // parts}
    in_training = {
        "image_size": image_size,
        "batch_size": recipe.batch_size,
        "seed": recipe.seed,
        "crop": recipe.crop,
        "flip": recipe.flip,
        "augmentation": recipe,
    }

    def batches(start_step):
        return session.spread(
            devices,
            pipeline.training_batches,
            source.train,
            finish=corruption.finish,
            start_step=start_step,
            **in_training,
        )

    def evaluated(split, on_batch=None):
        found = session.spread(
            devices,
            pipeline.evaluation_batches,
            split,
            finish=corruption.finish,
            **in_evaluation,
        )
        return evaluate(trainer, found, on_batch)

    def validate():
        found = evaluated(source.validation)
        return {"val_loss": found["loss"], "val_accuracy": found["accuracy"]}

    def announce(_):
        print(announcement(recipe, source, vit, directory))
        print(f"corrupting {corruption.count} of {corruption.patches} patches an image")

    session.train(
        recipe,
        trainer,
        directory,
        devices,
        batches=batches,
        validate=validate if source.validation is not None else None,
        show=shower(recipe, vit, source.validation or source.test),
        announce=announce,
    )
    splits = {"validation": source.validation, "test": source.test}
    splits = {name: split for name, split in splits.items() if split is not None}
    with trainer.averaged():
        bar = progress_bar(
            total=sum(split.num_examples for split in splits.values()),
            unit="image",
            desc="testing",
            disable=not devices.is_chief,
        )
        found = {}
        with bar, session.watched(devices):
            for name, split in splits.items():
                before = bar.n
                found[name] = evaluated(
                    split, lambda done, before=before: bar.update(before + done - bar.n)
                )
                check_finite(f"The {name} loss", found[name]["loss"])
        if not devices.is_chief:
            return None
        keras_vit.save_released_weights(vit, directory.weights)
        _picture(source.test, corruption, model, directory, image_size)
    frequencies = training_frequencies(source.train, corruption, **in_training)
    for name, split in splits.items():
        found[name] |= by_chance(split, corruption, frequencies, **in_evaluation)
    log = MetricLog(directory.metrics)
    results = {
        **{
            f"{name}_{key}": value
            for name, values in found.items()
            for key, value in values.items()
        },
        "uniform_loss": float(np.log(patches.COLOURS)),
        "uniform_accuracy": 1 / patches.COLOURS,
        **about_loss(recipe),
        "train_examples": source.train.num_examples,
        "corrupted_patches": corruption.count,
        "patches": corruption.patches,
        "steps": recipe.steps,
        "parameters": vit.count_params(),
        **speed(log),
        "command": command,
    }
    write_report(
        directory,
        splits=list(splits),
        settings=written_settings(recipe),
        results=results,
        history=log,
    )
    return {
        **results,
        "report": str(directory.report),
        "weights": str(directory.weights),
    }


def _picture(split, corruption, model, directory, image_size):
    places = np.unique(np.linspace(0, split.num_examples - 1, _PICTURES).astype(int))
    [(inputs, colours)] = pipeline.evaluation_batches(
        pick(split, places),
        image_size=image_size,
        batch_size=len(places),
        finish=corruption.finish,
    ).as_numpy_iterator()
    guesses = ops.argmax(model(inputs, training=False), axis=-1)
    write_picture(
        directory.predictions,
        inputs,
        ops.convert_to_numpy(guesses),
        colours,
        corruption.grid_size,
    )

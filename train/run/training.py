"""A run from recipe to report: fine-tuning, or training from scratch."""

import contextlib
import dataclasses
import hashlib
import pathlib

import keras
import numpy as np

from train.common.errors import RunError
from train.common.files import whole_file
from train.common.progress import progress_bar
from train.data import pipeline, sources
from train.data.sources.subset import limited
from train.engine import repeatable, session
from train.engine.devices import alone
from train.engine.loop import check_finite, evaluate
from train.engine.metrics import MetricLog
from train.inference.keras_files import load_model
from train.inference.run_directory import RunDirectory
from train.recipes import is_own
from train.reports.classification import calibration, classification_summary
from train.reports.figures import PICTURES, draw_batch, write_predictions_picture
from train.reports.report import write_report
from train.run import building
from train.run.explained_images import shower
from train.run.tuning import choose_trainable, count_parameters, layer_rates
from zoo.text import printable

# To count the classes of more, as of all ImageNet, would take minutes of reading.
_COUNTED_EXAMPLES = 200_000


def run(
    recipe,
    *,
    run_dir,
    data_dir=None,
    skip_corrupt=False,
    keep_weights=False,
    devices=None,
    command="",
):
    """Trains a model, or goes on where a killed run left off.

    With several hosts each of them calls it, and the first writes the files, which
    all of them must be able to read. Keras's precision and the random numbers of Python
    and NumPy are afterwards as they were.

    Args:
        recipe: `train.recipes.Recipe`.
        run_dir: path of the run's directory.
        data_dir: path of the TFDS data, None for the usual one.
        skip_corrupt: bool, whether to leave out images that cannot be read.
        keep_weights: bool, whether to write the weights in the released naming, too.
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
        return _run(
            recipe, directory, data_dir, skip_corrupt, keep_weights, devices, command
        )


def _run(recipe, directory, data_dir, skip_corrupt, keep_weights, devices, command):
    parts = devices.parts(recipe.batch_size, recipe.micro_batches)
    _check_devices(recipe, devices)
    source = load_source(recipe, data_dir, skip_corrupt, devices.tell)
    _check_classes(source)
    check_source(recipe, source, directory, devices, is_decoded=skip_corrupt)
    with devices.scope():
        model = building.model(recipe, len(source.class_names))
        choose_trainable(model, frozen=recipe.frozen, lora_rank=recipe.lora_rank)
        trainer = devices.trainer(
            model,
            building.optimizer(recipe),
            micro_batches=parts,
            clip_norm=recipe.clip_norm,
            loss=building.loss(recipe, source),
            rate_scales=(
                layer_rates(model, recipe.layer_decay) if recipe.layer_decay < 1 else {}
            ),
            average_decay=recipe.average_decay,
        )
    image_size = model.input_shape[1:3]

    # What a device holds at once in training is what fits in its memory.
    def evaluated(split, on_batch=None):
        batches = session.spread(
            devices,
            pipeline.evaluation_batches,
            split,
            image_size=image_size,
            batch_size=recipe.batch_size // parts,
        )
        return evaluate(trainer, batches, on_batch)

    def validate():
        labels, probabilities, loss = evaluated(source.validation)
        return {
            "val_loss": loss,
            "val_accuracy": session.accuracy(labels, probabilities),
        }

    def batches(start_step):
        found = session.spread(
            devices,
            pipeline.training_batches,
            source.train,
            image_size=image_size,
            batch_size=recipe.batch_size,
            seed=recipe.seed,
            start_step=start_step,
            crop=recipe.crop,
            flip=recipe.flip,
            augmentation=recipe,
            classes=len(source.class_names),
        )
        if start_step or not devices.is_chief:
            return found
        return _pictured(found, source, directory, devices)

    session.train(
        recipe,
        trainer,
        directory,
        devices,
        batches=batches,
        validate=validate if source.validation is not None else None,
        show=shower(recipe, model, source.validation or source.test),
        announce=lambda _: print(announcement(recipe, source, model, directory)),
    )
    with trainer.averaged():
        bar = progress_bar(
            total=source.test.num_examples,
            unit="image",
            desc="testing",
            disable=not devices.is_chief,
        )
        with bar, session.watched(devices):
            tested = evaluated(source.test, lambda done: bar.update(done - bar.n))
        check_finite("The test loss", tested[2])
        if not devices.is_chief:
            return None
        save_model(model, directory, source.class_names)
        if keep_weights:
            building.save_weights(model, recipe, directory.weights)
        _picture(source, directory, model)
    return _report(recipe, source, model, directory, tested, command)


def _check_devices(recipe, devices):
    if recipe.mixes and devices.has_hosts:
        raise RunError(
            "Mixup and CutMix take the examples of a whole batch, of which each worker "
            "has a part: leave --mixup and --cutmix out, or use one machine."
        )
    if recipe.model == "ResNet50V2" and devices.count > 1:
        raise RunError(
            "ResNet50V2 normalises batches, and each device would keep averages of its "
            "own: pass --strategy=one, or --model=BiT-R50x1, which needs none."
        )


def _check_classes(source):
    if len(source.class_names) < 2:
        raise RunError(
            f"{source.name} has one class, {source.class_names[0]}, and nothing to "
            "tell it from: add the images of at least one other class."
        )


@contextlib.contextmanager
def begun(recipe, run_dir, devices):
    """Has the directory of a run to itself, with its random numbers and precision.

    Args:
        recipe: `train.recipes.Recipe`.
        run_dir: path.
        devices: `train.engine.distribution.Devices`.

    Yields:
        `train.inference.run_directory.RunDirectory`.

    Raises:
        RunError: the directory cannot be written, holds another run, or is being used.
    """
    directory = RunDirectory(run_dir)
    with contextlib.ExitStack() as stack:
        if devices.is_chief:
            stack.enter_context(directory.locked())
            directory.claim(recipe.deciding)
        stack.enter_context(repeatable.settled(recipe.seed, recipe.precision))
        yield directory


def load_source(recipe, data_dir, skip_corrupt, tell=print):
    """Returns the recipe's data, no more of it than asked for.

    Args:
        recipe: `train.recipes.Recipe`.
        data_dir: path of the TFDS data, None for the usual one.
        skip_corrupt: bool, whether to leave out images that cannot be read.
        tell: takes a line on files that are ignored or left out.

    Returns:
        `train.data.sources.Source`.

    Raises:
        RunError: the data cannot be used.
    """
    source = sources.load(
        recipe.dataset,
        data_dir,
        validation_fraction=recipe.validation_fraction,
        skip_corrupt=skip_corrupt,
        tell=tell,
    )
    return dataclasses.replace(
        source,
        train=limited(source.train, recipe.train_examples),
        validation=source.validation
        and limited(source.validation, recipe.test_examples),
        test=limited(source.test, recipe.test_examples),
    )


def check_source(recipe, source, directory, devices, *, is_decoded):
    """Makes sure that a run has the data it began with, and will be able to test.

    A run that has no checkpoint yet decodes all images of validation and test, where
    they are the user's own files.

    Args:
        recipe: `train.recipes.Recipe`.
        source: `train.data.sources.Source`, of `load_source`.
        directory: `train.inference.run_directory.RunDirectory`.
        devices: `train.engine.distribution.Devices`.
        is_decoded: bool, whether all images were looked at already.

    Raises:
        RunError: there is other data, or an image cannot be decoded.
    """
    if not devices.is_chief:
        return
    facts = {
        "training images": source.train.num_examples,
        "validation images": source.validation.num_examples if source.validation else 0,
        "classes": source.class_names,
    }
    if source.train.num_examples == recipe.train_examples:
        # Runs from before this was written had others, and cannot go on with these.
        facts["choice of training images"] = "by class"
    directory.claim_data(facts, since=_parts(source))
    if source.skipped:
        with whole_file(directory.skipped) as temporary:
            temporary.write_text("\n".join(source.skipped) + "\n", encoding="utf-8")
    is_new = not any(directory.checkpoints.glob("step-*.npz"))
    if is_new and is_own(recipe.dataset) and not is_decoded:
        pipeline.check_readable(source.validation, source.test)


def _parts(source):
    """How many images the test has, and which are in which part where files are."""
    facts = {"test images": source.test.num_examples}
    for part in ("train", "validation", "test"):
        split = getattr(source, part)
        records = split.arrays[0] if split and split.arrays else ()
        if not len(records) or not isinstance(records[0], str):
            continue
        # A folder may be moved, and its classes stay with their files.
        names = ("/".join(pathlib.Path(path).parts[-2:]) for path in records)
        text = "\n".join(names).encode("utf-8", "surrogateescape")
        facts[f"files of {part}"] = hashlib.sha256(text).hexdigest()[:16]
    return facts


def announcement(recipe, source, model, directory):
    """Returns what a run says as it begins."""
    validation = source.validation.num_examples if source.validation else 0
    return printable(
        f"{source.name}: {source.train.num_examples:,} training, {validation:,} "
        f"validation and {source.test.num_examples:,} test images of "
        f"{len(source.class_names)} classes\n"
        f"{model.name}: {count_parameters(model.weights):,} parameters, "
        f"weights {recipe.weights or 'random'}, images "
        f"{model.input_shape[1]}x{model.input_shape[2]}\n"
        f"{recipe.steps:,} steps of {recipe.batch_size} images in {directory.path}",
        lines=True,
    )


def save_model(model, directory, class_names):
    """Writes the model and the names of its classes, each whole.

    Args:
        model: `keras.Model`.
        directory: `train.inference.run_directory.RunDirectory`.
        class_names: sequence of str.
    """
    with whole_file(directory.model) as temporary:
        model.save(temporary)
    with whole_file(directory.class_names) as temporary:
        temporary.write_text("\n".join(class_names) + "\n", encoding="utf-8")


def _report(recipe, source, model, directory, tested, command):
    labels, probabilities, loss = tested
    log = MetricLog(directory.metrics)
    results = {
        "test_loss": loss,
        **about_loss(recipe),
        "train_examples": source.train.num_examples,
        "steps": _steps(recipe, log),
        "parameters": count_parameters(model.weights),
        "trained_parameters": count_parameters(model.trainable_weights, lora=True),
        "command": command,
    }
    if source.validation:
        results["validation_examples"] = source.validation.num_examples
    results.update(speed(log))
    summary = classification_summary(labels, probabilities, source.class_names)
    summary["calibration"] = calibration(labels, probabilities)
    if source.train.num_examples <= _COUNTED_EXAMPLES:
        counts = source.train.class_counts(len(source.class_names))
        for row, count in zip(summary["per_class"], counts, strict=True):
            row["train_examples"] = int(count)
    if source.skipped:
        results["skipped_examples"] = len(source.skipped)
        results["skipped_are_in"] = directory.skipped.name
    write_report(
        directory.path,
        config=written_settings(recipe),
        summary=summary,
        results=results,
        history=log,
    )
    return {
        "test_accuracy": summary["accuracy"],
        "test_examples": len(labels),
        "tested": f"{'all ' if recipe.test_examples is None else ''}{len(labels):,}",
        **results,
        "report": str(directory.report),
        "model": str(directory.model),
        "weights": str(directory.weights) if directory.weights.exists() else None,
    }


def about_loss(recipe):
    """Returns what the report says of the loss of training and of validation.

    Args:
        recipe: `train.recipes.Recipe`.

    Returns:
        Dict of `loss_function`, the same in both, and `training_only`, what its
        training values are of besides.
    """
    return {
        "loss_function": building.loss_name(recipe),
        "training_only": building.training_only(recipe),
    }


def speed(log):
    """Returns the wall time of all steps, and the images learned from in a second.

    The time is that from the first batch to the end of the last step: with waiting for
    images, compiling, validations and checkpoints, but without what a kill undid.

    Args:
        log: `train.engine.metrics.MetricLog`.

    Returns:
        Dict of `seconds` and `images_per_second`; empty where no step is logged.
    """
    _, seconds = log.series("seconds")
    if not len(seconds):
        return {}
    _, rates = log.series("images_per_second")
    total = float(seconds.sum())
    return {
        "seconds": total,
        "images_per_second": float((rates * seconds).sum()) / total,
    }


def written_settings(recipe):
    """Returns the recipe as the report shows it: what it leaves open, nothing empty.

    Args:
        recipe: `train.recipes.Recipe`.

    Returns:
        Dict of the settings by name.
    """
    settings = {
        **dataclasses.asdict(recipe),
        "eval_every": recipe.eval_interval,
        "checkpoint_every": recipe.checkpoint_interval,
    }
    return {name: value for name, value in settings.items() if value != ""}


def _steps(recipe, log):
    """How many steps the model has taken, which may be less than the run did."""
    if not recipe.early_stopping:
        return recipe.steps
    steps, accuracies = log.series("val_accuracy")
    return int(steps[np.argmax(accuracies)])


def _pictured(batches, source, directory, devices):
    """Shows the first batch as the model sees it."""
    batches = iter(batches)
    first = next(batches)
    images, labels = (np.asarray(values) for values in devices.first(first))
    draw_batch(directory.batch, images, labels, source.class_names)
    yield first
    yield from batches


def _picture(source, directory, model):
    """Shows that the saved model, loaded again, sees what the trained one saw."""
    _, images, labels = pipeline.samples(
        source.test, PICTURES, image_size=model.input_shape[1:3]
    )
    # Both the same way: compiled, bfloat16 rounds elsewhere, by more than 1%.
    trained, loaded = (
        keras.ops.convert_to_numpy(keras.ops.softmax(one(images, training=False)))
        for one in (model, load_model(directory.model))
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

"""Evaluation of a model on all images of a split."""

import contextlib
import os
import time
from dataclasses import replace

import numpy as np
import tensorflow as tf
from scipy.special import log_softmax

from keras_vit.structure import head_of, preparation_of
from train.common import predictors
from train.common.errors import RunError, explaining_full_memory
from train.common.files import read_json
from train.data import pipeline
from train.data.options import DEFAULTS, DataOptions
from train.data.registry import kind_of, real_path, short_name
from train.evaluate import real_labels, training_images
from train.models import loaded_model
from train.models.finding import FoundModel
from train.models.run_directory import RunDirectory
from train.reports.answers import answers_of
from train.reports.report import write_report
from train.scoring import evaluation_data, predicting
from train.scoring.class_matching import match_classes
from train.scoring.metrics import classification_summary
from train.scoring.outputs import Outputs
from train.scoring.ranked import joined, ranked
from train.tasks import CLASSES, MASKS, TASKS
from zoo.common.safe_text import named
from zoo.network.head import softmax
from zoo.network.preparation import asked_for


def evaluate(
    model: str | FoundModel,
    *,
    dataset: str | None = None,
    data_options: DataOptions = DEFAULTS,
    split: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    central_crop: bool | None = None,
    batch_size: int = 32,
    engine: str = "auto",
    precision: str = "float32",
    real_labels_file: str | os.PathLike | None = None,
    out_dir: str | os.PathLike | None = None,
    command: str = "",
) -> dict:
    """Evaluates a model on all images of a split, and writes a report.

    The arguments are the flags of `python -m train.evaluate`, `real_labels_file` being
    `--real_labels`; `image_size` may be (height, width), `central_crop` is None for
    what the model says, and `command` is the command line, for the report. The split
    "validation" is what the run held out, or the data set's recipe would, "train" the
    rest, "all" every image, and None is "test".

    Returns:
        Dict of the results as in `report.json`; `report` is the path of the report as
        Markdown, `page` as HTML, and `notes` what to know about the numbers, a list of
        str.

    Raises:
        RunError: model, data or directory cannot be used; the message says what to do.

    Example:
        >>> evaluate("runs/digits")["test_accuracy"]  # doctest: +SKIP
        0.9833333333333333
    """
    split = split or "test"
    loaded = loaded_model.load(model, image_size=image_size, masks=True)
    bits, about_bits = loaded.bits(data_options.bits)
    task = evaluation_data.task_of(loaded)
    if real_labels_file is not None and task != CLASSES:
        raise RunError(
            f"--real_labels are classes of ImageNet, and {loaded.name} answers with "
            f"{task}: leave it out."
        )
    if task == MASKS:
        if (central_crop, engine, precision) != (None, "auto", "float32"):
            raise RunError(
                "--central_crop, --engine and --precision are of one answer per photo, "
                f"and {loaded.name} makes masks: leave them out."
            )
        return _of_masks(
            loaded,
            dataset,
            split,
            replace(data_options, bits=bits),
            out_dir,
            command,
        )
    image_size = loaded_model.image_shape_of(loaded)[:2]
    outputs = evaluation_data.num_logits(loaded)
    kind = TASKS[task]
    source, part = evaluation_data.load_split(
        loaded, dataset, split, replace(data_options, bits=bits)
    )
    images = evaluation_data.described(source, part, split)
    are_numbers, places = False, np.arange(outputs, dtype=np.int32)
    class_names = source.class_names
    if kind.has_classes:
        class_names, places, are_numbers = match_classes(
            outputs, loaded.class_names, source.class_names, kind_of(source.name).is_own
        )
    in_training, warnings = training_images.in_training(
        loaded, source, part, split, data_options
    )
    correct = None
    if real_labels_file is not None:
        correct = real_labels.of_split(
            real_labels_file, part, source.name, data_options.data_dir, classes=outputs
        )
    directory, about = _folder(
        loaded, source, images, split, out_dir, predictors.suffix(engine, precision)
    )
    preparation = asked_for(central_crop, preparation_of(loaded.model))
    batch_size = min(batch_size, part.num_examples)
    batches = pipeline.evaluation_batches(
        part, image_size=image_size, batch_size=batch_size, preparation=preparation
    )
    predictor = predictors.predictor(loaded.model, batch_size, engine, precision)
    predictor.expect(part.num_examples)
    settings = {
        "model": loaded.name,
        "dataset": source.name,
        "split": part.name,
        "image_size": image_size,
        "preparation": preparation,
        "batch_size": batch_size,
    }
    chosen = {"precision": precision, **({} if bits is None else {"bits": bits})}
    of_model = {"parameters": loaded.model.count_params()}
    if kind.evaluation:
        labels, values, speeds = _outputs(predictor, batches, part)
        return kind.of("evaluation")(
            directory,
            part,
            Outputs(class_names, places, labels, values, loaded),
            split=split,
            settings={**settings, "engine": predictor.engine, **chosen},
            results=of_model | speeds | about | {"command": command},
            notes=[f"Evaluated on {images}.", *warnings, *about_bits],
        )
    batches = batches.map(lambda images, labels: (images, tf.gather(places, labels)))
    answered, loss, speeds = _answered(predictor, batches, part, places)
    answered_by = predictor.engine
    results = {f"{split}_loss": loss, "loss_function": "softmax cross-entropy"}
    if correct is not None:
        reassessed = real_labels.accuracy(correct, answered.predicted)
        results |= {f"{split}_real_{key}": value for key, value in reassessed.items()}
    hits = answered.predicted == answered.labels
    seen_note, seen_results = training_images.accuracies(in_training, hits, split)
    results |= seen_results
    results |= {
        **of_model,
        **speeds,
        **about,
        "command": command,
    }
    summary = classification_summary(answered, class_names, places)
    if "data_classes" in summary:
        results[f"{split}_data_classes"] = summary["data_classes"]
    summary["notes"] = _notes(summary, images, seen_note, warnings) + about_bits
    if are_numbers:
        summary["notes"].append(
            "The data set's classes are numbers: they were taken for places in the "
            "model's outputs, from 0."
        )
    results = write_report(
        directory,
        config={**settings, "engine": answered_by, **chosen},
        summary=summary,
        results=results,
        split=split,
        answers=answers_of(part, answered, class_names),
        in_training=in_training,
        model=loaded.source,
        weights=loaded.config.get("weights", loaded.source),
    )
    report, page = directory / "report.md", directory / "report.html"
    added = {"notes": summary["notes"], "report": str(report), "page": str(page)}
    return {**results, **added}


def _folder(loaded, source, images, split, out_dir, suffix=""):
    """Returns the folder of the report, and what it is of."""
    name = f"{loaded.name}-{short_name(source.name)}-{split}{suffix}"
    directory, model_source = evaluation_data.report_folder(
        loaded.source, out_dir, name, "report.json", data=real_path(source.name)
    )
    if RunDirectory(directory).model.exists():
        raise RunError(
            f"{directory} holds a run, whose report would be lost: pass another "
            "--out_dir."
        )
    about = {"images": images, "data": real_path(source.name), "source": model_source}
    _print_replaced(directory / "report.json", about)
    return directory, about


def _of_masks(loaded, dataset, split, options, out_dir, command):
    """Evaluates a model of masks on photos in their own size."""
    source, part = evaluation_data.load_split(loaded, dataset, split, options)
    names = getattr(head_of(loaded.model), "class_names", None) or loaded.class_names
    if names is not None and tuple(names[: len(source.class_names)]) != (
        source.class_names
    ):
        raise RunError(
            f"The classes of {source.name} are not those of {loaded.name}, in their "
            f"order: {named(names)}. Give its masks these, by classes.csv."
        )
    images = evaluation_data.described(source, part, split)
    directory, about = _folder(loaded, source, images, split, out_dir)
    return TASKS[MASKS].of("evaluation")(
        directory,
        source,
        part,
        loaded.model,
        split=split,
        settings={
            "model": loaded.name,
            "dataset": source.name,
            "split": part.name,
            "image_size": loaded.model.input_shape[1:3],
        },
        results={
            "parameters": loaded.model.count_params(),
            **about,
            "command": command,
        },
        notes=[f"Evaluated on {images}."],
    )


def _answered(predictor, batches, part, places):
    """Returns the `Ranked` of a split, its mean loss, and images per second."""

    def keep(labels: np.ndarray, logits: np.ndarray) -> tuple:
        chances = np.take_along_axis(log_softmax(logits, axis=1), labels[:, None], 1)
        return ranked(labels, softmax(logits), places), -chances[:, 0]

    kept, speeds = _timed(predictor, batches, part, keep)
    parts, losses = zip(*kept, strict=True)
    return joined(parts), float(np.concatenate(losses).mean()), speeds


def _outputs(predictor, batches, part):
    """Returns labels and outputs of a split, and images per second."""
    kept, speeds = _timed(predictor, batches, part, lambda *pair: pair)
    labels, values = map(np.concatenate, zip(*kept, strict=True))
    return labels, values, speeds


def _timed(predictor, batches, part, keep):
    """Returns what a function keeps of labels and outputs, and images per second.

    They are those of the whole evaluation, and of the model alone.
    """
    with explaining_full_memory(predicting.LESS_MEMORY):
        # Compile first: it does not count towards the images per second.
        predictor(predicting.random_images(predictor))
    started = time.perf_counter()
    kept = [keep(*pair) for pair in predicting.predictions(predictor, batches, part)]
    seconds = time.perf_counter() - started
    # "auto" may change while the model alone is timed.
    alone = predicting.images_per_second({"model": predictor})["model"]
    return kept, {
        "images_per_second": part.num_examples / seconds,
        "images_per_second_model_alone": alone,
    }


def _print_replaced(file, about):
    """Prints that a report of other images or of another model is replaced, if one is.

    `about` has what a report says of both.
    """
    earlier = {}
    # Replace a file that cannot be read as well.
    with contextlib.suppress(RunError):
        earlier = read_json(file, "remove it") if file.exists() else {}
    if any(earlier.get(key, value) != value for key, value in about.items()):
        print(
            f"{file.parent} has the report of {earlier.get('source', 'a model')} on "
            f"{earlier.get('images', 'other images')}, which is replaced."
        )


def _notes(summary, images, seen, warnings):
    """Returns what to know about the numbers of an evaluation, a list of sentences."""
    notes = [f"Evaluated on {images}."]
    if "other_classes" in summary:
        count, others = summary["data_classes"], summary["other_classes"]
        low, high = (
            summary[f"accuracy_among_data_classes_{end}"] for end in ("low", "high")
        )
        notes.append(
            f"Of the model's {len(summary['per_class']):,} classes the data set has "
            f"{count:,}. Among these alone the accuracy is "
            f"{summary['accuracy_among_data_classes']:.2%} ({low:.2%} to {high:.2%}); "
            f"among all, {others['predictions']:,} answers ({others['share']:.2%}) are "
            "other classes."
        )
    if seen is not None:
        notes.append(seen)
    return notes + warnings

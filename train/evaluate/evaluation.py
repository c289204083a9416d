"""Evaluation of a model on all images of a split."""

import time

import numpy as np
import tensorflow as tf
from scipy.special import log_softmax, softmax

import keras_vit
from train.common.errors import RunError
from train.data import pipeline
from train.data.registry import short_name
from train.engine.loop import explaining_full_memory
from train.evaluate import real_labels
from train.inference import evaluation_data, loaded_model
from train.inference.classes import match_classes
from train.inference.run_directory import RunDirectory
from train.reports.classification import calibration, classification_summary
from train.reports.figures import PICTURES, write_predictions_picture
from train.reports.report import write_report


def evaluate(
    model,
    *,
    dataset=None,
    data_dir=None,
    skip_corrupt=False,
    split="test",
    image_size=None,
    central_crop=False,
    batch_size=32,
    real_labels_file=None,
    out_dir=None,
    command="",
):
    """Evaluates a model on all images of a split, and writes a report.

    The arguments are the flags of `python -m train.evaluate`, `real_labels_file` being
    `--real_labels`; `image_size` may be (height, width), and `command` is the command
    line, for the report. The split "validation" is what the run held out, or the data
    set's recipe would, "train" the rest.

    Returns:
        Dict of the results as in `report.json`, `report` being the path of the page.

    Raises:
        RunError: model, data or directory cannot be used; the message says what to do.

    Example:
        >>> evaluate("runs/digits")["test_accuracy"]  # doctest: +SKIP
        0.9833333333333333
    """
    loaded = loaded_model.load(model, image_size=image_size)
    image_size = loaded_model.image_shape_of(loaded)[:2]
    outputs = evaluation_data.num_logits(loaded)
    source, part = evaluation_data.load_split(
        loaded, dataset, data_dir, skip_corrupt, split
    )
    class_names, places = match_classes(outputs, loaded.class_names, source.class_names)
    correct = None
    if real_labels_file is not None:
        if outputs != real_labels.CLASSES:
            raise RunError(
                f"--real_labels are those of {real_labels.CLASSES} classes, but the "
                f"model has {outputs}: leave them out."
            )
        names = real_labels.file_names(part, source.name, data_dir)
        correct = real_labels.of_files(real_labels.read(real_labels_file), names)
    name = f"{loaded.name}-{short_name(source.name)}-{split}"
    directory, model_source = evaluation_data.report_folder(
        model, out_dir, name, "report.json"
    )
    if RunDirectory(directory).model.exists():
        raise RunError(
            f"{directory} holds a run, whose report would be lost: pass another "
            "--out_dir."
        )

    if central_crop:
        part = evaluation_data.center_crop(part, image_size)
    batch_size = min(batch_size, part.num_examples)
    batches = pipeline.evaluation_batches(
        part, image_size=image_size, batch_size=batch_size
    ).map(lambda images, labels: (images, tf.gather(places, labels)))
    predictor = keras_vit.Predictor(loaded.model, batch_size)
    with explaining_full_memory(loaded_model.LESS_MEMORY):
        alone = loaded_model.images_per_second({"model": predictor})["model"]
    started = time.perf_counter()
    labels, logits = loaded_model.predict(predictor, batches, part)
    seconds = time.perf_counter() - started

    probabilities = softmax(logits, axis=1)
    losses = -np.take_along_axis(log_softmax(logits, axis=1), labels[:, None], axis=1)
    results = {
        f"{split}_loss": float(losses.mean()),
        "loss_function": "softmax cross-entropy",
    }
    if correct is not None:
        found = real_labels.accuracy(correct, logits.argmax(axis=1))
        results |= {f"{split}_real_{key}": value for key, value in found.items()}
    results |= {
        "parameters": loaded.model.count_params(),
        "images_per_second": len(labels) / seconds,
        "images_per_second_model_alone": alone,
        "source": model_source,
        "command": command,
    }
    summary = classification_summary(labels, probabilities, class_names)
    summary["calibration"] = calibration(labels, probabilities)
    chosen, images, _ = pipeline.samples(part, PICTURES, image_size=image_size)
    write_predictions_picture(
        directory / "predictions.png",
        images,
        labels[chosen],
        probabilities[chosen],
        class_names,
        f"Images of {part.name}",
    )
    results = write_report(
        directory,
        config={
            "model": loaded.name,
            "dataset": source.name,
            "split": part.name,
            "image_size": image_size,
            "preparation": "central crop" if central_crop else "squashed",
            "batch_size": batch_size,
        },
        summary=summary,
        results=results,
        split=split,
    )
    return {**results, "report": str(directory / "report.md")}

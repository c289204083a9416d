"""Few-shot linear probe: accuracy of a ridge regression on a model's features."""

import os
import pathlib
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.structure import preparation_of
from train.common import markdown, predictors
from train.common.files import write_json, write_text
from train.data import pipeline, sources
from train.data.registry import short_name
from train.data.sources.splits import Split, pick
from train.models import loaded_model
from train.models.finding import FoundModel
from train.scoring import predicting
from train.scoring.evaluation_data import report_folder

L2 = 2.0**10
# big_vision's evaluator resizes to 256 for 224.
RELEASED = "squashed to 8/7 of the size, of which the centre is cut out"
_EPSILON = 1e-5
_CONSTANT = 100.0
_TEMPLATE = pathlib.Path(__file__).with_name("few_shot.md.jinja")


def run(
    model: str | FoundModel,
    *,
    dataset: str,
    data_dir: str | os.PathLike | None = None,
    skip_corrupt: bool = False,
    bits: int | None = None,
    shots: Sequence[int] = (1, 5, 10, 25),
    seeds: int = 3,
    image_size: int | tuple[int, int] | None = None,
    batch_size: int = 32,
    engine: str = "auto",
    precision: str = "float32",
    out_dir: str | os.PathLike | None = None,
    command: str = "",
) -> dict:
    """Fits linear classifiers on a model's features of few images, writes a report.

    The arguments are the flags of `python -m train.few_shot`; `image_size` may be
    (height, width), and `command` is the command line, for the report.

    Returns:
        Dict as in `few_shot.json`, `report` being the path of the page.

    Raises:
        RunError: model, data or directory cannot be used; the message says what to do.

    Source:
        big_vision, `evaluators/fewshot_lsr.py`.

    Example:
        >>> run("vit-b16/imagenet21k", dataset="cifar100")  # doctest: +SKIP
    """
    loaded = loaded_model.load(model, image_size=image_size, features=True)
    bits, notes = loaded.bits(bits)
    for note in notes:
        print(note)
    image_size = loaded_model.image_shape_of(loaded)[:2]
    source = sources.load(dataset, data_dir, skip_corrupt=skip_corrupt, bits=bits)
    name = f"{loaded.name}-{short_name(source.name)}-few-shot"
    name += predictors.suffix(engine, precision)
    directory, model_source = report_folder(
        loaded.source, out_dir, name, "few_shot.json"
    )

    predictor = predictors.predictor(loaded.model, batch_size, engine, precision)
    train_labels = source.train.labels()
    draws = {
        count: [draw(train_labels, count, seed) for seed in range(seeds)]
        for count in shots
    }
    needed = np.unique(np.concatenate(sum(draws.values(), [])))
    _, train_features = features_of(predictor, pick(source.train, needed))
    test_labels, test_features = features_of(predictor, source.test)

    rows = []
    for count in shots:
        accuracies = []
        for drawn in draws[count]:
            predicted = predictions(
                train_features[np.searchsorted(needed, drawn)],
                train_labels[drawn],
                test_features,
                len(source.class_names),
            )
            accuracies.append(float(np.mean(predicted == test_labels)))
        rows.append(
            {
                "shots": count,
                "train_examples": len(draws[count][0]),
                "accuracies": accuracies,
                "mean": float(np.mean(accuracies)),
                # The sample standard deviation, which one draw does not have.
                "deviation": float(np.std(accuracies, ddof=1)) if seeds > 1 else None,
            }
        )
    results = {
        "model": loaded.name,
        "source": model_source,
        "dataset": source.name,
        "image_size": list(image_size),
        "preparation": preparation_for(loaded.model),
        "features": int(test_features.shape[1]),
        "test_examples": len(test_labels),
        "l2": L2,
        "engine": predictor.engine,
        "precision": precision,
        **({} if bits is None else {"bits": bits}),
        "command": command,
        "rows": rows,
    }
    page = directory / "few_shot.md"
    write_text(page, markdown.render(_TEMPLATE, **results, accuracies=table(results)))
    write_json(directory / "few_shot.json", results)
    return {**results, "report": str(page)}


def draw(labels: np.ndarray, shots: int, seed: int) -> np.ndarray:
    """Draws indices of training images, by class; all of a class that has fewer.

    More shots with the same seed contain the fewer. As in big_vision.
    """
    generator = np.random.default_rng(seed)
    draws = [
        generator.permutation(np.flatnonzero(labels == label))[:shots]
        for label in range(labels.max() + 1)
    ]
    return np.concatenate(draws)


def predictions(
    features: np.ndarray, labels: np.ndarray, test_features: np.ndarray, classes: int
) -> np.ndarray:
    """Fits a linear classifier and returns its predictions for other examples.

    Least squares with targets 1 for the class and -1 for the others, on features that
    are whitened by the training examples' mean and deviation, with a constant feature
    large enough that the penalty hardly touches the bias. As in big_vision,
    `evaluators/fewshot_lsr.py`.
    """
    features = np.asarray(features, np.float64)
    mean = features.mean(axis=0)
    deviation = features.std(axis=0) + _EPSILON

    def whitened(rows: np.ndarray) -> np.ndarray:
        rows = (np.asarray(rows, np.float64) - mean) / deviation
        return np.pad(rows, ((0, 0), (0, 1)), constant_values=_CONSTANT)

    targets = 2 * np.eye(classes)[labels] - 1
    return (whitened(test_features) @ ridge(whitened(features), targets, L2)).argmax(1)


def ridge(inputs: np.ndarray, targets: np.ndarray, l2: float) -> np.ndarray:
    """Returns the weights w that minimise |inputs w - targets|^2 + l2 |w|^2.

    As in big_vision, by the eigenvectors of the smaller of the two products of the
    inputs with themselves. Shapes: (examples, size), (examples, outputs), (size,
    outputs).
    """
    examples, size = inputs.shape
    if examples >= size:
        values, vectors = np.linalg.eigh(inputs.T @ inputs)
        return vectors @ ((vectors.T @ (inputs.T @ targets)) / (values + l2)[:, None])
    values, vectors = np.linalg.eigh(inputs @ inputs.T)
    return inputs.T @ (vectors @ ((vectors.T @ targets) / (values + l2)[:, None]))


def preparation_for(model: keras.Model) -> str:
    """Returns how images come to a model's size: as it says, or as big_vision does.

    big_vision's way is for models that say no more than the default, `"squash"`.
    """
    own = preparation_of(model)
    return RELEASED if own == "squash" else own


def features_of(predictor: keras_vit.Predictor, split: Split) -> tuple[np.ndarray, ...]:
    """Returns labels and features of a split, prepared as `preparation_for` says."""
    size = predictor.model.input_shape[1:3]
    preparation = preparation_for(predictor.model)
    settings = {"image_size": size, "preparation": preparation}
    if preparation == RELEASED:
        settings = {"image_size": tuple(round(side * 8 / 7) for side in size)}
    batches = pipeline.evaluation_batches(
        split, batch_size=predictor.batch_size, **settings
    )
    if preparation == RELEASED:
        crop = tf.image.resize_with_crop_or_pad
        batches = batches.map(lambda images, labels: (crop(images, *size), labels))
    columns = zip(*predicting.predictions(predictor, batches, split), strict=True)
    return tuple(map(np.concatenate, columns))


def table(results: dict) -> markdown.Block:
    """Returns the accuracies of `run` as a table in Markdown."""
    return markdown.table(
        ("Images per class", "Training images", "Accuracy", "Deviation", "Each draw"),
        [
            (
                row["shots"],
                f"{row['train_examples']:,}",
                f"{row['mean']:.2%}",
                "" if row["deviation"] is None else f"{row['deviation']:.2%}",
                ", ".join(f"{accuracy:.2%}" for accuracy in row["accuracies"]),
            )
            for row in results["rows"]
        ],
    )

"""What a linear classifier learns from a few images a class of a model's features."""

import json
import pathlib

import numpy as np

import keras_vit
from train.common.files import make_folder, whole_file
from train.data import pipeline, sources
from train.data.sources.kinds import short_name
from train.data.sources.splits import pick
from train.inference import given_model
from train.reports import markdown

L2 = 2.0**10
_EPSILON = 1e-5
_CONSTANT = 100.0


def run(
    model,
    *,
    dataset,
    data_dir=None,
    skip_corrupt=False,
    shots=(1, 5, 10, 25),
    seeds=3,
    image_size=None,
    batch_size=32,
    out_dir=None,
    command="",
):
    """Probes a model's features with a few images a class, and writes a report.

    Args:
        model: str, see `train.inference.given_model.load`.
        dataset: str, see `train.data.sources.load`.
        data_dir: path of the TFDS data, None for the usual one.
        skip_corrupt: bool, whether to leave out images that cannot be read.
        shots: ints, the training images a class; of a class that has fewer, all.
        seeds: int, how many draws of them.
        image_size: int or (height, width) in pixels; by default that of the model.
        batch_size: int.
        out_dir: path of the report's directory; by default
            `runs/evaluations/MODEL-DATASET-few-shot`.
        command: str, what was typed, for the report.

    Returns:
        Dict as in `few_shot.json`, `report` being the path of the page.

    Raises:
        RunError: model, data or directory are not as needed; the message says what to
            do.

    Source:
        big_vision, `evaluators/fewshot_lsr.py`.

    Example:

    >>> run("vit-b16/imagenet21k", dataset="cifar100")  # doctest: +SKIP
    """
    given = given_model.load(model, image_size=image_size, features=True)
    image_size = given_model.image_size_of(given)
    source = sources.load(dataset, data_dir, skip_corrupt=skip_corrupt)
    name = f"{given.name}-{short_name(source.name)}-few-shot"
    directory = make_folder(out_dir or pathlib.Path("runs/evaluations") / name)

    train_labels = source.train.labels()
    draws = {
        (count, seed): chosen(train_labels, count, seed)
        for count in shots
        for seed in range(seeds)
    }
    needed = np.unique(np.concatenate(list(draws.values())))
    _, train_features = _features(given, pick(source.train, needed), batch_size)
    test_labels, test_features = _features(given, source.test, batch_size)

    rows = []
    for count in shots:
        accuracies = []
        for seed in range(seeds):
            draw = draws[count, seed]
            predicted = predictions(
                train_features[np.searchsorted(needed, draw)],
                train_labels[draw],
                test_features,
                len(source.class_names),
            )
            accuracies.append(float(np.mean(predicted == test_labels)))
        rows.append(
            {
                "shots": count,
                "train_examples": len(draws[count, 0]),
                "accuracies": accuracies,
                "mean": float(np.mean(accuracies)),
                # Of the draws, as of a sample: one says nothing.
                "deviation": float(np.std(accuracies, ddof=1)) if seeds > 1 else None,
            }
        )
    results = {
        "model": given.name,
        "dataset": source.name,
        "image_size": list(image_size),
        "features": int(test_features.shape[1]),
        "test_examples": len(test_labels),
        "l2": L2,
        "command": command,
        "rows": rows,
    }
    _write(directory, results)
    return {**results, "report": str(directory / "few_shot.md")}


def chosen(labels, shots, seed):
    """Draws training images: more shots with a seed contain the fewer.

    Args:
        labels: ints (examples,).
        shots: int, examples a class.
        seed: int.

    Returns:
        Array of places in `labels`, by class; all of a class that has fewer.

    Source:
        big_vision, `evaluators/fewshot_lsr.py`.

    Example:

    >>> labels = np.array([0, 1, 0, 1, 0])
    >>> labels[chosen(labels, 2, seed=0)]
    array([0, 0, 1, 1])
    """
    generator = np.random.default_rng(seed)
    draws = [
        generator.permutation(np.flatnonzero(labels == label))[:shots]
        for label in range(labels.max() + 1)
    ]
    return np.concatenate(draws)


def predictions(features, labels, test_features, classes, l2=L2):
    """Fits a linear classifier and returns what it says of other examples.

    Least squares with targets 1 for the class and -1 for the others, on features that
    are whitened by the training examples' mean and deviation, with a constant large
    enough that the penalty hardly touches the bias.

    Args:
        features: floats (examples, size).
        labels: ints (examples,).
        test_features: floats (others, size).
        classes: int.
        l2: float, the penalty.

    Returns:
        ints (others,).

    Source:
        big_vision, `evaluators/fewshot_lsr.py`.

    Example:

    >>> predictions(np.array([[-1.0], [1.0]]), np.array([0, 1]), np.array([[3.0]]), 2)
    array([1])
    """
    features = np.asarray(features, np.float64)
    mean = features.mean(axis=0)
    deviation = features.std(axis=0) + _EPSILON

    def whitened(rows):
        rows = (np.asarray(rows, np.float64) - mean) / deviation
        return np.pad(rows, ((0, 0), (0, 1)), constant_values=_CONSTANT)

    targets = 2 * np.eye(classes)[labels] - 1
    return (whitened(test_features) @ ridge(whitened(features), targets, l2)).argmax(1)


def ridge(inputs, targets, l2):
    """Returns the weights that minimise |inputs w - targets|^2 + l2 |w|^2.

    Args:
        inputs: floats (examples, size).
        targets: floats (examples, outputs).
        l2: float, above 0.

    Returns:
        floats (size, outputs).

    Source:
        big_vision, `evaluators/fewshot_lsr.py`: by the eigenvectors of the smaller of
        the two products of the inputs with themselves.

    Example:

    >>> ridge(np.array([[3.0]]), np.array([[6.0]]), l2=1.0)
    array([[1.8]])
    """
    examples, size = inputs.shape
    if examples >= size:
        values, vectors = np.linalg.eigh(inputs.T @ inputs)
        return vectors @ ((vectors.T @ (inputs.T @ targets)) / (values + l2)[:, None])
    values, vectors = np.linalg.eigh(inputs @ inputs.T)
    return inputs.T @ (vectors @ ((vectors.T @ targets) / (values + l2)[:, None]))


def table(results):
    """Returns the accuracies as a table in Markdown.

    Args:
        results: dict of `run`.
    """
    return markdown.table(
        ("Images a class", "Training images", "Accuracy", "Deviation", "Each draw"),
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


def _features(given, split, batch_size):
    """Resized to 8/7 of the model's size, then its centre: 256 and 224 as released."""
    size = given_model.image_size_of(given)
    bigger = tuple(round(side * 8 / 7) for side in size)
    top, left = ((more - side) // 2 for more, side in zip(bigger, size, strict=True))
    batches = pipeline.evaluation_batches(
        split, image_size=bigger, batch_size=batch_size
    ).map(
        lambda images, labels: (
            images[:, top : top + size[0], left : left + size[1]],
            labels,
        )
    )
    predictor = keras_vit.Predictor(given.model, batch_size)
    return given_model.answers(predictor, batches, split)


def _write(directory, results):
    height, width = results["image_size"]
    title = markdown.escape(f"{results['model']} on {results['dataset']}, few-shot")
    page = [
        f"# {title}",
        f"Ridge regression (L2 {results['l2']:g}) on the {results['features']:,} "
        f"features that go into the head, from images of {height} x {width}; accuracy "
        f"on all {results['test_examples']:,} test images, the mean over draws of the "
        "training images and their standard deviation.",
        markdown.code(results["command"]),
        table(results),
    ]
    for name, text in (
        ("few_shot.md", "\n\n".join(page) + "\n"),
        ("few_shot.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n"),
    ):
        with whole_file(directory / name) as temporary:
            temporary.write_text(text, encoding="utf-8")

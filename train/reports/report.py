"""What a run leaves for its readers: numbers, a page to read, and pictures."""

import json
import math
import os
from pathlib import Path

import numpy as np

from train.common.files import whole_file
from train.reports.figures import (
    draw_confusion_matrix,
    draw_learning_curve,
    draw_reliability,
)
from train.reports.html_page import page
from train.reports.predictions import check_predictions, confused_pairs

CONFUSIONS = 10
CALIBRATION_BINS = 15


def classification_summary(labels, probabilities, class_names):
    """Summarise how a classifier did on a test split.

    Ratios whose denominator is zero are 0. Classes without test examples have no
    recall, so the macro averages leave them out and "absent_classes" names them.

    Args:
        labels: True classes, integers of shape (n,).
        probabilities: Predicted probabilities, floats of shape (n, classes).
        class_names: Names of the classes, a sequence of `classes` strings.

    Returns:
        A dict with "examples" and "accuracy", with its 95% interval (`interval`)
        "accuracy_low" and "accuracy_high"; "top5_accuracy" and its interval likewise
        where there are more than five classes; "per_class", a list in the order of the
        classes of dicts with "name", "precision", "recall", "f1", "examples" (with this
        true class) and "predictions" (of this class); "macro", a dict with "precision",
        "recall" and "f1"; "absent_classes", a list of names; "confusions", the most
        frequent mistakes as dicts with "true", "predicted", "count" and "share" (of the
        examples with this true class); and "confusion_matrix", an int64 array of shape
        (classes, classes) that counts true classes in rows, predicted ones in columns.

    Raises:
        ValueError: The arguments do not fit each other, or a probability is not finite.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    class_names = [str(name) for name in class_names]
    labels, probabilities = check_predictions(labels, probabilities, class_names)
    classes = np.arange(len(class_names))
    predicted = probabilities.argmax(axis=1)
    matrix = confusion_matrix(labels, predicted, labels=classes)
    *ratios, examples = precision_recall_fscore_support(
        labels, predicted, labels=classes, zero_division=0
    )
    present = examples > 0
    ratios = dict(zip(("precision", "recall", "f1"), ratios, strict=True))
    summary = {
        "examples": len(labels),
        **_share("accuracy", predicted == labels),
        "macro": {key: float(ratio[present].mean()) for key, ratio in ratios.items()},
        "per_class": [
            {
                "name": name,
                **{key: float(ratio[index]) for key, ratio in ratios.items()},
                "examples": int(examples[index]),
                "predictions": int(matrix[:, index].sum()),
            }
            for index, name in enumerate(class_names)
        ],
        "absent_classes": [class_names[index] for index in classes[~present]],
        "confusions": [
            {
                "true": class_names[true],
                "predicted": class_names[guess],
                "count": int(matrix[true, guess]),
                "share": float(matrix[true, guess] / examples[true]),
            }
            for true, guess in confused_pairs(matrix)[:CONFUSIONS]
        ],
        "confusion_matrix": matrix,
    }
    if len(class_names) > 5:
        summary.update(_share("top5_accuracy", _ranks(labels, probabilities) < 5))
    return summary


def interval(correct, examples):
    """Returns the 95% confidence interval of a share that was counted.

    Args:
        correct: int.
        examples: int, at least 1.

    Returns:
        Tuple (low, high) of floats.

    Source:
        Wilson, Probable inference, the law of succession, and statistical inference
        (1927); without continuity correction.

    Example:

    >>> [round(bound, 4) for bound in interval(90, 100)]
    [0.8256, 0.9448]
    """
    from scipy.stats import binomtest

    bounds = binomtest(int(correct), int(examples)).proportion_ci(method="wilson")
    return float(bounds.low), float(bounds.high)


def calibration(labels, probabilities):
    """Compares a classifier's confidence with its accuracy.

    The confidence is the largest probability. Examples are put into bins of equal width
    by it, (0, 1/15], (1/15, 2/15] and so on; the expected calibration error is the mean
    over the examples of |accuracy - mean confidence| of their bin.

    Args:
        labels: True classes, integers of shape (n,).
        probabilities: Predicted probabilities, floats of shape (n, classes).

    Returns:
        A dict with "error", and "bins", a list of dicts with "low", "high", "examples"
        and, None in an empty bin, "confidence" and "accuracy".

    Source:
        Guo et al., On Calibration of Modern Neural Networks (2017), equation 3.

    Example:

    >>> calibration(np.array([0, 1]), np.array([[0.75, 0.25]] * 2))["error"]
    0.25
    """
    confidence = probabilities.max(axis=1).astype(np.float64)
    correct = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, CALIBRATION_BINS + 1)
    places = np.digitize(confidence, edges[1:-1], right=True)
    counts, confidences, accuracies = (
        np.bincount(places, weights, minlength=CALIBRATION_BINS)
        for weights in (None, confidence, correct)
    )
    gaps = np.abs(accuracies - confidences)
    return {
        "error": float(gaps.sum() / len(confidence)),
        "bins": [
            {
                "low": float(edges[index]),
                "high": float(edges[index + 1]),
                "examples": int(count),
                "confidence": float(confidences[index] / count) if count else None,
                "accuracy": float(accuracies[index] / count) if count else None,
            }
            for index, count in enumerate(counts)
        ],
    }


def write_report(run_dir, *, config, summary, results, history=None, split="test"):
    """Write the report of a run into its directory.

    Writes `confusion_matrix.png`, `learning_curve.png` (where the history holds
    "loss", "accuracy", "val_loss", "val_accuracy" or "learning_rate"),
    `reliability.png` (where the summary holds "calibration"), `report.md`, which also
    shows every other PNG file of the directory, and last `report.json`. Each file
    replaces its predecessor whole.

    Args:
        run_dir: Directory of the run; it is made where missing.
        config: Settings of the run by name; dicts in it may nest.
        summary: What `classification_summary` returned for the split; and, if wanted,
            "calibration", what `calibration` did.
        results: Results by name, such as "train_examples", "steps", "seconds",
            "images_per_second" and "parameters"; "loss_function", what the losses are;
            and "command", the command line that reproduces the run.
        history: `train.engine.metrics.MetricLog` of the run, None without training.
        split: Name of the split, with which the names of its results begin.

    Raises:
        RunError: A file cannot be written.
        TypeError: A setting or result is not plain data.
        ValueError: A setting or result is not finite, or a result's name is taken.
    """
    run_dir = Path(run_dir)
    config, results = _plain(config, "config"), _plain(results, "results")
    shares = ("accuracy", "accuracy_low", "accuracy_high")
    shares += tuple(f"top5_{share}" for share in shares)
    measured = {
        **{f"{split}_{key}": summary[key] for key in shares if key in summary},
        f"{split}_examples": summary["examples"],
        **{f"{split}_macro_{key}": value for key, value in summary["macro"].items()},
    }
    details = {
        "config": config,
        "absent_classes": summary["absent_classes"],
        "per_class": summary["per_class"],
        "confusions": summary["confusions"],
    }
    if "calibration" in summary:
        measured[f"{split}_calibration_error"] = summary["calibration"]["error"]
        details["calibration"] = summary["calibration"]["bins"]
    if taken := sorted(results.keys() & details.keys()):
        raise ValueError(
            f"results of {run_dir} hold {taken}, which report.json needs for itself: "
            "rename them."
        )
    results = measured | results
    report = json.dumps(results | details, indent=2, ensure_ascii=False) + "\n"

    run_dir.mkdir(parents=True, exist_ok=True)
    draw_confusion_matrix(run_dir / "confusion_matrix.png", summary)
    if history is not None:
        draw_learning_curve(
            run_dir / "learning_curve.png", history, results.get("loss_function", "")
        )
    if "calibration" in summary:
        draw_reliability(run_dir / "reliability.png", summary["calibration"]["bins"])
    for name, text in (
        ("report.md", page(run_dir, config, summary, results, split)),
        ("report.json", report),
    ):
        with whole_file(run_dir / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _share(name, hits):
    low, high = interval(hits.sum(), len(hits))
    return {name: float(hits.mean()), f"{name}_low": low, f"{name}_high": high}


def _ranks(labels, probabilities):
    """Count the classes before the true one; of equals, argmax takes the first."""
    chances = np.take_along_axis(probabilities, labels[:, None], axis=1)
    earlier = np.arange(probabilities.shape[1]) < labels[:, None]
    ahead = (probabilities > chances) | ((probabilities == chances) & earlier)
    return ahead.sum(axis=1)


def _plain(value, name):
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist(), name)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(
            f"{name} is {value}, which JSON cannot hold: use None for no value."
        )
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"{name} is a {type(value).__name__}, which JSON cannot hold: pass a number, "
        "a string, None, or lists and dicts of them."
    )

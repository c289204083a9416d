"""The balanced accuracy, where it leads."""

import types
import warnings

import numpy as np
import pytest

from train import recipes
from train.engine.metric_log import MetricLog
from train.run.training import Run
from train.scoring.uneven import accuracies
from train.search.options import Options
from train.search.task import Found

LABELS = np.repeat([0, 1], [8, 2])
EVEN, UNEVEN = np.array([20, 19, 11]), np.array([80, 20, 5])
BOTH = {"accuracy": 0.9, "balanced_accuracy": 0.75}


def test_balanced_accuracy_is_the_mean_of_the_classes():
    predicted = np.repeat([0, 1], [9, 1])
    assert accuracies(LABELS, predicted, UNEVEN) == BOTH
    assert accuracies(LABELS, predicted, EVEN) == {"accuracy": 0.9}
    assert accuracies(LABELS, predicted, None) == {"accuracy": 0.9}
    with warnings.catch_warnings(action="error"):
        # No photo is of the class that is answered.
        assert accuracies(LABELS, predicted + 1, UNEVEN)["balanced_accuracy"] == 0.25


def test_a_validation_keeps_it():
    measured = {"loss": 0.5, **BOTH, "ranked": None}
    task = types.SimpleNamespace(evaluate=lambda trainer, batches: measured)
    run = types.SimpleNamespace(task=task, trainer=None)
    assert Run.validate(run, []) == {
        "val_accuracy": 0.9,
        "val_balanced_accuracy": 0.75,
        "val_loss": 0.5,
    }
    del measured["balanced_accuracy"]
    assert [*Run.validate(run, [])] == ["val_accuracy", "val_loss"]


@pytest.mark.parametrize("counts", [EVEN, UNEVEN])
def test_a_search_keeps_it(counts, tmp_path):
    def split(labels: np.ndarray) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            labels=lambda: labels,
            known_labels=labels,
            class_counts=lambda classes: np.bincount(labels, minlength=classes),
        )

    found = Found(recipes.for_dataset("photos/"), Options(1.0))
    found.source = types.SimpleNamespace(
        train=split(np.repeat([0, 1, 2], counts)),
        validation=split(LABELS),
        class_names=("a", "b", "c"),
    )
    found.held_out = 5 * np.eye(3)[np.repeat([0, 1], [9, 1])]
    results = found.validation_results(MetricLog(tmp_path / "metrics.jsonl"))
    assert results.pop("validation_loss") > 0
    expected = BOTH if counts is UNEVEN else {"accuracy": 0.9}
    assert results == {f"validation_{name}": one for name, one in expected.items()}

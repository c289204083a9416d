"""Which of several runs answers held-out photos best."""

from collections.abc import Sequence

from train.common.errors import RunError

_KEYS = ("validation_accuracy", "validation_loss")


def validation_of(result: dict) -> dict[str, float]:
    """Returns accuracy and loss of a run on photos that were held out.

    `result` is that of `train.series.runs.RunSeries`. Raises a `RunError` where no
    photo was held out.
    """
    if missing := [key for key in _KEYS if key not in result]:
        raise RunError(
            f"The report of {result['run']} has no {missing[0]}, by which runs are "
            "chosen: pass a --validation_fraction above 0 and another --run_dir."
        )
    return {key: result[key] for key in _KEYS}


def best_validated(rows: Sequence[dict]) -> dict:
    """Returns the row of the highest validation accuracy.

    If accuracies are equal the lower loss decides, and then the order of the rows.
    """
    return max(
        rows, key=lambda row: (row["validation_accuracy"], -row["validation_loss"])
    )

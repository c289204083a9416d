"""Which of several runs answers held-out photos best."""

from collections.abc import Sequence

# A run has the balanced one where its classes are uneven; then it leads.
BALANCED, PLAIN = "validation_balanced_accuracy", "validation_accuracy"
LOSS = "validation_loss"


def validation_of(result: dict) -> dict[str, float]:
    """Returns what a run measured on photos that were held out, by its results."""
    return {key: result[key] for key in (BALANCED, PLAIN, LOSS) if key in result}


def leading_of(row: dict) -> str:
    """Returns the name of the accuracy by which a row is judged."""
    return PLAIN if row.get(BALANCED) is None else BALANCED


def best_validated(rows: Sequence[dict]) -> dict:
    """Returns the row of the highest validation accuracy, of that which leads.

    If accuracies are equal the lower loss decides, and then the order of the rows.
    """
    name = leading_of(rows[0])
    return max(rows, key=lambda row: (row[name], -row[LOSS]))

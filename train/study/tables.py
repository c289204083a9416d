"""What the tables of the studies have in common."""

from train.reports import markdown

MEASURES = ("test_accuracy", "few_shot_accuracy")


def accuracies(found, header, cells):
    """Returns a table with `cells(row)`, the parameters and the accuracies of each row.

    Args:
        found: dict with `rows` and `shots`.
        header: sequence of str, one per cell.
        cells: function of a row to a sequence.
    """
    header = (*header, "Parameters", "Test accuracy")
    if has_few_shot(found):
        header += (f"{found['shots']}-shot accuracy",)
    return markdown.table(
        header,
        [
            (
                *cells(row),
                f"{row['parameters']:,}",
                *(accuracy_text(row[name]) for name in MEASURES if row[name]),
            )
            for row in found["rows"]
        ],
    )


def has_few_shot(found):
    """Returns whether the few-shot accuracy was measured."""
    return any(row.get("few_shot_accuracy") for row in found["rows"])


def accuracy_text(accuracy):
    """Returns a mean with its deviation, a dict of `train.study.runs.spread`, as text.

    Example:

    >>> accuracy_text({"values": [0.5, 0.52], "mean": 0.51, "deviation": 0.01414})
    '51.00% ± 1.41%'
    """
    text = f"{accuracy['mean']:.2%}"
    if accuracy["deviation"] is not None:
        text += f" ± {accuracy['deviation']:.2%}"
    return text

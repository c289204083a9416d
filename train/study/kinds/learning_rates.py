"""Choice of the learning rate by validation accuracy, then tests with several seeds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from train.common import markdown
from train.common.errors import RunError
from train.recipes import Recipe
from train.reports.figures import BLUE, ORANGE
from train.series import validation
from train.study import accuracies
from train.study.options import Options
from train.study.runs import Point, Runs, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "learning rates"


def measure(recipe: Recipe, options: Options, settings: dict) -> tuple[Runs, dict]:
    """Makes one run per rate, then several of the best."""
    if not recipe.validation_fraction:
        raise RunError(
            "The learning rate is chosen on images of train that are held out, and "
            "the recipe holds none out: pass a --validation_fraction such as 0.1."
        )
    if not recipe.learning_rates:
        raise RunError("There is no learning rate to try: pass --learning_rates.")
    seeds = options.seeds or 3
    runs = Runs(total=len(recipe.learning_rates) + seeds, **settings)
    rows = []
    for rate in recipe.learning_rates:
        label = f"rate-{rate}"
        if result := runs.result(label, recipe.override(learning_rate=rate)):
            facts = {"label": label, "learning_rate": rate, "runs": [label]}
            rows.append(facts | validation.validation_of(result))
    rate = validation.best_validated(rows)["learning_rate"]
    print(f"chosen: learning rate {rate:g}")
    final = recipe.override(learning_rate=rate)
    if not recipe.early_stopping:
        final = final.override(validation_fraction=0.0)
    chosen = measured(runs, [Point(f"chosen-{rate}", final, {})], seeds)
    return runs, {"rows": rows, "learning_rate": rate, "chosen": chosen}


def tables(results: dict) -> Iterator[str]:
    """Yields the rates with their validations, and the tests of the chosen one."""
    rows, rate = results["rows"], results["learning_rate"]
    leading = validation.leading_of(rows[0])
    name = leading.replace("_", " ")
    yield markdown.table(
        ("Learning rate", name.capitalize(), "Validation loss", ""),
        [
            (
                f"{row['learning_rate']:g}",
                f"{row[leading]:.2%}",
                f"{row[validation.LOSS]:.4f}",
                "chosen" if row["learning_rate"] == rate else "",
            )
            for row in rows
        ],
    )
    rates = [row["learning_rate"] for row in rows]
    if len(rates) > 1 and rate in (min(rates), max(rates)):
        yield (
            "The chosen rate is at the end of those tried: one beyond it may be better "
            "(--learning_rates)."
        )
    yield (
        f"Chosen by the {name}, of equal ones by the loss, on images of "
        "train that were held out; the test images had no part in it. Then with the "
        "chosen rate, on all of train unless the runs stop early:"
    )
    tests = [row["test_accuracy"] for row in results["chosen"]]
    yield markdown.table(
        ("Learning rate", "Test accuracy", "Each run"),
        [
            (
                f"{rate:g}",
                accuracies.as_text(test),
                ", ".join(f"{value:.2%}" for value in test["values"]),
            )
            for test in tests
        ],
    )


def draw(figure: "Figure", results: dict) -> None:
    """Plots the accuracies over the rate."""
    axes = figure.subplots()
    rows = sorted(results["rows"], key=lambda row: row["learning_rate"])
    rates = [row["learning_rate"] for row in rows]
    leading = validation.leading_of(rows[0])
    label = f"{leading.replace('_', ' ')}, each rate"
    values = [row[leading] for row in rows]
    axes.semilogx(rates, values, "o-", color=ORANGE, label=label)
    for row in results["chosen"]:
        accuracies.points(
            axes,
            [results["learning_rate"]],
            [row["test_accuracy"]],
            color=BLUE,
            label="test accuracy, the chosen rate",
        )
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.set(xlabel="Learning rate", ylabel="Accuracy")
    accuracies.in_percent(axes.yaxis)
    axes.legend(frameon=False)

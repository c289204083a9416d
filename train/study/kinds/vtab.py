"""The 19 tasks of VTAB-1k and the means of its groups."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from train.common import markdown
from train.common.errors import RunError
from train.data.sources import vtab
from train.recipes import Recipe
from train.study import accuracies
from train.study.options import Options
from train.study.runs import Point, Runs, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "VTAB-1k"


def measure(recipe: Recipe, options: Options, settings: dict) -> tuple[Runs, dict]:
    """Makes one run per task."""
    points = points_of(recipe, options)
    seeds = options.seeds or 1
    runs = Runs(total=len(points) * seeds, skips_missing_data=True, **settings)
    rows = measured(runs, points, seeds)
    if not rows:
        raise RunError(
            "No task of VTAB has its data here. " + next(iter(runs.failed.values()))
        )
    done = {row["task"]: row["test_accuracy"]["mean"] for row in rows}
    by_group = {
        group: [done[task] for task in tasks if task in done]
        for group, tasks in {**vtab.GROUPS, "mean": tuple(vtab.TASKS)}.items()
    }
    less = (recipe.train_examples, recipe.test_examples, recipe.validation_fraction)
    return runs, {
        "rows": rows,
        "means": {group: float(np.mean(own)) for group, own in by_group.items() if own},
        "tasks": {group: len(own) for group, own in by_group.items()},
        "is_benchmark": len(rows) == len(vtab.TASKS)
        and not (options.smoke or any(less)),
    }


def points_of(recipe: Recipe, options: Options) -> list[Point]:
    """Returns the points, one per task.

    With --smoke the recipe may be for any data, which then replace those of each task.
    """
    if recipe.dataset != "vtab" and not options.smoke:
        raise RunError(
            f"The study of VTAB cannot use --dataset={recipe.dataset}: pass "
            "--dataset=vtab."
        )
    tasks = options.tasks or tuple(vtab.TASKS)
    if options.smoke and not options.tasks:
        tasks = tuple(tasks[0] for tasks in vtab.GROUPS.values())
    points = []
    for task in dict.fromkeys(tasks):
        own = f"vtab/{task}" if recipe.dataset == "vtab" else recipe.dataset
        facts = {"task": task, "group": vtab.TASKS[task]["group"]}
        points.append(Point(task, recipe.override(dataset=own), facts))
    return points


def tables(results: dict) -> Iterator[str]:
    """Yields the accuracies by task and the means by group."""
    yield markdown.table(
        ("Task", "Group", "Test accuracy"),
        [
            (row["task"], row["group"], accuracies.as_text(row["test_accuracy"]))
            for row in results["rows"]
        ],
    )
    yield markdown.table(
        ("Mean", "Tasks", "Test accuracy"),
        [
            (
                "all tasks" if group == "mean" else group,
                results["tasks"][group],
                f"{mean:.2%}",
            )
            for group, mean in results["means"].items()
        ],
    )
    if not results["is_benchmark"]:
        yield markdown.Block(
            "**This is not the benchmark's mean**, which is of all its 19 tasks, each "
            "learned from its 1,000 examples and tested on all test images."
        )


def draw(figure: "Figure", results: dict) -> None:
    """Plots the accuracies by task, with a color per group."""
    rows = results["rows"]
    figure.set_figheight(2 + 0.3 * len(rows))
    axes = figure.subplots()
    groups = list(dict.fromkeys(row["group"] for row in rows))
    places = range(len(rows))
    axes.barh(
        places,
        [row["test_accuracy"]["mean"] for row in rows],
        xerr=[row["test_accuracy"]["deviation"] or 0 for row in rows],
        color=[accuracies.COLORS[groups.index(row["group"])] for row in rows],
    )
    axes.set_yticks(places, [row["task"] for row in rows])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="Test accuracy")
    accuracies.in_percent(axes.xaxis)
    means = (f"{group} {mean:.1%}" for group, mean in results["means"].items())
    axes.set_title(", ".join(means), fontsize=10)

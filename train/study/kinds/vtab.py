"""The 19 tasks of VTAB-1k and the means of its groups."""

import numpy as np

from train.common.errors import RunError
from train.data.sources import vtab
from train.reports import markdown
from train.study import accuracies
from train.study.points import Point, check_known
from train.study.runs import Runs, measured

TITLE = "VTAB-1k"
FROM_SCRATCH = False


def measure(recipe, options, settings):
    """Makes one run per task."""
    points = points_of(recipe, options)
    seeds = options.seeds or 1
    runs = Runs(total=len(points) * seeds, skips_missing_data=True, **settings)
    rows = measured(runs, points, seeds)
    if not rows:
        raise RunError(
            "No task of VTAB has its data here. " + next(iter(runs.failed.values()))
        )
    means, counts = group_means(
        {row["task"]: row["test_accuracy"]["mean"] for row in rows}
    )
    is_benchmark = len(rows) == len(vtab.TASKS) and not (
        options.smoke
        or recipe.train_examples
        or recipe.test_examples
        or recipe.validation_fraction
    )
    return runs, {
        "rows": rows,
        "means": means,
        "tasks": counts,
        "is_benchmark": is_benchmark,
    }


def points_of(recipe, options):
    """Returns the points, one per task.

    With --smoke the recipe may be for any data, which then replace those of each task.
    """
    if recipe.dataset != "vtab" and not options.smoke:
        raise RunError(
            f"The study of VTAB cannot use --dataset={recipe.dataset}: pass "
            "--dataset=vtab."
        )
    check_known("task", options.tasks, vtab.TASKS)
    tasks = options.tasks or tuple(vtab.TASKS)
    if options.smoke and not options.tasks:
        tasks = tuple(tasks[0] for tasks in vtab.GROUPS.values())
    points = []
    for task in dict.fromkeys(tasks):
        own = f"vtab/{task}" if recipe.dataset == "vtab" else recipe.dataset
        facts = {"task": task, "group": vtab.TASKS[task].group}
        points.append(Point(task, recipe.override(dataset=own), facts))
    return points


def group_means(accuracies):
    """Returns mean accuracies and numbers of tasks by group of VTAB, and of all."""
    done = {
        group: [accuracies[task] for task in tasks if task in accuracies]
        for group, tasks in {**vtab.GROUPS, "mean": tuple(vtab.TASKS)}.items()
    }
    means = {group: float(np.mean(done[group])) for group in done if done[group]}
    return means, {group: len(values) for group, values in done.items()}


def tables(found):
    """Yields the accuracies by task and the means by group."""
    yield markdown.table(
        ("Task", "Group", "Test accuracy"),
        [
            (row["task"], row["group"], accuracies.as_text(row["test_accuracy"]))
            for row in found["rows"]
        ],
    )
    yield markdown.table(
        ("Mean", "Tasks", "Test accuracy"),
        [
            (
                "all tasks" if group == "mean" else group,
                found["tasks"][group],
                f"{mean:.2%}",
            )
            for group, mean in found["means"].items()
        ],
    )
    if not found["is_benchmark"]:
        yield markdown.Block(
            "**This is not the benchmark's mean**, which is of all its 19 tasks, each "
            "learned from its 1,000 examples and tested on all test images."
        )


def draw(figure, found):
    """Plots the accuracies by task, with a color per group."""
    rows = found["rows"]
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
    means = (f"{group} {mean:.1%}" for group, mean in found["means"].items())
    axes.set_title(", ".join(means), fontsize=10)
    return [axes]

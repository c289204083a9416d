"""Figures of numbers: answers over the truth."""

from pathlib import Path

import numpy as np

from train.reports.figures import BLUE, ORANGE, new_figure, save, style_axes
from zoo.common.safe_text import shorten

ANSWERS = "answers.png"
# Points of more photos would hide each other.
_OPAQUE = 200


def draw_answers(
    path: Path, answers: np.ndarray, truth: np.ndarray, name: str = "number"
) -> None:
    """Plots answers over the truth, both floats (photos,), beside the line of equality.

    `name` is what the numbers are, for the labels of the axes.
    """
    answers, truth = np.ravel(answers), np.ravel(truth)
    figure = new_figure(5.5, 5.5)
    axes = figure.subplots()
    ends = [min(truth.min(), answers.min()), max(truth.max(), answers.max())]
    margin = 0.05 * (ends[1] - ends[0]) or 0.05 * abs(ends[0]) or 1.0
    ends = [ends[0] - margin, ends[1] + margin]
    axes.plot(ends, ends, "--", color=ORANGE, linewidth=0.8, label="right answers")
    opacity = min(0.8, max(0.05, _OPAQUE / len(truth)))
    axes.scatter(truth, answers, s=12, color=BLUE, alpha=opacity, linewidths=0)
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    label = shorten(name, 40)
    axes.set_xlabel(f"True {label}", parse_math=False)
    axes.set_ylabel(f"Answered {label}", parse_math=False)
    axes.legend(frameon=False, loc="upper left")
    style_axes((axes,), grid=True)
    save(figure, path)

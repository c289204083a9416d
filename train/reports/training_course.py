"""How a training went, from its losses: enough, too short, too long, diverged."""

from dataclasses import dataclass

import numpy as np

from train.engine.metric_log import MetricLog

DIVERGED, TOO_LONG, TOO_SHORT = "diverged", "too long", "too short"
# The losses of training are compared as the means of so many parts of equal length.
_PARTS = 10
# Fewer steps than this say nothing.
_LEAST_STEPS = 4 * _PARTS
# A mean of losses has changed when the difference is this many standard errors.
_ERRORS = 3
# A loss of validation has changed when it differs by this share.
_CHANGE = 0.05
# A training is too short if it still improves after this share of its steps.
_LATE = 3 / 4
# A loss that ends so many times above that of the first step has diverged, however few
# steps there are.
_EXPLODED = 3


@dataclass(frozen=True)
class Course:
    """What was wrong with the length of a training, and where it shows.

    Attributes:
        fault: `DIVERGED`, `TOO_LONG`, `TOO_SHORT`, or None where nothing is wrong.
        is_validation: whether the losses are those of validation.
        step: the step of `then`, when the loss was lowest; if the training was too
            short, one at three quarters of it.
        last_step: the last step.
        then, now: the losses after both.
        accuracy_then, accuracy_now: the accuracies after both.
        of_training: the accuracy on the training's own images in the last tenth of its
            steps, None where it had too few.
    """

    fault: str | None = None
    is_validation: bool = False
    step: int = 0
    last_step: int = 0
    then: float = 0.0
    now: float = 0.0
    accuracy_then: float = 0.0
    accuracy_now: float = 0.0
    of_training: float | None = None


def course_of(log: MetricLog) -> Course:
    """Judges the training that a log is of.

    It diverged if the training loss ends above its lowest by more than half of what it
    had fallen, or if a loss ends at three times that of the first step. It was too long
    if the validation loss ends 5% or more above its lowest; too short if it ends at its
    lowest, and fell by 5% or more, with a better accuracy, in the last quarter of the
    steps. Without validation the training loss stands for it, and nothing shows that a
    training was too long.

    Example:
        >>> import tempfile, pathlib
        >>> log = MetricLog(pathlib.Path(tempfile.mkdtemp()) / "metrics.jsonl")
        >>> for step, loss in ((100, 0.9), (200, 0.5), (300, 0.8)):
        ...     log.append(step, val_loss=loss, val_accuracy=0.8)
        >>> course_of(log).fault
        'too long'
    """
    training = _Training(log)
    if training.has_diverged():
        return training.course(DIVERGED, training.lowest)
    if exploded := _exploded(log):
        return exploded
    steps, losses = log.series("val_loss")
    if not len(steps):
        if training.still_improves():
            return training.course(TOO_SHORT, training.late)
        return Course(of_training=training.at_end)
    _, accuracies = log.series("val_accuracy")

    def course(fault: str, place: int) -> Course:
        return Course(
            fault=fault,
            of_training=training.at_end,
            is_validation=True,
            step=int(steps[place]),
            last_step=int(steps[-1]),
            then=float(losses[place]),
            now=float(losses[-1]),
            accuracy_then=float(accuracies[place]),
            accuracy_now=float(accuracies[-1]),
        )

    lowest = int(np.argmin(losses))
    if losses[-1] > (1 + _CHANGE) * losses[lowest]:
        return course(TOO_LONG, lowest)
    late = int(np.searchsorted(steps, _LATE * steps[-1], side="right")) - 1
    is_better = late >= 0 and accuracies[-1] > accuracies[late]
    if is_better and losses[-1] < (1 - _CHANGE) * losses[late]:
        return course(TOO_SHORT, late)
    return Course(of_training=training.at_end)


def _exploded(log):
    """Returns the `Course` of a training whose last loss is far above its first."""
    steps, losses = log.series("loss")
    last_steps, last = log.series("val_loss")
    is_validation = bool(len(last))
    if not is_validation:
        last_steps, last = steps, losses
    # A head that fits already starts with hardly any loss.
    if not len(losses) or last[-1] <= _EXPLODED * max(losses[0], 1.0):
        return None
    return Course(
        fault=DIVERGED,
        is_validation=is_validation,
        step=int(steps[0]),
        last_step=int(last_steps[-1]),
        then=float(losses[0]),
        now=float(last[-1]),
    )


class _Training:
    """The losses of training as means of ten parts, with their standard errors."""

    def __init__(self, log):
        self.steps, losses = log.series("loss")
        self.is_known = len(losses) >= _LEAST_STEPS
        self.at_end = None
        if not self.is_known:
            return
        parts = np.array_split(losses, _PARTS)
        self.ends = self.steps[np.cumsum([len(part) for part in parts]) - 1]
        self.means = np.array([part.mean() for part in parts])
        self.errors = np.array([part.std() / np.sqrt(len(part)) for part in parts])
        self.lowest = int(np.argmin(self.means))
        self.late = int(_LATE * _PARTS) - 1
        _, accuracies = log.series("accuracy")
        parts = np.array_split(accuracies, _PARTS)
        self.accuracies = [part.mean() if len(part) else 0.0 for part in parts]
        self.at_end = float(self.accuracies[-1]) if len(accuracies) else None

    def _changed(self, place):
        """Returns how much more the loss is at the end than in a part, if it is sure.

        Less is negative; a difference that may be chance is 0.
        """
        change = self.means[-1] - self.means[place]
        error = np.hypot(self.errors[-1], self.errors[place])
        return change if abs(change) > _ERRORS * error else 0.0

    def has_diverged(self):
        if not self.is_known:
            return False
        fallen = self.means[0] - self.means[self.lowest]
        return self._changed(self.lowest) > fallen / 2

    def still_improves(self):
        if not self.is_known:
            return False
        is_better = self.accuracies[-1] > self.accuracies[self.late]
        return is_better and self._changed(self.late) < -_CHANGE * self.means[self.late]

    def course(self, fault, place):
        return Course(
            fault=fault,
            step=int(self.ends[place]),
            last_step=int(self.steps[-1]),
            then=float(self.means[place]),
            now=float(self.means[-1]),
            accuracy_then=float(self.accuracies[place]),
            accuracy_now=float(self.accuracies[-1]),
            of_training=self.at_end,
        )

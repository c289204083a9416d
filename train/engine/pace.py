"""Training for a time: the schedule of the learning rate follows the clock."""

import math
from collections.abc import Callable

import keras

# From this share of the time on the steps so far tell how many more fit.
_TELLING = 0.02


class Pace:
    """Brings the schedule of a training to its end when its time is over.

    At every few steps the schedule moves, on or back, to the share of its steps that
    the clock says, which changes neither weights nor the order of images. What an
    optimizer corrects by the number of steps, as Adam its first ones, goes by those of
    the schedule. A training that goes on after a kill begins where the schedule was.

    Args:
        seconds_left: function that returns how many seconds the training still has; it
            may change its mind.
        steps: int, those of the schedule. A faster machine takes more, a slower one
            less.
        every: int, after how many steps the clock is read.

    Attributes:
        taken: int, the steps that were taken since the beginning or the kill.
        steps_left: int, about how many more fit; None while nothing is known.
    """

    def __init__(self, seconds_left: Callable[[], float], steps: int, every: int):
        self.seconds_left = seconds_left
        self.steps = steps
        self.every = every
        self.taken = 0
        self.steps_left: int | None = None
        self._place: int | None = None
        self._begun: tuple[int, float] | None = None

    def is_over(self, optimizer: keras.optimizers.Optimizer) -> bool:
        """Returns whether the schedule of an optimizer is at its end."""
        return int(optimizer.iterations) >= self.steps

    def keep(self, optimizer: keras.optimizers.Optimizer) -> bool:
        """Moves the schedule after some steps; returns whether it is at its end."""
        taken = int(optimizer.iterations)
        self.taken += 0 if self._place is None else taken - self._place
        left = self.seconds_left()
        if self._begun is None:
            # The first steps compile, which is no progress.
            self._begun = taken, max(left, 0.0)
        first, whole = self._begun
        share = max(1.0 - left / whole, 0.0) if min(left, whole) > 0.0 else 1.0
        if share > _TELLING:
            self.steps_left = round(self.taken * (1.0 - share) / share)
        self._place = first + math.floor(share * (self.steps - first))
        optimizer.iterations.assign(self._place)
        return self.is_over(optimizer)

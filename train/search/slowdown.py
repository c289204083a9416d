"""How much slower a machine has become while a network is trained."""

import numpy as np

# The first steps show how fast the machine was, the last ones how fast it is. Among
# so many looks at the clock a validation or a checkpoint is not what is usual.
_LOOKS = 5


class Slowdown:
    """The factor by which steps take longer than the first ones did.

    Attributes:
        factor: float, at least 1.
    """

    def __init__(self):
        self.factor = 1.0
        self._rates: list[float] = []
        self._before: tuple[float, int] | None = None

    def look(self, now: float, steps: int) -> None:
        """Notes that so many steps were taken at a time in seconds."""
        if self._before is not None and steps > self._before[1]:
            self._rates.append((now - self._before[0]) / (steps - self._before[1]))
        self._before = now, steps
        if len(self._rates) > _LOOKS:
            first, last = self._rates[:_LOOKS], self._rates[-_LOOKS:]
            slower = np.median(last) / max(np.median(first), 1e-6)
            self.factor = max(float(slower), 1.0)

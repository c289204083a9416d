"""Learning-rate schedules of the released code."""

import math
from typing import Any

import keras
from keras import ops


class _Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from zero times a decay, which begins when that is over.

    `decay` returns the rate without warm-up at a progress of 0 to 1.
    """

    def __init__(self, learning_rate, steps, warmup_steps=0):
        if not 0 <= warmup_steps < steps:
            raise ValueError(
                f"warmup_steps={warmup_steps} must be at least 0 and less than "
                f"steps={steps}."
            )
        if not 0 <= learning_rate < math.inf:
            raise ValueError(
                f"learning_rate must be finite and not negative, got {learning_rate}."
            )
        self.learning_rate = learning_rate
        self.steps = steps
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        progress = (step - self.warmup_steps) / (self.steps - self.warmup_steps)
        rate = self.decay(ops.clip(progress, 0.0, 1.0))
        if self.warmup_steps:
            rate = rate * ops.minimum(1.0, step / self.warmup_steps)
        return rate

    def get_config(self) -> dict:
        names = ("learning_rate", "steps", "warmup_steps")
        return {name: getattr(self, name) for name in names}


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupCosine(_Warmup):
    """Linear warm-up from zero, then half a cosine down to zero.

    Raises a `ValueError` where the warm-up is as long as the run, or a number is
    negative or not finite.

    Source:
        Paper table 4; the first update of the released code has rate zero too.

    Example:
        >>> round(float(WarmupCosine(0.03, steps=500, warmup_steps=100)(50)), 6)
        0.015
    """

    def decay(self, progress: keras.KerasTensor) -> Any:
        return self.learning_rate * 0.5 * (1.0 + ops.cos(math.pi * progress))


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupLinear(_Warmup):
    """Linear warm-up from zero, then a line down to `end`, nearly zero.

    Source:
        Paper table 3; the last rate is that of the released code.

    Example:
        >>> schedule = WarmupLinear(1e-3, steps=500, warmup_steps=100)
        >>> round(float(schedule(50)), 6), round(float(schedule(500)), 6)
        (0.0005, 1e-05)
    """

    def __init__(self, learning_rate, steps, warmup_steps=0, end=1e-5):
        super().__init__(learning_rate, steps, warmup_steps)
        self.end = end

    def decay(self, progress: keras.KerasTensor) -> Any:
        return self.end + (self.learning_rate - self.end) * (1.0 - progress)

    def get_config(self) -> dict:
        return {**super().get_config(), "end": self.end}


@keras.saving.register_keras_serializable(package="keras_vit")
class ExponentialRise(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that rises from `low` by the same factor each step, up to `high`.

    Source:
        arXiv 1506.01186, section 3.3, where the rate rises linearly.

    Example:
        >>> [round(float(ExponentialRise(0.01, 1.0, steps=3)(n)), 6) for n in range(3)]
        [0.01, 0.1, 1.0]
    """

    def __init__(self, low, high, steps):
        self.low, self.high, self.steps = low, high, steps

    def __call__(self, step):
        share = ops.cast(step, "float32") / (self.steps - 1)
        return self.low * ops.exp(share * math.log(self.high / self.low))

    def get_config(self) -> dict:
        return {name: getattr(self, name) for name in ("low", "high", "steps")}

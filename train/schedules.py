"""Learning-rate schedules of the released code."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from zero, then half a cosine down to zero.

    Args:
        learning_rate: float, the highest.
        steps: int, of the whole run.
        warmup_steps: int, fewer than `steps`.

    Raises:
        ValueError: the warm-up is as long as the run, or a number is negative.

    Source:
        Paper table 4; the first update of the released code has rate zero too.

    Example:

    >>> round(float(WarmupCosine(0.03, steps=500, warmup_steps=100)(50)), 6)
    0.015
    """

    def __init__(self, learning_rate, steps, warmup_steps=0):
        if not 0 <= warmup_steps < steps:
            raise ValueError(
                f"warmup_steps={warmup_steps} must be at least 0 and less than "
                f"steps={steps}."
            )
        self.learning_rate = learning_rate
        self.steps = steps
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        progress = (step - self.warmup_steps) / (self.steps - self.warmup_steps)
        progress = ops.clip(progress, 0.0, 1.0)
        rate = self.learning_rate * 0.5 * (1.0 + ops.cos(math.pi * progress))
        if self.warmup_steps:
            rate = rate * ops.minimum(1.0, step / self.warmup_steps)
        return rate

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
        }

"""Loss scaling for float16."""

from typing import Any

import keras
from keras import ops


class LossScale:
    """A factor of the loss that keeps float16 gradients from underflow.

    It doubles after 2,000 steps without overflow, and halves at every overflow.

    Source:
        Mixed Precision Training, arXiv 1710.03740, section 3.2.
    """

    def __init__(self):
        self.scale = keras.Variable(2.0**15, trainable=False, name="loss_scale")
        self.good_steps = keras.Variable(
            0, trainable=False, dtype="int32", name="good_steps"
        )

        self.variables = [self.scale, self.good_steps]

    def scaled(self, loss) -> Any:
        """Returns the loss whose gradients are computed."""
        return loss * self.scale.value

    def unscaled(self, gradients) -> list:
        """Returns the gradients of the loss itself."""
        factor = 1.0 / self.scale.value
        return [gradient * factor for gradient in gradients]

    def update(self, is_finite) -> None:
        """Updates the scale after a step, by whether its gradients are finite."""
        good_steps = ops.where(is_finite, self.good_steps + 1, 0)
        grows = good_steps >= 2_000
        factor = ops.where(is_finite, ops.where(grows, 2.0, 1.0), 0.5)
        self.scale.assign(self.scale * factor)
        self.good_steps.assign(ops.where(grows, 0, good_steps))

"""Stochastic depth."""

import keras
from keras import ops

from keras_vit.layers.base import Tensor
from keras_vit.layers.remat import Dropout


@keras.saving.register_keras_serializable(package="keras_vit")
class StochasticDepth(Dropout):
    """Drops a residual branch for some of the examples of a training batch.

    What is kept is scaled by 1 / (1 - rate), so that nothing needs to change when the
    model is used.

    Args:
        rate: float in [0, 1), the probability that an example's branch is dropped.
        seed: int or None.

    Call arguments:
        branch: float tensor (batch, ...).
        training: bool, whether anything is dropped.

    Returns:
        Float tensor of the same shape.

    Raises:
        ValueError: `rate` is outside [0, 1).

    Source:
        AugReg paper section 3.2 (arXiv 2106.10270); Huang et al., arXiv 1603.09382.

    Example:
        >>> drop = StochasticDepth(0.1)
        >>> tuple(drop(keras.ops.ones((2, 7, 192)), training=True).shape)
        (2, 7, 192)
    """

    def call(self, branch: Tensor, training: bool | None = None) -> Tensor:
        return super().call(branch, training)

    def dropped(self, branch: Tensor) -> Tensor:
        shape = (ops.shape(branch)[0],) + (1,) * (len(branch.shape) - 1)
        uniform = keras.random.uniform(shape, seed=self.seed_generator)
        kept = ops.cast(uniform >= self.rate, branch.dtype)
        return branch * kept / (1.0 - self.rate)

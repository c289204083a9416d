"""Optimizers as the released code has them."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class MomentumSGD(keras.optimizers.Optimizer):
    """Stochastic gradient descent with the released momentum rule.

    The velocity gathers gradients, v = momentum v + g, and the rate of the step
    scales it, w = w - rate v. `keras.optimizers.SGD` gathers rate times gradient,
    which differs as soon as the rate changes.

    Args:
        learning_rate: float or schedule.
        momentum: float.
        name: str.
        **kwargs: the other arguments of `keras.optimizers.Optimizer`.

    Source:
        Paper section 4.1; `optax.sgd` as the released code calls it.

    Example:

    >>> MomentumSGD(0.03).momentum
    0.9
    """

    def __init__(self, learning_rate, momentum=0.9, name="momentum_sgd", **kwargs):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.momentum = momentum

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.velocities = [
            self.add_variable_from_reference(variable, name="velocity")
            for variable in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        velocity = self.velocities[self._get_variable_index(variable)]
        rate = ops.cast(learning_rate, variable.dtype)
        if keras.backend.backend() == "tensorflow":
            _fused_update(variable, velocity, gradient, rate, self.momentum)
            return
        self.assign(
            velocity,
            ops.add(ops.multiply(velocity, self.momentum), gradient),
        )
        self.assign_sub(variable, ops.multiply(velocity, rate))

    def get_config(self):
        return {**super().get_config(), "momentum": self.momentum}


def _fused_update(variable, velocity, gradient, rate, momentum):
    """The same rule in one pass over memory.

    As separate operations TensorFlow runs each of them for all variables before the
    next, and holds three more copies of the model at the peak.
    """
    import tensorflow as tf

    tf.raw_ops.ResourceApplyMomentum(
        var=variable.handle,
        accum=velocity.value.handle,
        lr=rate,
        grad=tf.cast(gradient, variable.dtype),
        momentum=tf.cast(momentum, variable.dtype),
    )

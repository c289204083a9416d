"""SGD with momentum and Adam with the update rules of the released code.

Keras's SGD scales the velocity by the rate, which differs under a schedule. Its AdamW
adds epsilon to another root, decays all variables but those excluded by name, and
keeps no bfloat16 moments; its variables have other names in checkpoints.
"""

import math

import keras
import numpy as np
from keras import ops


class _Optimizer(keras.optimizers.Optimizer):
    """An optimizer with a mean of gradients that may be kept in bfloat16.

    `arguments` are those beside Keras's, which are attributes too.
    """

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in self.arguments},
        }

    def _add_means(self, variables, name):
        """Adds variables of zeros, in the dtype of the momentum."""
        return [
            self.add_variable(
                variable.shape,
                dtype=self.momentum_dtype or variable.dtype,
                name=f"{variable.path.replace('/', '_')}_{name}",
                layout=getattr(variable, "_layout", None),
            )
            for variable in variables
        ]


@keras.saving.register_keras_serializable(package="keras_vit")
class MomentumSGD(_Optimizer):
    """Stochastic gradient descent with the released momentum rule.

    The velocity gathers gradients, v = momentum v + g, and the rate of the step
    scales it, w = w - rate v. `keras.optimizers.SGD` gathers rate times gradient,
    which differs as soon as the rate changes.

    With `momentum_dtype="bfloat16"`, as in the released code, the velocity takes half
    the memory: it is multiplied there, by 0.8984 for 0.9, then moves the weights in the
    variables' own dtype. `kwargs` are those of `keras.optimizers.Optimizer`.

    Source:
        Paper section 4.1; `optax.sgd` as the released code calls it.

    Example:
        >>> MomentumSGD(0.03).momentum
        0.9
    """

    arguments = ("momentum", "momentum_dtype")

    def __init__(
        self,
        learning_rate,
        momentum=0.9,
        momentum_dtype=None,
        name="momentum_sgd",
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.momentum = momentum
        self.momentum_dtype = momentum_dtype

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.velocities = self._add_means(variables, "velocity")

    def update_step(
        self,
        gradient: keras.KerasTensor,
        variable: keras.Variable,
        learning_rate: keras.KerasTensor,
    ) -> None:
        velocity = self.velocities[self._get_variable_index(variable)]
        rate = ops.cast(learning_rate, variable.dtype)
        if _has_fused_update(variable, velocity):
            import tensorflow as tf

            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.value.handle,
                lr=rate,
                grad=tf.cast(gradient, variable.dtype),
                momentum=tf.cast(self.momentum, variable.dtype),
            )
            return
        moved = _fade(velocity, self.momentum, variable.dtype) + gradient
        self.assign(velocity, ops.cast(moved, velocity.dtype))
        self.assign_sub(variable, rate * moved)


@keras.saving.register_keras_serializable(package="keras_vit")
class Adam(_Optimizer):
    """Adam with decoupled weight decay of the kernels, as in pre-training.

    The decay is multiplied by the rate of the step, w = w - rate decay w, and takes
    every variable named `kernel`, in `update_step` already: those of the patch
    embedding, the attention, the MLPs, `pre_logits`, the head, and the convolutions of
    hybrids. Biases, norms, the class token and the position embedding keep their size.

    `beta_1` is the decay of the mean of gradients, of dtype `momentum_dtype`, `beta_2`
    that of the mean of their squares, to the root of which `epsilon` is added;
    `kernel_decay` is the weight decay that the paper gives.

    Source:
        Paper table 3; How to train your ViT?, section 3.2; `optax.scale_by_adam` and
        the decay of `.*/kernel$` in big_vision, `optax.py`. That scales the decay by
        the schedule without its highest rate: 1e-4 there is 0.1 here at 1e-3.

    Example:
        >>> Adam(1e-3, kernel_decay=0.1, momentum_dtype="bfloat16").beta_2
        0.999
    """

    arguments = ("beta_1", "beta_2", "epsilon", "kernel_decay", "momentum_dtype")

    def __init__(
        self,
        learning_rate,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-8,
        kernel_decay=0.0,
        momentum_dtype=None,
        name="adam",
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.kernel_decay = kernel_decay
        self.momentum_dtype = momentum_dtype

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.means = self._add_means(variables, "mean")
        self.squares = [
            self.add_variable_from_reference(variable, name="square")
            for variable in variables
        ]
        self.is_kernel = [
            variable.path.rpartition("/")[2] == "kernel" for variable in variables
        ]

    def update_step(
        self,
        gradient: keras.KerasTensor,
        variable: keras.Variable,
        learning_rate: keras.KerasTensor,
    ) -> None:
        index = self._get_variable_index(variable)
        mean, square = self.means[index], self.squares[index]
        dtype = variable.dtype
        # Round as float32 does everywhere: 1 - beta_2 is 5e-5 off the exact value.
        beta_1, beta_2 = (float(np.float32(b)) for b in (self.beta_1, self.beta_2))
        # Means start at zero: divide by what constant gradients of one would give.
        step = ops.cast(self.iterations + 1, dtype)
        full_mean = -ops.expm1(step * math.log(beta_1))
        full_root = ops.sqrt(-ops.expm1(step * math.log(beta_2)))
        learning_rate = ops.cast(learning_rate, dtype)
        if self.kernel_decay and self.is_kernel[index]:
            self.assign_sub(variable, learning_rate * self.kernel_decay * variable)
        rate = learning_rate * full_root / full_mean
        epsilon = self.epsilon * full_root
        if _has_fused_update(variable, mean):
            import tensorflow as tf

            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=mean.value.handle,
                v=square.value.handle,
                # The rate already contains the bias correction.
                beta1_power=tf.zeros((), dtype),
                beta2_power=tf.zeros((), dtype),
                lr=rate,
                beta1=tf.cast(beta_1, dtype),
                beta2=tf.cast(beta_2, dtype),
                epsilon=epsilon,
                grad=tf.cast(gradient, dtype),
            )
            return
        moved = _fade(mean, beta_1, dtype) + (1.0 - beta_1) * gradient
        spread = square + (ops.square(gradient) - square) * (1.0 - beta_2)
        self.assign(mean, ops.cast(moved, mean.dtype))
        self.assign(square, spread)
        self.assign_sub(variable, rate * moved / (ops.sqrt(spread) + epsilon))


def _fade(mean, factor, dtype):
    """Multiplies a mean in its own dtype, as optax does."""
    return ops.cast(mean * ops.cast(factor, mean.dtype), dtype)


def _has_fused_update(variable, mean):
    """Returns whether one TensorFlow operation can do the update in one pass.

    TensorFlow runs each of several operations for all variables before the next one,
    and holds more copies of the model at the peak.
    """
    same_dtype = keras.backend.standardize_dtype(variable.dtype) == mean.dtype
    return keras.backend.backend() == "tensorflow" and same_dtype

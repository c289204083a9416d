"""The two-layer perceptron of a transformer block."""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Composite, Shape, Tensor
from keras_vit.layers.initial_values import initializer
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.own_gradient import own_gradient
from keras_vit.layers.remat import Dropout

# 0.5 (1 + tanh(z)) is sigmoid(2 z), with z = sqrt(2 / pi) (x + 0.044715 x^3).
_LINEAR = 2.0 * math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715 * _LINEAR


def gelu(x: Tensor, training: bool | None = False) -> Tensor:
    """Returns the tanh form of GELU, as in `flax.linen.gelu` and the released models.

    In training it has a gradient of its own on TensorFlow: that of the library keeps
    more tensors of the size of `x`, the largest of a transformer, than the slope.
    """
    if training and keras.backend.backend() == "tensorflow":
        return _lean_gelu(x)
    # TensorFlow's optimiser sorts operands by name, and finds a GELU to fuse with the
    # product before it only if this name comes after that layer's, "expand".
    with keras.name_scope("gelu"):
        return ops.gelu(x, approximate=True)


@own_gradient
def _lean_gelu(x):
    import tensorflow as tf

    # In float16 the cube of larger numbers overflows; the gate is 0 or 1 before that.
    bounded = tf.clip_by_value(x, -16.0, 16.0) if x.dtype == tf.float16 else x
    # Few passes over memory take the time: each line here is one or two.
    linear = _LINEAR * bounded
    cubic = bounded * (_CUBIC * ops.square(bounded))
    z = linear + cubic
    gate = ops.sigmoid(z)
    # x times the slope of z, 3 cubic + linear, times that of the sigmoid. Not by one
    # sum of three, see `SelfAttention`.
    turn = tf.raw_ops.SigmoidGrad(y=gate, dy=z + 2.0 * cubic)
    slope = gate + turn
    return x * gate, lambda upstream: upstream * slope


def _swiglu(x, training):
    gate, value = ops.split(x, 2, axis=-1)
    return ops.silu(gate) * value


# The second is the exact one, as in `torch.nn.GELU`, timm and transformers.
ACTIVATIONS = {
    "gelu_tanh": gelu,
    "gelu": lambda x, training: ops.gelu(x, approximate=False),
    "quick_gelu": lambda x, training: x * ops.sigmoid(1.702 * x),
    "swiglu": _swiglu,
}


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(Composite):
    """Two dense layers with a GELU between them, applied to each token.

    Args:
        mlp_dim: int, the size of the hidden layer.
        dropout_rate: float in [0, 1), after each of the two layers.
        activation: `"gelu_tanh"` as released, `"gelu"` for the exact one, or
            `"quick_gelu"`, x times the sigmoid of 1.702 x. With `"swiglu"` the first
            layer gives `2 * mlp_dim` numbers, and the SiLU of the first half is
            multiplied by the second.
        norm_epsilon: None, or the epsilon of a layer norm of the hidden numbers.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).
        training: bool, whether dropout is on.

    Returns:
        Float tensor of the same shape.

    Raises:
        ValueError: `activation` is none of these.

    Source:
        Paper section 3.1, equation 3; `MlpBlock_3` in the released files. Quick GELU:
        the released CLIP; SwiGLU: Shazeer, arXiv 2002.05202; the norm: EVA-02, Fang
        et al., arXiv 2303.11331, section 2.2.

    Example:
        >>> tuple(MLP(mlp_dim=768)(keras.random.normal((2, 7, 192))).shape)
        (2, 7, 192)
    """

    parts = ("expand", "norm", "project")

    def __init__(
        self,
        mlp_dim: int,
        dropout_rate: float = 0.0,
        activation: str = "gelu_tanh",
        norm_epsilon: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"{self.name}: activation must be one of {', '.join(ACTIVATIONS)}, got "
                f"{activation!r}."
            )
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.activation = activation
        self.norm = None
        if norm_epsilon is not None:
            norm_epsilon = self._positive("norm_epsilon", norm_epsilon)
        self.norm_epsilon = norm_epsilon

    def build(self, tokens_shape: Shape) -> None:
        hidden_size = tokens_shape[-1]
        expanded = self.mlp_dim * (2 if self.activation == "swiglu" else 1)
        for name, units, inputs in (
            ("expand", expanded, hidden_size),
            ("project", hidden_size, self.mlp_dim),
        ):
            self.add_part(
                keras.layers.Dense,
                name,
                units,
                input_shape=(None, inputs),
                kernel_initializer=initializer("glorot_uniform"),
                bias_initializer=initializer(
                    keras.initializers.RandomNormal(stddev=1e-6)
                ),
            )
        if self.norm_epsilon is not None:
            shape = (None, self.mlp_dim)
            self.add_part(LayerNorm, "norm", self.norm_epsilon, input_shape=shape)
        self.add_part(Dropout, "dropout", self.dropout_rate)
        self.settle()

    def call(self, tokens: Tensor, training: bool | None = None) -> Tensor:
        shape = ops.shape(tokens)
        tokens = ops.reshape(tokens, (-1, tokens.shape[-1]))
        hidden = ACTIVATIONS[self.activation](self.expand(tokens), training)
        hidden = self.dropout(hidden, training=training)
        if self.norm is not None:
            hidden = self.norm(hidden, training=training)
        output = self.dropout(self.project(hidden), training=training)
        return ops.reshape(output, shape)

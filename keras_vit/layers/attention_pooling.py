"""Pooling by attention."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Composite, Shape, Tensor, check_heads
from keras_vit.layers.forward_pass import forward_pass
from keras_vit.layers.initial_values import initializer
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class AttentionPooling(Composite):
    """Makes one vector of a sequence of tokens: what a learned query attends to.

    A perceptron after a layer norm is added to what the attention gives.

    Args:
        num_heads: int, divides the size of a token.
        mlp_dim: int, the size of the perceptron's hidden layer.
        activation: see `MLP`.
        layer_norm_epsilon: float, added to the variance.
        num_prefix_tokens: int, how many of the first tokens are left out: the class
            token and registers in timm's networks, none elsewhere.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).

    Returns:
        Float tensor (batch, hidden_size).

    Source:
        Lee et al., arXiv 1810.00825, section 3.2; `MAPHead` of big_vision,
        `AttentionPoolLatent` of timm.

    Example:
        >>> pooling = AttentionPooling(num_heads=3, mlp_dim=768)
        >>> tuple(pooling(keras.random.normal((2, 7, 192))).shape)
        (2, 192)
    """

    parts = ("query", "key", "value", "out", "norm", "mlp")

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        activation: str = "gelu_tanh",
        layer_norm_epsilon: float = 1e-6,
        num_prefix_tokens: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.layer_norm_epsilon = self._positive(
            "layer_norm_epsilon", layer_norm_epsilon
        )
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, tokens_shape: Shape) -> None:
        hidden_size = tokens_shape[-1]
        check_heads(self, hidden_size)
        self.probe = self.add_weight(
            name="probe",
            shape=(1, 1, hidden_size),
            initializer=initializer("glorot_uniform"),
        )
        shape = (None, 1, hidden_size)
        for name in self.parts[:4]:
            self.add_part(
                keras.layers.Dense,
                name,
                hidden_size,
                input_shape=shape,
                kernel_initializer=initializer("glorot_uniform"),
            )
        self.add_part(LayerNorm, "norm", self.layer_norm_epsilon, input_shape=shape)
        self.add_part(
            MLP, "mlp", self.mlp_dim, activation=self.activation, input_shape=shape
        )
        self.settle()

    def call(self, tokens: Tensor) -> Tensor:
        tokens = tokens[:, self.num_prefix_tokens :]
        batch, length, hidden_size = ops.shape(tokens)
        head_size = hidden_size // self.num_heads
        # As in `SelfAttention`, one product with its bias on a matrix of tokens.
        rows = ops.reshape(tokens, (-1, tokens.shape[-1]))

        def heads(projected: Tensor, length: Any) -> Tensor:
            shape = (-1, length, self.num_heads, head_size)
            return ops.transpose(ops.reshape(projected, shape), (0, 2, 1, 3))

        query = heads(self.query(self.probe), 1) * head_size**-0.5
        key, value = (heads(part(rows), length) for part in (self.key, self.value))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        weights = ops.softmax(ops.cast(scores, "float32"), axis=-1)
        if (watcher := forward_pass().watcher) is not None:
            weights = watcher.pooling(weights)
        mixed = ops.matmul(ops.cast(weights, value.dtype), value)
        pooled = self.out(ops.reshape(mixed, (batch, 1, hidden_size)))
        return (pooled + self.mlp(self.norm(pooled)))[:, 0]

    def compute_output_shape(self, tokens_shape: Shape) -> tuple:
        return (tokens_shape[0], tokens_shape[2])

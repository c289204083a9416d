"""Tokens that belong to no patch: the class token and registers."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Layer, Shape, Tensor, check_tokens
from keras_vit.layers.initial_values import initializer
from zoo.network import positive_int


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(Layer):
    """Prepends a learned token to a sequence of tokens.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).

    Returns:
        Float tensor (batch, 1 + tokens, hidden_size), the class token first.

    Source:
        Paper section 3.1, equation 1; `cls` in the released files, zero at first.

    Example:
        >>> tuple(ClassToken()(keras.ops.ones((2, 6, 192))).shape)
        (2, 7, 192)
    """

    # How many tokens it puts before those of the patches.
    num_prefix_tokens = 1

    def build(self, tokens_shape: Shape) -> None:
        check_tokens(self, tokens_shape)
        self.token = self.add_weight(
            name="token", shape=(1, 1, tokens_shape[-1]), initializer="zeros"
        )

    def call(self, tokens: Tensor) -> Tensor:
        batch, _, hidden_size = ops.shape(tokens)
        token = ops.broadcast_to(self.token, (batch, 1, hidden_size))
        return ops.concatenate([token, tokens], axis=1)

    def compute_output_shape(self, tokens_shape: Shape) -> tuple:
        batch, tokens, hidden_size = tokens_shape
        return (batch, None if tokens is None else tokens + 1, hidden_size)


@keras.saving.register_keras_serializable(package="keras_vit")
class RegisterTokens(Layer):
    """Puts learned tokens that belong to no patch into a sequence of tokens.

    Args:
        num_registers: int, how many.
        after: int, how many of the tokens stay before them: 1 for behind a class
            token, 0 for the front.
        stddev: float, the standard deviation of their initial values.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).

    Returns:
        Float tensor (batch, num_registers + tokens, hidden_size).

    Source:
        Darcet et al., arXiv 2309.16588, section 2.2; `reg_token` of timm,
        `register_tokens` of DINOv2. A distilled DeiT's second token is one as well
        (Touvron et al., arXiv 2012.12877, section 4), and so are the queries of EoMT
        (Kerssies et al., arXiv 2503.19108, section 3.2).

    Example:
        >>> tuple(RegisterTokens(4)(keras.ops.ones((2, 6, 192))).shape)
        (2, 10, 192)
    """

    def __init__(
        self,
        num_registers: int = 4,
        after: int = 0,
        stddev: float = 1e-6,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_registers = positive_int(num_registers, "num_registers")
        self.after = after
        self.stddev = self._positive("stddev", stddev)

    @property
    def num_prefix_tokens(self) -> int:
        """How many tokens it puts before those of the patches."""
        return self.num_registers

    def build(self, tokens_shape: Shape) -> None:
        check_tokens(self, tokens_shape)
        self.registers = self.add_weight(
            name="registers",
            shape=(1, self.num_registers, tokens_shape[-1]),
            initializer=initializer(
                keras.initializers.RandomNormal(stddev=self.stddev)
            ),
        )

    def call(self, tokens: Tensor) -> Tensor:
        batch, _, hidden_size = ops.shape(tokens)
        registers = ops.broadcast_to(
            self.registers, (batch, self.num_registers, hidden_size)
        )
        parts = [tokens[:, : self.after], registers, tokens[:, self.after :]]
        return ops.concatenate(parts if self.after else parts[1:], axis=1)

    def compute_output_shape(self, tokens_shape: Shape) -> tuple:
        batch, tokens, hidden_size = tokens_shape
        tokens = None if tokens is None else tokens + self.num_registers
        return (batch, tokens, hidden_size)

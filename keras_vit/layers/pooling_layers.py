"""Pooling of tokens, with and without the class token."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Layer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassTokenPooling(Layer):
    """Takes the class token's state, the first of the sequence.

    Call arguments:
        tokens: float tensor (batch, 1 + tokens, hidden_size).

    Returns:
        Float tensor (batch, hidden_size).

    Source:
        Paper section 3.1, equation 4.

    Example:
        >>> tuple(ClassTokenPooling()(keras.ops.ones((2, 7, 192))).shape)
        (2, 192)
    """

    def call(self, tokens: Tensor) -> Tensor:
        return tokens[:, 0]

    def compute_output_shape(self, tokens_shape: Shape) -> tuple:
        return (tokens_shape[0], tokens_shape[2])


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchPooling(Layer):
    """Averages the patches' states, without the tokens that come before them.

    Args:
        num_prefix_tokens: int, how many tokens come before those of patches: 1 for
            the class token.

    Call arguments:
        tokens: float tensor (batch, num_prefix_tokens + patches, hidden_size).

    Returns:
        Float tensor (batch, hidden_size).

    Raises:
        ValueError: `num_prefix_tokens` is negative, or there are no other tokens.

    Source:
        `global_pool="avg"` of timm, `pooling="avg"` of Keras.

    Example:
        >>> tuple(PatchPooling()(keras.ops.ones((2, 7, 192))).shape)
        (2, 192)
    """

    def __init__(self, num_prefix_tokens: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        if num_prefix_tokens < 0:
            raise ValueError(
                f"{self.name}: num_prefix_tokens must not be negative, got "
                f"{num_prefix_tokens}."
            )
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, tokens_shape: Shape) -> None:
        tokens = tokens_shape[1]
        if tokens is not None and tokens <= self.num_prefix_tokens:
            raise ValueError(
                f"{self.name} averages what comes after {self.num_prefix_tokens} "
                f"tokens, got {tokens}: pass tokens of patches too."
            )

    def call(self, tokens: Tensor) -> Tensor:
        first = self.num_prefix_tokens
        return ops.mean(tokens[:, first:] if first else tokens, axis=1)

    def compute_output_shape(self, tokens_shape: Shape) -> tuple:
        return (tokens_shape[0], tokens_shape[2])


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassTokenAndPatchPooling(PatchPooling):
    """Takes the class token's state and, behind it, the mean of the patches' states.

    Args:
        num_prefix_tokens: see `PatchPooling`; the class token is the first of them.

    Call arguments:
        tokens: see `PatchPooling`.

    Returns:
        Float tensor (batch, 2 * hidden_size).

    Source:
        `Dinov2ForImageClassification` of transformers; Oquab et al., arXiv 2304.07193,
        section 7.1.

    Example:
        >>> tuple(ClassTokenAndPatchPooling()(keras.ops.ones((2, 7, 192))).shape)
        (2, 384)
    """

    def call(self, tokens: Tensor) -> Tensor:
        return ops.concatenate([tokens[:, 0], super().call(tokens)], axis=-1)

    def compute_output_shape(self, tokens_shape: Shape) -> tuple:
        return (tokens_shape[0], 2 * tokens_shape[2])


@keras.saving.register_keras_serializable(package="keras_vit")
class DistillationPooling(Layer):
    """Averages the states of the class token and the distillation token behind it.

    Args:
        concatenate: bool, whether it gives one state behind the other instead, for two
            heads in one.

    Call arguments:
        tokens: float tensor (batch, 2 + tokens, hidden_size).

    Returns:
        Float tensor (batch, hidden_size), or (batch, 2 * hidden_size).

    Source:
        Touvron et al., arXiv 2012.12877, section 4; `VisionTransformerDistilled` of
        timm.

    Example:
        >>> tuple(DistillationPooling()(keras.ops.ones((2, 7, 192))).shape)
        (2, 192)
    """

    def __init__(self, concatenate: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.concatenate = concatenate

    def call(self, tokens: Tensor) -> Tensor:
        if self.concatenate:
            return ops.concatenate([tokens[:, 0], tokens[:, 1]], axis=-1)
        return (tokens[:, 0] + tokens[:, 1]) / 2

    def compute_output_shape(self, tokens_shape: Shape) -> tuple:
        return (tokens_shape[0], tokens_shape[2] * (2 if self.concatenate else 1))


@keras.saving.register_keras_serializable(package="keras_vit")
class QueryPooling(Layer):
    """Takes the states of queries, the first tokens of the sequence.

    Args:
        num_queries: int, how many.

    Call arguments:
        tokens: float tensor (batch, num_queries + tokens, hidden_size).

    Returns:
        Float tensor (batch, num_queries, hidden_size).

    Source:
        Kerssies et al., arXiv 2503.19108, section 3.2.

    Example:
        >>> tuple(QueryPooling(5)(keras.ops.ones((2, 7, 192))).shape)
        (2, 5, 192)
    """

    def __init__(self, num_queries: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_queries = num_queries

    def call(self, tokens: Tensor) -> Tensor:
        return tokens[:, : self.num_queries]

    def compute_output_shape(self, tokens_shape: Shape) -> tuple:
        return (tokens_shape[0], self.num_queries, tokens_shape[2])

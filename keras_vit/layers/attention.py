"""Multi-head self-attention."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Composite, Shape, Tensor, check_heads
from keras_vit.layers.blockwise import MIN_TOKENS, blockwise_attention
from keras_vit.layers.forward_pass import forward_pass, with_attention_weights
from keras_vit.layers.initial_values import initializer
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.positions import AttentionPositions
from keras_vit.layers.remat import Dropout
from zoo.common.safe_text import brief


@keras.saving.register_keras_serializable(package="keras_vit")
class SelfAttention(Composite):
    """Multi-head scaled dot-product attention of a sequence to itself.

    The weights over the tokens are computed in float32 (a softmax in half precision
    loses the small ones), everything else in the layer's compute dtype.

    Args:
        num_heads: int, divides the size of a token.
        dropout_rate: float in [0, 1), of the attention weights; 0 as released.
        qkv_bias: whether queries, keys and values have biases, or `"query and value"`
            for keys without.
        norm_epsilon: None, or the epsilon of a layer norm before the last projection.
        positions: None, or how the places of tokens enter: a new
            `RelativePositionEmbedding`, `RotaryPositions` or `RelativePositionBias`.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).
        training: bool, whether dropout is on.
        return_attention_weights: bool.
        class_token_only: bool, whether only the first token is a query; keys are all
            tokens.
        grid: None, or for tokens of images of any size what `PatchGrid` gives.

    Returns:
        Float tensor (batch, tokens, hidden_size), of one token with
        `class_token_only`; with `return_attention_weights` also a float32 tensor
        (batch, num_heads, queries, tokens) whose rows sum to one.

    Raises:
        ValueError: `num_heads` does not divide the size of a token; or positions matter
            and the number of tokens is unknown, does not fit or changes; or a grid is
            given where there are no positions of one.

    Source:
        Paper appendix A; `MultiHeadDotProductAttention_1` in the released files. The
        norm: EVA-02's CLIP.

    Example:
        >>> tuple(SelfAttention(num_heads=3)(keras.random.normal((2, 7, 192))).shape)
        (2, 7, 192)
    """

    parts = ("query", "key", "value", "positions", "norm", "out")

    def __init__(
        self,
        num_heads: int,
        dropout_rate: float = 0.0,
        qkv_bias: bool | str = True,
        norm_epsilon: float | None = None,
        positions: AttentionPositions | dict | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.qkv_bias = qkv_bias
        self.norm = None
        if norm_epsilon is not None:
            norm_epsilon = self._positive("norm_epsilon", norm_epsilon)
        self.norm_epsilon = norm_epsilon
        if isinstance(positions, dict):
            positions = keras.saving.deserialize_keras_object(positions)
        if not isinstance(positions, AttentionPositions | None):
            raise ValueError(
                f"{self.name}: positions must be a RotaryPositions, "
                "RelativePositionBias or RelativePositionEmbedding, or None, got "
                f"{brief(positions)}."
            )
        if positions is not None:
            self._take(positions)
        self.positions = positions

    def _take(self, positions):
        """Gives positions a dtype; refuses those that another layer was built with."""
        if positions.owner is not None and not self.built:
            raise ValueError(
                f"{self.name} got the positions of {positions.owner}, "
                f"{positions.name}: pass new ones to each layer."
            )
        positions.dtype_policy = self.policy_of_part("positions")

    def build(self, tokens_shape: Shape) -> None:
        batch, length, hidden_size = tokens_shape
        check_heads(self, hidden_size)
        without = {True: (), "query and value": ("key",)}
        without = without.get(self.qkv_bias, ("query", "key", "value"))
        for name in ("query", "key", "value", "out"):
            self.add_part(
                keras.layers.Dense,
                name,
                hidden_size,
                use_bias=name not in without,
                input_shape=(None, hidden_size),
                kernel_initializer=initializer("glorot_uniform"),
            )
        if self.norm_epsilon is not None:
            shape = (None, hidden_size)
            self.add_part(LayerNorm, "norm", self.norm_epsilon, input_shape=shape)
        self.add_part(Dropout, "dropout", self.dropout_rate)
        if self.positions is not None:
            self._take(self.positions)
            self.positions.build(
                (batch, length, self.num_heads, hidden_size // self.num_heads)
            )
            self.positions.owner = self.name
        self.settle()

    def _check(self, tokens, grid):
        if self.positions is not None:
            self.positions.check_places(tokens, grid)
        elif grid is not None:
            raise ValueError(
                f"{self.name} is called with a grid, and has no positions that one "
                "would change: leave it out."
            )

    def call(
        self,
        tokens: Tensor,
        training: bool | None = None,
        return_attention_weights: bool = False,
        class_token_only: bool = False,
        grid: Tensor | None = None,
    ) -> Any:
        self._check(tokens, grid)
        attend = self._attend
        if return_attention_weights:
            attend = with_attention_weights(attend)
        return attend(tokens, training, class_token_only, grid)

    def _attend(self, tokens, training, class_token_only, grid):
        queries = tokens[:, :1] if class_token_only else tokens
        query = self._heads(self.query, _rows(queries), ops.shape(queries))
        # Key and value take the same rows, so that no three gradients are added at
        # once: TensorFlow may turn such a sum into additions to a variable in the order
        # in which they are ready, and the last bits differ from run to run.
        rows, shape = _rows(tokens), ops.shape(tokens)
        key = self._heads(self.key, rows, shape)
        value = self._heads(self.value, rows, shape)
        if self.positions is not None:
            query, key = self.positions.turned(query, key, grid, class_token_only)
        # TensorFlow has no fused attention; the fused forms have neither dropout nor
        # scores of queries and offsets, and show no weights.
        if keras.backend.backend() == "tensorflow" or self._needs_weights(training):
            mixed = self._mixed(query, key, value, training, grid, class_token_only)
        else:
            of_heads = ops.transpose(query, (0, 2, 1, 3))
            bias = self._scores_of_positions(of_heads, grid, class_token_only)
            if bias is not None:
                bias = bias[(None,) * (4 - len(bias.shape))]
            mixed = ops.dot_product_attention(query, key, value, bias=bias)
        mixed = ops.reshape(mixed, (-1, tokens.shape[-1]))
        if self.norm is not None:
            mixed = self.norm(mixed, training=training)
        return ops.reshape(self.out(mixed), ops.shape(queries))

    def _heads(self, projection, rows, shape):
        batch, length, _ = shape
        head_size = rows.shape[-1] // self.num_heads
        return ops.reshape(projection(rows), (batch, length, self.num_heads, head_size))

    def _scores_of_positions(self, *args):
        return None if self.positions is None else self.positions.scores(*args)

    def _mixed(self, query, key, value, training, grid, class_token_only):
        query, key, value = (
            ops.transpose(heads, (0, 2, 1, 3)) for heads in (query, key, value)
        )
        query = query * query.shape[-1] ** -0.5
        added = self._scores_of_positions(query, grid, class_token_only)
        if added is None and self._is_blockwise(query, training):
            mixed = blockwise_attention(query, key, value)
            return ops.transpose(mixed, (0, 2, 1, 3))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        if added is not None:
            scores = scores + added
        weights = ops.softmax(ops.cast(scores, "float32"), axis=-1)
        if (watcher := forward_pass().watcher) is not None:
            weights = watcher.attention(weights)
        mixed = ops.matmul(
            self.dropout(ops.cast(weights, value.dtype), training=training), value
        )
        return ops.transpose(mixed, (0, 2, 1, 3))

    def _is_blockwise(self, query, training):
        # A class token alone has one query; the number of tokens may be unknown.
        return (
            keras.backend.backend() == "tensorflow"
            and (query.shape[2] or 0) >= MIN_TOKENS
            and not self._needs_weights(training)
            and not forward_pass().whole_scores
        )

    def _needs_weights(self, training):
        """Returns whether the weights of all queries are changed, or shown."""
        return (
            (training and self.dropout_rate > 0)
            or (self.positions is not None and self.positions.depends_on_queries)
            or forward_pass().watcher is not None
        )

    def compute_output_spec(
        self,
        tokens: Tensor,
        training: bool | None = None,
        return_attention_weights: bool = False,
        class_token_only: bool = False,
        grid: Tensor | None = None,
    ) -> Any:
        self._check(tokens, grid)
        batch, length, hidden_size = tokens.shape
        queries = 1 if class_token_only else length
        output = keras.KerasTensor((batch, queries, hidden_size), self.compute_dtype)
        if not return_attention_weights:
            return output
        weights = keras.KerasTensor((batch, self.num_heads, queries, length), "float32")
        return output, weights


def _rows(tokens):
    """Returns a token per row: a product of matrices takes its bias along.

    On a 3-D tensor backends fall back to slower general contractions.
    """
    return ops.reshape(tokens, (-1, tokens.shape[-1]))

"""Multi-head self-attention."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class SelfAttention(keras.layers.Layer):
    """Multi-head scaled dot-product attention of a sequence to itself.

    The weights over the tokens are computed in float32 (a softmax in half precision
    loses the small ones), everything else in the layer's compute dtype.

    Args:
        num_heads: int, divides the size of a token.
        dropout_rate: float in [0, 1), of the attention weights; 0 in all released
            models.
        **kwargs: `name`, `dtype` and the other arguments of `keras.layers.Layer`.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).
        training: bool, whether dropout is on.
        return_attention_weights: bool.

    Returns:
        Float tensor (batch, tokens, hidden_size); with `return_attention_weights` a
        pair of it and a float32 tensor (batch, num_heads, tokens, tokens) whose rows
        sum to one.

    Raises:
        ValueError: `num_heads` does not divide the size of a token.

    Source:
        Paper appendix A; `MultiHeadDotProductAttention_1` in the released files.

    Example:

    >>> tuple(SelfAttention(num_heads=3)(keras.random.normal((2, 7, 192))).shape)
    (2, 7, 192)
    """

    def __init__(self, num_heads, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate

    def build(self, tokens_shape):
        hidden_size = tokens_shape[-1]
        if hidden_size % self.num_heads:
            raise ValueError(
                f"{self.name}: num_heads={self.num_heads} does not divide the size of "
                f"a token, {hidden_size}."
            )
        for name in ("query", "key", "value", "out"):
            projection = keras.layers.Dense(
                hidden_size, dtype=self.dtype_policy, name=name
            )
            projection.build((None, hidden_size))
            setattr(self, name, projection)
        self.dropout = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="dropout"
        )

    def call(self, tokens, training=None, return_attention_weights=False):
        batch, length, hidden_size = ops.shape(tokens)
        head_size = tokens.shape[-1] // self.num_heads
        # On a matrix of tokens each projection is one product with its bias; on a
        # 3-D tensor backends fall back to slower general contractions.
        tokens = ops.reshape(tokens, (-1, tokens.shape[-1]))

        def split_heads(projected):
            heads = ops.reshape(projected, (batch, length, self.num_heads, head_size))
            return ops.transpose(heads, (0, 2, 1, 3))

        query = split_heads(self.query(tokens) * head_size**-0.5)
        key = split_heads(self.key(tokens))
        value = split_heads(self.value(tokens))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        weights = ops.softmax(ops.cast(scores, "float32"), axis=-1)
        mixed = ops.matmul(
            self.dropout(ops.cast(weights, value.dtype), training=training), value
        )
        mixed = ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, hidden_size))
        output = ops.reshape(self.out(mixed), (batch, length, hidden_size))
        return (output, weights) if return_attention_weights else output

    def compute_output_spec(
        self, tokens, training=None, return_attention_weights=False
    ):
        output = keras.KerasTensor(tokens.shape, self.compute_dtype)
        if not return_attention_weights:
            return output
        batch, length, _ = tokens.shape
        weights = keras.KerasTensor((batch, self.num_heads, length, length), "float32")
        return output, weights

    def compute_output_shape(self, tokens_shape):
        return tokens_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "dropout_rate": self.dropout_rate,
        }

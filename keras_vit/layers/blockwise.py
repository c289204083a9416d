"""Attention in blocks of queries, for TensorFlow, which has no fused attention."""

from typing import Any

from keras import ops

from keras_vit.layers.base import Tensor
from keras_vit.layers.own_gradient import own_gradient

# From so many tokens on, and so many queries at a time.
# Fewer of either take longer, and more queries only memory (docs/performance.md).
MIN_TOKENS = 1024
BLOCK_SIZE = 256


@own_gradient
def blockwise_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Returns softmax(query key^T) value without the scores of all queries at once.

    Neither it nor its gradient, which computes the weights of each block once more,
    keeps the scores of more than one block. All are float tensors (batch, num_heads,
    tokens, head_size), the queries scaled, and all but the batch is known. The softmax
    is computed in float32.

    Source:
        Rabe and Staats, arXiv 2112.05682; the gradient: Dao et al., arXiv 2205.14135,
        appendix B.2.
    """
    import tensorflow as tf

    keys = _transposed(key)

    def weights_of(queries: Tensor) -> Tensor:
        scores = ops.matmul(queries, keys)
        return ops.softmax(ops.cast(scores, "float32"), axis=-1)

    def mixed(queries: Tensor) -> Tensor:
        return ops.matmul(ops.cast(weights_of(queries), value.dtype), value)

    # One after another: side by side blocks would take the memory of all.
    output = _joined(
        tf.map_fn(mixed, _blocks(query), parallel_iterations=1), query.shape
    )

    def gradient(upstream: Tensor) -> tuple:
        values = _transposed(value)
        # The sum over a row of weights times their gradients.
        means = ops.sum(ops.cast(output * upstream, "float32"), axis=-1, keepdims=True)
        parts = [_blocks(tensor) for tensor in (query, upstream, means)]
        count = parts[0].shape[0]

        def add(
            index: Tensor, of_query: Any, of_keys: Tensor, of_values: Tensor
        ) -> tuple:
            queries, given, mean = (part[index] for part in parts)
            weights = weights_of(queries)
            slopes = ops.cast(ops.matmul(given, values), "float32") - mean
            slopes = ops.cast(weights * slopes, key.dtype)
            weights = ops.cast(weights, value.dtype)
            # In this layout no product has to transpose the weights.
            of_keys += ops.cast(ops.matmul(_transposed(queries), slopes), "float32")
            of_values += ops.cast(ops.matmul(_transposed(given), weights), "float32")
            of_query = of_query.write(index, ops.matmul(slopes, key))
            return index + 1, of_query, of_keys, of_values

        zeros = ops.zeros_like(keys, dtype="float32")
        of_query = tf.TensorArray(query.dtype, count, element_shape=parts[0].shape[1:])
        _, of_query, of_keys, of_values = tf.while_loop(
            lambda index, *_: index < count,
            add,
            (0, of_query, zeros, zeros),
            parallel_iterations=1,
        )
        return (
            _joined(of_query.stack(), query.shape),
            ops.cast(_transposed(of_keys), key.dtype),
            ops.cast(_transposed(of_values), value.dtype),
        )

    return output, gradient


def _transposed(heads):
    return ops.transpose(heads, (0, 1, 3, 2))


def _blocks(heads):
    """Returns blocks of queries, (blocks, batch, num_heads, queries, size).

    Zeros fill the last one: queries whose gradient is zero.
    """
    _, num_heads, tokens, size = heads.shape
    count = -(-tokens // BLOCK_SIZE)
    queries = -(-tokens // count)
    heads = ops.pad(heads, ((0, 0), (0, 0), (0, count * queries - tokens), (0, 0)))
    heads = ops.reshape(heads, (-1, num_heads, count, queries, size))
    return ops.transpose(heads, (2, 0, 1, 3, 4))


def _joined(blocks, shape):
    _, num_heads, tokens, size = shape
    heads = ops.transpose(blocks, (1, 2, 0, 3, 4))
    return ops.reshape(heads, (-1, num_heads, blocks.shape[0] * blocks.shape[3], size))[
        :, :, :tokens
    ]

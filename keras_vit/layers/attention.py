"""Multi-head self-attention."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers import rotation
from keras_vit.layers.base import Composite, Placed, check_heads
from keras_vit.layers.blockwise import MIN_TOKENS, blockwise_attention
from keras_vit.layers.forward_pass import forward_pass, with_attention_weights
from keras_vit.layers.initial_values import initializer
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.relative_position import RelativePositionBias
from keras_vit.layers.remat import Dropout
from zoo.network import pair


@keras.saving.register_keras_serializable(package="keras_vit")
class SelfAttention(Composite, Placed):
    """Multi-head scaled dot-product attention of a sequence to itself.

    The weights over the tokens are computed in float32 (a softmax in half precision
    loses the small ones), everything else in the layer's compute dtype.

    Args:
        num_heads: int, divides the size of a token.
        dropout_rate: float in [0, 1), of the attention weights; 0 as released.
        relative_positions: bool, whether the scaled product of a query and a learned
            embedding of the offset between the two tokens, query's place less key's,
            is added to their score. The heads share the embeddings. Places are counted
            along the sequence, from the class token if there is one.
        grid_size: None, int or (rows, columns) of the grid of patches, for attention
            that depends on it: with one the layer, once built, has the number of
            tokens before the patches as `num_prefix_tokens`.
        qkv_bias: whether queries, keys and values have biases, or `"query and value"`
            for keys without.
        num_registers: int, how many of the tokens before the patches are registers.
        rotary: `"none"`, or the kind of rotary positions: `"dinov3"`, `"eva"`,
            `"axial"` or `"perception"`. Queries and keys of patches are turned by
            angles that their row and column in the grid give: in `grid_size`, or else
            `turns`.
        rotary_grid: None, or the (rows, columns) of the grid to which the coordinates
            are stretched, but for `"dinov3"`.
        rotary_base: None, or the base of their frequencies; by default that of the
            kind, 100 of `"dinov3"` and `"axial"`, 10,000 of the others.
        norm_epsilon: None, or the epsilon of a layer norm before the last projection.
        relative_bias: None, or the `resizing` of a `RelativePositionBias`, which adds a
            bias of the offset in the grid to each score.
        num_prefix_tokens: None, or int: with `relative_bias` for images of any size,
            how many tokens come before the patches. Known from the tokens of others.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).
        training: bool, whether dropout is on.
        return_attention_weights: bool.
        class_token_only: bool, whether only the first token is a query; keys are all
            tokens.
        turns: None, or for images of any size what `RotaryPositions` gives.
        offsets: None, or for images of any size what `PatchOffsets` gives.

    Returns:
        Float tensor (batch, tokens, hidden_size), of one token with
        `class_token_only`; with `return_attention_weights` also a float32 tensor
        (batch, num_heads, queries, tokens) whose rows sum to one.

    Raises:
        ValueError: `num_heads` does not divide the size of a token; or positions matter
            and the number of tokens is unknown, does not fit or changes.

    Source:
        Paper appendix A; `MultiHeadDotProductAttention_1` in the released files.
        Relative positions: paper appendix D.4, shared by the heads as in Shaw et al.
        (arXiv 1803.02155, section 3.3). Rotary positions: Su et al., arXiv 2104.09864,
        section 3.2, see `keras_vit.layers.rotation.angles`; the norm: EVA-02's CLIP.

    Example:
        >>> tuple(SelfAttention(num_heads=3)(keras.random.normal((2, 7, 192))).shape)
        (2, 7, 192)
    """

    parts = ("query", "key", "value", "position_bias", "norm", "out")

    def __init__(
        self,
        num_heads,
        dropout_rate=0.0,
        relative_positions=False,
        grid_size=None,
        qkv_bias=True,
        num_registers=0,
        rotary="none",
        rotary_grid=None,
        norm_epsilon=None,
        relative_bias=None,
        num_prefix_tokens=None,
        rotary_base=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.relative_positions = relative_positions
        self.grid_size = None if grid_size is None else pair(grid_size, "grid_size")
        self.qkv_bias = qkv_bias
        self.num_registers = num_registers
        self.rotary = rotary
        self.rotary_grid = None if rotary_grid is None else tuple(rotary_grid)
        self.rotary_base = rotary_base
        if rotary_base is not None:
            self.rotary_base = self._positive("rotary_base", rotary_base)
        self.norm_epsilon = norm_epsilon
        self.relative_bias = relative_bias
        self.num_prefix_tokens = num_prefix_tokens
        if norm_epsilon is None:
            self.norm = None
        else:
            self.norm_epsilon = self._positive("norm_epsilon", norm_epsilon)
        if relative_bias is None:
            self.position_bias = None

    def build(self, tokens_shape):
        hidden_size = tokens_shape[-1]
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
        of_any_size = self.relative_bias is not None and tokens_shape[1] is None
        if self.grid_size is not None and not of_any_size:
            self.find_places(tokens_shape, " with grid_size")
        if self.relative_bias is not None:
            self._build_position_bias(tokens_shape[1])
        if self.rotary != "none":
            self._build_rotation(hidden_size // self.num_heads)
        if self.relative_positions:
            self.find_places(tokens_shape, " with relative_positions")
            # The embedding of offset o is in row o + length - 1.
            self.offset_embedding = self.add_weight(
                name="offset_embedding",
                shape=(2 * self.length - 1, hidden_size // self.num_heads),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )
        self.settle()

    def _build_position_bias(self, length):
        if self.grid_size is None:
            raise ValueError(
                f"{self.name} has a relative_bias, which needs a grid_size: pass the "
                "(rows, columns) of the patches."
            )
        self.add_part(
            RelativePositionBias,
            "position_bias",
            self.grid_size,
            self.num_registers,
            self.relative_bias,
            self.num_prefix_tokens,
        )
        self.position_bias.build((None, self.num_heads, length, length))

    def _build_rotation(self, head_size):
        if head_size % 4:
            raise ValueError(
                f"{self.name} has rotary positions, which need heads whose size is a "
                f"multiple of 4, got {head_size}: pass another num_heads."
            )
        if self.grid_size is None:
            return
        turns = rotation.turns(
            self.rotary,
            self.grid_size,
            head_size,
            self.num_prefix_tokens,
            self.rotary_grid,
            self.rotary_base,
        )
        self.turns = np.stack(turns).astype("float32")

    def _check_places(self, tokens, turns, offsets):
        self.check_places(tokens)
        if self.relative_bias is None and offsets is not None:
            raise ValueError(
                f"{self.name} has no relative_bias to take offsets: leave them out, or "
                "pass relative_bias."
            )
        if self.relative_bias is not None and self.length is None and offsets is None:
            raise ValueError(
                f"{self.name} has a relative_bias for images of any size: pass it "
                "offsets, the output of PatchOffsets."
            )
        if self.rotary == "none" and turns is not None:
            raise ValueError(
                f"{self.name} has no rotary positions to take turns: leave them out, "
                "or pass rotary."
            )
        if self.rotary != "none" and self.grid_size is None and turns is None:
            raise ValueError(
                f"{self.name} has rotary positions, which need a grid_size, or turns, "
                "the output of RotaryPositions: pass one of them."
            )

    def call(
        self,
        tokens,
        training=None,
        return_attention_weights=False,
        class_token_only=False,
        turns=None,
        offsets=None,
    ):
        self._check_places(tokens, turns, offsets)
        attend = self._attend
        if return_attention_weights:
            attend = with_attention_weights(attend)
        return attend(tokens, training, class_token_only, turns, offsets)

    def _attend(self, tokens, training, class_token_only, turns, offsets):
        queries = tokens[:, :1] if class_token_only else tokens
        query = self._heads(self.query, _rows(queries), ops.shape(queries))
        # Key and value take the same rows, so that no three gradients are added at
        # once: TensorFlow may turn such a sum into additions to a variable in the order
        # in which they are ready, and the last bits differ from run to run.
        rows, shape = _rows(tokens), ops.shape(tokens)
        key = self._heads(self.key, rows, shape)
        value = self._heads(self.value, rows, shape)
        if self.rotary != "none":
            turns = self.turns if turns is None else turns
            of_queries = turns[:, :1] if class_token_only else turns
            query = rotation.rotated(query, self.rotary, of_queries)
            key = rotation.rotated(key, self.rotary, turns)
        # TensorFlow has no fused attention; the fused forms have neither dropout nor
        # scores of offsets, and show no weights.
        if keras.backend.backend() == "tensorflow" or self._needs_weights(training):
            mixed = self._mixed(query, key, value, training, offsets)
        else:
            bias = None
            if self.position_bias is not None:
                bias = self.position_bias.biases(queries.shape[1], offsets)[None]
            mixed = ops.dot_product_attention(query, key, value, bias=bias)
        mixed = ops.reshape(mixed, (-1, tokens.shape[-1]))
        if self.norm is not None:
            mixed = self.norm(mixed, training=training)
        return ops.reshape(self.out(mixed), ops.shape(queries))

    def _heads(self, projection, rows, shape):
        batch, length, _ = shape
        head_size = rows.shape[-1] // self.num_heads
        return ops.reshape(projection(rows), (batch, length, self.num_heads, head_size))

    def _mixed(self, query, key, value, training, offsets):
        query, key, value = (
            ops.transpose(heads, (0, 2, 1, 3)) for heads in (query, key, value)
        )
        query = query * query.shape[-1] ** -0.5
        if self._is_blockwise(query, training):
            mixed = blockwise_attention(query, key, value)
            return ops.transpose(mixed, (0, 2, 1, 3))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        if self.relative_positions:
            scores = scores + self._offset_scores(query)
        if self.position_bias is not None:
            scores = self.position_bias(scores, offsets)
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
            and self.position_bias is None
            and not forward_pass().whole_scores
        )

    def _needs_weights(self, training):
        """Returns whether the weights of all queries are changed, or shown."""
        return (
            (training and self.dropout_rate > 0)
            or self.relative_positions
            or forward_pass().watcher is not None
        )

    def _offset_scores(self, query):
        places = np.arange(self.length, dtype="int32")
        # A single query is the first token's, at place 0.
        rows = places[: query.shape[2], None] - places + self.length - 1
        # The product makes the gradient of a TensorFlow variable a dense tensor.
        keys = ops.take(1.0 * self.offset_embedding, rows, axis=0)
        return ops.einsum("bhqd,qkd->bhqk", query, keys)

    def compute_output_spec(
        self,
        tokens,
        training=None,
        return_attention_weights=False,
        class_token_only=False,
        turns=None,
        offsets=None,
    ):
        self._check_places(tokens, turns, offsets)
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

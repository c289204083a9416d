"""What attention asks of positions that enter it, and embeddings of offsets."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.base import Placed, Shape, Tensor


class AttentionPositions(Placed):
    """How the places of tokens enter `SelfAttention`; a subclass changes a part.

    It is built with the shape of the heads of queries, (batch, tokens, num_heads,
    head_size). `grid` is None, or for images of any size the output of `PatchGrid`.
    With `first_alone` queries are of the first token.
    """

    # Name of the attention that was built with them.
    owner = None
    # True if `scores` depends on the queries, which fused attention cannot take.
    depends_on_queries = False

    def turned(
        self, query: Tensor, key: Tensor, grid: Tensor | None, first_alone: bool
    ) -> tuple:
        """Returns queries and keys (batch, tokens, num_heads, head_size) to compare."""
        return query, key

    def scores(
        self, query: Tensor, grid: Tensor | None, first_alone: bool
    ) -> Tensor | None:
        """Returns what is added to the scores of scaled queries, None for nothing.

        Of queries (batch, num_heads, queries, head_size), a tensor that goes with
        (batch, num_heads, queries, tokens).
        """

    def resized(
        self, grid_size: tuple[int, int] | None, method: str | None = None
    ) -> keras.layers.Layer:
        if self.grid_size is None:
            raise ValueError(
                f"The positions {self.name} are a {type(self).__name__}, which belongs "
                "to one number of tokens: build and train the model at the image size "
                "that you need."
            )
        return super().resized(grid_size, method)


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativePositionEmbedding(AttentionPositions):
    """Adds to a score the product of the query and an embedding of the offset.

    The offset is the query's place less the key's, counted along the sequence from the
    class token, if there is one. The heads share the embeddings.

    Call arguments:
        None: it is the `positions` of `SelfAttention` or `TransformerBlock`.

    Returns:
        Nothing of its own.

    Raises:
        ValueError: the number of tokens is unknown, or changes.

    Source:
        Paper appendix D.4; shared by the heads as in Shaw et al., arXiv 1803.02155,
        section 3.3.

    Example:
        >>> attention = SelfAttention(2, positions=RelativePositionEmbedding())
        >>> tuple(attention(keras.ops.ones((2, 7, 24))).shape)
        (2, 7, 24)
    """

    depends_on_queries = True

    def build(self, heads_shape: Shape) -> None:
        self.find_places(heads_shape)
        # The embedding of offset o is in row o + length - 1.
        self.offset_embedding = self.add_weight(
            name="offset_embedding",
            shape=(2 * self.length - 1, heads_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def scores(self, query: Tensor, grid: Tensor | None, first_alone: bool) -> Tensor:
        # The product makes the gradient of a TensorFlow variable a dense tensor.
        keys = ops.take(1.0 * self.offset_embedding, self.rows(first_alone), axis=0)
        return ops.einsum("bhqd,qkd->bhqk", query, ops.cast(keys, query.dtype))

    def rows(self, first_alone: bool) -> np.ndarray:
        """Returns the rows of the embedding, an array (queries, tokens)."""
        places = np.arange(self.length, dtype="int32")
        queries = places[:1] if first_alone else places
        return queries[:, None] - places + self.length - 1

"""Masked attention of queries, annealed block by block during training."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Layer, Shape, Tensor
from keras_vit.layers.forward_pass import Watcher
from zoo.network import positive_int


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskAnnealing(Layer):
    """Limits the attention of queries to their own masks, less and less in training.

    It returns its input, and counts the steps of training, which are cut into
    `num_blocks + 2` equal parts. In the first part all queries of all blocks are
    masked. In each part after it one block, the first of them first, falls from all
    queries to none; in the last part none is masked, as in inference.

    Args:
        num_blocks: int, the blocks with queries.
        steps: int, the steps of the whole training.
        seed: None or int, of which queries are masked.

    Call arguments:
        tokens: float tensor of any shape.

    Returns:
        The same tensor.

    Source:
        Kerssies et al., arXiv 2503.19108, section 3.3; `mask_annealing` of its code, a
        polynomial of power 0.9.

    Example:
        >>> layer = MaskAnnealing(num_blocks=2, steps=40)
        >>> layer.build((None, 7, 192))
        >>> _ = layer.count.assign(15)
        >>> [round(float(one), 3) for one in layer.probabilities()]
        [0.536, 1.0]
    """

    def __init__(
        self, num_blocks: int, steps: int, seed: int | None = None, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.num_blocks = positive_int(num_blocks, "num_blocks")
        self.steps = positive_int(steps, "steps")
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, tokens_shape: Shape) -> None:
        self.count = self.add_weight(
            name="count", shape=(), dtype="int32", initializer="zeros", trainable=False
        )

    def call(self, tokens: Tensor) -> Tensor:
        return tokens

    def probabilities(self) -> Tensor:
        """Returns the probability, of each block, that a query of it is masked."""
        part = self.steps / (self.num_blocks + 2)
        starts = ops.arange(1, self.num_blocks + 1, dtype="float32")
        progress = ops.cast(self.count, "float32") / part - starts
        return (1 - ops.clip(progress, 0, 1)) ** 0.9

    def watcher(self, index: int, mask_logits: Tensor, grid: tuple) -> Watcher:
        """Returns what masks the attention of a block, of the masks before it.

        Args:
            index: int, which of the blocks with queries.
            mask_logits: float tensor (batch, queries, rows, columns).
            grid: (rows, columns) of patches, the last tokens, as queries are the first.
        """
        logits = ops.image.resize(
            ops.transpose(ops.cast(mask_logits, "float32"), (0, 2, 3, 1)),
            grid,
            interpolation="bilinear",
        )
        batch, rows, columns, queries = ops.shape(logits)
        logits = ops.reshape(logits, (batch, rows * columns, queries))
        drawn = keras.random.uniform((batch, queries, 1), seed=self.seed_generator)
        is_free = drawn >= self.probabilities()[index]
        inside = ops.logical_or(ops.transpose(logits, (0, 2, 1)) > 0, is_free)
        visible = ops.cast(inside, "float32")[:, None]

        def masked(weights: Tensor) -> Tensor:
            first = weights[:, :, :queries]
            others = ops.shape(weights)[3] - rows * columns
            first = ops.concatenate(
                [first[..., :others], first[..., others:] * visible], axis=-1
            )
            # The softmax of the scores that are left.
            total = ops.maximum(ops.sum(first, axis=-1, keepdims=True), 1e-30)
            return ops.concatenate([first / total, weights[:, :, queries:]], axis=2)

        return Watcher(attention=masked)

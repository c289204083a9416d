"""Masking of patch embeddings, for masked patch prediction."""

import keras
from keras import ops

from keras_vit.layers.base import Layer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskPatches(Layer):
    """Puts a learned [mask] embedding, or another patch's, in place of some patches'.

    Of `tokens` (batch, patches, hidden_size), without a class token, and `sources`, int
    (batch, patches): at each place the patch whose embedding comes there, its own to
    stay as it is, `patches` for [mask]. Paper appendix B.1.2, which does not say how
    [mask] begins: as the position embeddings, N(0, 0.02).
    """

    def build(self, tokens_shape: Shape, sources_shape: Shape) -> None:
        self.token = self.add_weight(
            name="token",
            shape=(1, 1, tokens_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, tokens: Tensor, sources: Tensor) -> Tensor:
        batch, _, hidden_size = ops.shape(tokens)
        token = ops.broadcast_to(self.token, (batch, 1, hidden_size))
        return _gathered(ops.concatenate([tokens, token], axis=1), sources)


@keras.saving.register_keras_serializable(package="keras_vit")
class TakeTokens(Layer):
    """Takes the tokens at some places of each sequence.

    Of `tokens` (batch, tokens, hidden_size) and `places`, int (batch, places).
    """

    def call(self, tokens: Tensor, places: Tensor) -> Tensor:
        return _gathered(tokens, places)

    def compute_output_shape(self, tokens_shape: Shape, places_shape: Shape) -> tuple:
        return (*places_shape, tokens_shape[-1])


def _gathered(tokens, places):
    batch, count, hidden_size = ops.shape(tokens)
    rows = ops.reshape(tokens, (-1, hidden_size))
    first = ops.expand_dims(ops.arange(batch, dtype="int32") * count, axis=1)
    return ops.take(rows, ops.cast(places, "int32") + first, axis=0)

"""Masked patch prediction: the corruption of images, the targets, and the model.

Paper appendix B.1.2: of half the patches, 80% are replaced by a learned [mask]
embedding, 10% by another patch's and 10% kept; the model predicts the mean colour of
each of them, in 3 bits per channel.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import keras_vit
import zoo
from keras_vit.layers.mask_patches import MaskPatches, TakeTokens
from keras_vit.weights.model_arrays import released_variables
from train.common.errors import RunError
from train.data.pipeline import NO_LABEL
from train.masked_patches.recipes import MaskingRecipe
from train.run.building import config_of

MASKED, SWAPPED = 0.8, 0.1
LEVELS = 8
COLOURS = LEVELS**3
# A mean at the edge of two levels stays there, in spite of float32's rounding between
# [-1, 1] and [0, 255].
_SLACK = 1e-3


@dataclasses.dataclass(frozen=True)
class Corruption:
    """Which patches of an image are corrupted, on a grid of (rows, columns)."""

    grid_size: tuple[int, int]
    fraction: float = 0.5

    @property
    def patches(self) -> int:
        rows, columns = self.grid_size
        return rows * columns

    @property
    def count(self) -> int:
        """How many of them are corrupted in every image, one at least."""
        return max(int(self.fraction * self.patches + 0.5), 1)

    def draw(self, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws the patches to corrupt and what replaces them, from an int seed (2,).

        All sets of `count` patches are equally likely. Each patch is replaced
        independently: by [mask] in 80% of the cases, in 10% by the uncorrupted
        embedding of another patch of the image, all equally likely; else it is kept.
        Independent draws as in BERT (arXiv 1810.04805).

        Returns int32 tensors `places` (count,), the corrupted patches, and `sources`
        (patches,), what `keras_vit.layers.mask_patches.MaskPatches` takes.
        """
        of_places, of_kinds, of_others = tf.unstack(tf.random.split(seed, 3))
        order = tf.random.stateless_uniform((self.patches,), of_places)
        places = tf.cast(tf.argsort(order)[: self.count], tf.int32)
        others = places + tf.random.stateless_uniform(
            (self.count,), of_others, 1, self.patches, dtype=tf.int32
        )
        kinds = tf.random.stateless_uniform((self.count,), of_kinds)
        chosen = tf.where(kinds < MASKED + SWAPPED, others % self.patches, places)
        chosen = tf.where(kinds < MASKED, self.patches, chosen)
        sources = tf.tensor_scatter_nd_update(
            tf.range(self.patches), places[:, None], chosen
        )
        return places, sources

    def finish(
        self, image: tf.Tensor, label: tf.Tensor, seed: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Makes inputs and targets of the model; the `finish` of `train.data.pipeline`.

        Targets are the colour classes of the corrupted patches, int32 (count,), or
        `NO_LABEL` where the label is.
        """
        places, sources = self.draw(seed)
        colours = tf.gather(colour_classes(mean_colours(image, self.grid_size)), places)
        colours = tf.where(label == NO_LABEL, NO_LABEL, colours)
        return {"images": image, "places": places, "sources": sources}, colours


def mean_colours(image: tf.Tensor, grid_size: tuple[int, int]) -> tf.Tensor:
    """Returns the mean colour of each patch, float32 (patches, 3) in [0, 255]."""
    rows, columns = grid_size
    height, width, _ = image.shape
    patches = tf.reshape(image, (rows, height // rows, columns, width // columns, 3))
    return tf.reshape(127.5 * tf.reduce_mean(patches, axis=(1, 3)) + 127.5, (-1, 3))


def colour_classes(colours: tf.Tensor | np.ndarray) -> tf.Tensor:
    """Returns the class of each colour (..., 3) in [0, 255], int32 (...) in [0, 512).

    Each channel has eight levels of equal width, [0, 32), [32, 64) and so on to [224,
    255]; red counts 64, green 8 and blue 1. A value within a thousandth below an edge
    belongs to that edge.
    """
    levels = tf.cast((colours + _SLACK) * (LEVELS / 256), tf.int32)
    return tf.reduce_sum(levels * [LEVELS**2, LEVELS, 1], axis=-1)


def build(recipe: MaskingRecipe) -> tuple[keras.Model, keras.Model, Corruption]:
    """Returns the model that is trained, its Vision Transformer, and the `Corruption`.

    The model maps the inputs of `Corruption.finish` to float32 logits (batch, count,
    512). It shares all variables with the Vision Transformer, which has no head, but
    [mask] and the head of colours.
    """
    _check(recipe)
    try:
        vit = keras_vit.VisionTransformer(
            recipe.model,
            recipe.weights,
            include_top=False,
            pooling=None,
            image_size=recipe.image_size,
            preparation="squash",
            dropout_rate=recipe.dropout,
            stochastic_depth_rate=recipe.stochastic_depth_rate,
            remat=recipe.remat,
        )
        # Weights without released names are refused before the run.
        released_variables(vit)
    except (ValueError, zoo.StoreError) as error:
        raise RunError(str(error)) from error
    grid_size = config_of(recipe).grid_size(vit.input_shape[1:3])
    corruption = Corruption(grid_size, recipe.corrupted_fraction)
    if corruption.patches < 2:
        raise RunError(
            f"An image of {vit.input_shape[1]}x{vit.input_shape[2]} is one patch of "
            f"{vit.name}, with no other patch to predict its colour from: raise "
            "--image_size."
        )
    places = keras.Input((corruption.count,), dtype="int32", name="places")
    sources = keras.Input((corruption.patches,), dtype="int32", name="sources")
    patches = vit.get_layer("embedding").output
    encoder = keras.Model(patches, vit.output, name="encoder")
    states = encoder(MaskPatches(name="mask_patches")(patches, sources))
    class_tokens = states.shape[1] - corruption.patches
    states = TakeTokens(name="corrupted")(states, places + class_tokens)
    logits = keras.layers.Dense(
        COLOURS, kernel_initializer="zeros", dtype="float32", name="colours"
    )(states)
    inputs = {"images": vit.input, "places": places, "sources": sources}
    return keras.Model(inputs, logits, name=f"masked_{vit.name}"), vit, corruption


def colour_loss(
    logits: keras.KerasTensor, colours: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns the mean cross-entropy over the corrupted patches, (batch,)."""
    losses = ops.sparse_categorical_crossentropy(
        colours, ops.cast(logits, "float32"), from_logits=True
    )
    return ops.mean(losses, axis=-1)


def colour_accuracy(
    logits: keras.KerasTensor, colours: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns the accuracy over the corrupted patches of each image, (batch,)."""
    predicted = ops.argmax(logits, axis=-1)
    hits = ops.equal(predicted, ops.cast(colours, predicted.dtype))
    return ops.mean(ops.cast(hits, "float32"), axis=-1)


def _check(recipe):
    if config_of(recipe).is_hybrid:
        name = recipe.model if isinstance(recipe.model, str) else "this ViTConfig"
        raise RunError(
            f"Masked patch prediction masks patches, and the ResNet of {name} sees "
            "beyond them: pass a --model without one, such as ViT-B_16."
        )
    if changed := recipe.changed("of_classifiers"):
        raise RunError(
            f"Masked patch prediction has no {changed[0]}: leave --{changed[0]} out."
        )

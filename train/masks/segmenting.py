"""A model of masks: what it computes of images, and the classes of pixels."""

from typing import Any

import keras
import numpy as np
from keras import ops

import keras_vit
from train.masks import windows
from train.masks.drawing import class_map


def classes_of_pixels(outputs: Any, size: tuple[int, int]) -> Any:
    """Returns the classes of pixels, an int tensor (batch, *size), of outputs."""
    # The largest of logits of this size is that of their softmax.
    if isinstance(outputs, dict) or tuple(outputs.shape[1:3]) != tuple(size):
        outputs = keras_vit.semantic_map(outputs, size)
    return ops.argmax(outputs, axis=-1)


class Segmenter:
    """Answers with the class of every pixel of images and of photos.

    Args:
        model: what `keras_vit.segmenter` returns, or a model with queries for masks.
    """

    def __init__(self, model: keras.Model):
        self.model = model
        self.size = tuple(model.input_shape[1:3])
        self._compiled = self._call
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            self._compiled = tf.function(
                self._call, autograph=False, reduce_retracing=True
            )

    def outputs(self, images: Any) -> Any:
        """Returns the outputs of the model for images (batch, height, width, 3)."""
        return self._compiled(ops.convert_to_tensor(images))

    def _call(self, images):
        return self.model(images, training=False)

    def maps(self, outputs: Any, size: tuple[int, int]) -> np.ndarray:
        """Returns the classes of pixels, int (batch, *size), of outputs."""
        return ops.convert_to_numpy(classes_of_pixels(outputs, size))

    def scores(self, images: np.ndarray) -> np.ndarray:
        """Returns the scores of classes, float32 (batch, rows, columns, classes)."""
        outputs = self.outputs(images)
        if not isinstance(outputs, dict):
            return ops.convert_to_numpy(outputs)
        return ops.convert_to_numpy(keras_vit.semantic_map(outputs))

    def __call__(self, photo: np.ndarray, slides: bool = False) -> np.ndarray:
        """Returns the class of every pixel of a photo, uint8 (height, width).

        The photo, uint8 (height, width, 3), is squashed to the model's size, or covered
        by windows of it if it `slides`, see `train.masks.windows`.
        """
        answer = windows.sliding if slides else windows.whole
        return class_map(answer(photo, self.scores, self.size), photo.shape[:2])

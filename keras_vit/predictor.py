"""Inference by a compiled forward pass."""

import keras
import numpy as np

from keras_vit.lean import lean
from keras_vit.structure import check_images_shape, warn_of_pixels


class Predictor:
    """A compiled forward pass from NumPy arrays to NumPy arrays.

    `keras.Model.predict` sets up a data pipeline and callbacks at each call, which
    takes longer than a small model does. This keeps the compiled function alone, and
    reads the model's weights anew at each call.

    Args:
        model: `keras.Model` with one input and one output.
        batch_size: int, images computed at a time.
        jit_compile: bool, whether XLA compiles the model on TensorFlow, which takes
            seconds to minutes and then is faster on some machines and slower on others
            (docs/performance.md). JAX always compiles, torch never. XLA compiles for
            one number of images: `batch_size`, and any smaller one that comes before.

    Call arguments:
        images: array (images, height, width, channels) as the model takes them: ours
            what `preprocess_input` returns. Images in [0, 255] are warned of once.

    Returns:
        Array of what the model puts out, images first.

    Raises:
        ValueError: the images are not of the model's shape, or an argument does not
            fit the model or the backend.

    Source:
        docs/performance.md.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> predictor = Predictor(model, batch_size=2)
        >>> predictor(np.zeros((3, 32, 32, 3), "float32")).shape
        (3, 10)
    """

    def __init__(self, model, batch_size=32, jit_compile=False):
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be a positive int, got {batch_size!r}.")
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            raise ValueError(
                f"{model.name} has {len(model.inputs)} inputs and "
                f"{len(model.outputs)} outputs: Predictor takes one of each."
            )
        backend = keras.backend.backend()
        if backend not in _COMPILED:
            raise ValueError(
                f"Predictor runs on {', '.join(_COMPILED)}, not on the {backend} "
                "backend: set KERAS_BACKEND."
            )
        self.model = model
        self.batch_size = batch_size
        self._forward = _COMPILED[backend](model, lean(model), jit_compile)
        # Compiled for one shape: the last and smaller batch is filled up to it.
        self._pad = backend == "jax" or jit_compile
        self._has_whole = self._has_warned = False
        self._checked = None

    def __call__(self, images):
        images = np.asarray(images, dtype=self.model.inputs[0].dtype)
        if images.shape != self._checked:
            check_images_shape(self.model, images.shape)
            self._checked = images.shape
        if not self._has_warned:
            self._has_warned = warn_of_pixels(self.model, images)
        batches = np.split(images, range(self.batch_size, len(images), self.batch_size))
        self._has_whole |= len(images) >= self.batch_size
        if self._pad and self._has_whole:
            missing = self.batch_size - len(batches[-1])
            widths = [(0, missing)] + [(0, 0)] * (images.ndim - 1)
            batches[-1] = np.pad(batches[-1], widths)
        outputs = [
            keras.ops.convert_to_numpy(self._forward(batch)) for batch in batches
        ]
        whole = np.concatenate(outputs) if outputs[1:] else outputs[0]
        return whole[: len(images)]


def _tensorflow(model, context, jit_compile):
    import tensorflow as tf

    images_spec = tf.TensorSpec(model.input_shape, model.inputs[0].dtype)

    @tf.function(
        input_signature=[images_spec], jit_compile=jit_compile or None, autograph=False
    )
    def forward(images):
        with context():
            return model(images, training=False)

    return forward


def _jax(model, context, jit_compile):
    del jit_compile
    import jax

    @jax.jit
    def forward(trainable, non_trainable, images):
        with context():
            outputs, _ = model.stateless_call(
                trainable, non_trainable, images, training=False
            )
        return outputs

    def with_current_weights(images):
        return forward(
            [variable.value for variable in model.trainable_variables],
            [variable.value for variable in model.non_trainable_variables],
            images,
        )

    return with_current_weights


def _torch(model, context, jit_compile):
    import torch

    if jit_compile:
        raise ValueError(
            "jit_compile is XLA's, which torch does not have: leave it out, or set "
            "KERAS_BACKEND=jax."
        )

    @torch.inference_mode()
    def forward(images):
        with context():
            return model(keras.ops.convert_to_tensor(images), training=False)

    return forward


_COMPILED = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}

"""The model's own forward pass, compiled by the backend of Keras."""

from typing import Any

import keras

from keras_vit.runtimes.batches import filled, in_batches
from keras_vit.runtimes.precision import recast
from zoo.runtimes import KERAS


class Compiled:
    """A compiled forward pass, which reads the model's weights anew at each call."""

    engine = KERAS

    def __init__(
        self,
        model: keras.Model,
        batch_size: int,
        precision: str,
        jit_compile: bool = False,
    ):
        backend = keras.backend.backend()
        if backend not in _COMPILED:
            raise ValueError(
                f"Predictor runs on {', '.join(_COMPILED)}, not on the {backend} "
                "backend: set KERAS_BACKEND."
            )
        forward = _forward(model, precision)
        self._forward = _COMPILED[backend](model, forward, jit_compile)
        self._batch_size = batch_size
        # Compiled for one shape: the last and smaller batch is filled up to it.
        self._pad = backend == "jax" or jit_compile
        self._has_whole = False

    def is_outdated(self) -> bool:
        """Returns False: weights are read at each call."""
        return False

    def update(self) -> None:
        """Does nothing, as nothing is ever outdated."""

    def __call__(self, images):
        self._has_whole |= len(images) >= self._batch_size
        return in_batches(self._of_batch, images, self._batch_size)

    computed = __call__

    def _of_batch(self, images):
        given = images
        if self._pad and self._has_whole:
            given = filled(images, self._batch_size)
        return keras.ops.convert_to_numpy(self._forward(given))[: len(images)]


def _forward(model, precision):
    """Returns a function from weights and images to a model's outputs.

    The weights are the values of trainable and of other variables.
    """
    copy = recast(model, "mixed_bfloat16") if precision == "bfloat16" else model

    def forward(trainable: list, non_trainable: list, images: Any) -> Any:
        outputs, _ = copy.stateless_call(
            trainable, non_trainable, images, training=False
        )
        return outputs if copy is model else keras.ops.cast(outputs, "float32")

    return forward


def _values(model):
    variables = model.trainable_variables, model.non_trainable_variables
    return [[variable.value for variable in some] for some in variables]


def _tensorflow(model, forward, jit_compile):
    import tensorflow as tf

    images_spec = tf.TensorSpec(model.input_shape, model.inputs[0].dtype)

    @tf.function(
        input_signature=[images_spec], jit_compile=jit_compile or None, autograph=False
    )
    def of_images(images: Any) -> Any:
        return forward(*_values(model), images)

    return of_images


def _jax(model, forward, jit_compile):
    del jit_compile
    import jax

    forward = jax.jit(forward)
    return lambda images: forward(*_values(model), images)


def _torch(model, forward, jit_compile):
    import torch

    if jit_compile:
        raise ValueError(
            "jit_compile is XLA's, which torch does not have: leave it out, or set "
            "KERAS_BACKEND=jax."
        )

    @torch.inference_mode()
    def of_images(images: Any) -> Any:
        return forward(*_values(model), keras.ops.convert_to_tensor(images))

    return of_images


_COMPILED = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}

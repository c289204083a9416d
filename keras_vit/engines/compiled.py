"""The model's own forward pass, compiled by the backend of Keras."""

import keras
import numpy as np

from keras_vit.engines.batches import filled, split
from keras_vit.lean import lean


class Compiled:
    """A compiled forward pass, which reads the model's weights anew at each call."""

    def __init__(self, model, batch_size, jit_compile=False):
        backend = keras.backend.backend()
        if backend not in _COMPILED:
            raise ValueError(
                f"Predictor runs on {', '.join(_COMPILED)}, not on the {backend} "
                "backend: set KERAS_BACKEND."
            )
        self._forward = _COMPILED[backend](model, lean(model), jit_compile)
        self._batch_size = batch_size
        # Compiled for one shape: the last and smaller batch is filled up to it.
        self._pad = backend == "jax" or jit_compile
        self._has_whole = False

    def __call__(self, images):
        batches = split(images, self._batch_size)
        self._has_whole |= len(images) >= self._batch_size
        if self._pad and self._has_whole:
            batches[-1] = filled(batches[-1], self._batch_size)
        outputs = [
            keras.ops.convert_to_numpy(self._forward(batch)) for batch in batches
        ]
        whole = np.concatenate(outputs) if outputs[1:] else outputs[0]
        return whole[: len(images)]


def sample_of_weights(model):
    """Returns a function to some values of each of a model's weights, as one array.

    They are up to 32, evenly spread over the weight, and always the same.
    """
    weights = model.weights

    def sample(values):
        parts = [keras.ops.zeros(1)]
        for value in values:
            flat = keras.ops.reshape(value, (-1,))
            part = flat[:: max(flat.shape[0] // 16, 1)]
            parts.append(keras.ops.cast(part, "float32"))
        return keras.ops.concatenate(parts)

    def of_values(function):
        return lambda: function([weight.value for weight in weights])

    backend, run = keras.backend.backend(), of_values(sample)
    if backend == "tensorflow":
        import tensorflow as tf

        run = tf.function(run, autograph=False)
    elif backend == "jax":
        import jax

        run = of_values(jax.jit(sample))
    return lambda: keras.ops.convert_to_numpy(run())


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

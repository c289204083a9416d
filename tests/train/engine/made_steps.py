"""Small models, batches and trainers of the backend that Keras has."""

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from train.engine import devices
from train.engine.optimizers import MomentumSGD

IS_JAX = keras.backend.backend() == "jax"
DEVICES = devices.start()
CLASSES = 3
TINY = keras_vit.ViTConfig(
    hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, patch_size=4
)


def tiny_vit(config=TINY, image_size=8, **settings):
    keras.utils.set_random_seed(0)
    settings = {"image_size": image_size, "classes": CLASSES, **settings}
    model = keras_vit.VisionTransformer(config, **settings)
    # Zeros of the head would stop every gradient below it.
    kernel = model.get_layer("head").kernel
    kernel.assign(np.random.default_rng(1).normal(0, 0.3, kernel.shape))
    return model


def two_matrices():
    """Returns a model whose gradients are easily written down."""
    keras.utils.set_random_seed(0)
    images = keras.Input((2, 2, 3))
    hidden = keras.layers.Dense(5, use_bias=False, name="hidden")
    head = keras.layers.Dense(CLASSES, name="head")
    return keras.Model(images, head(hidden(keras.layers.Flatten()(images))))


def trainer_of(make, rate=0.1, devices=DEVICES, **settings):
    """Returns the trainer of the model that a function makes."""
    if IS_JAX:
        from train.engine.jax_backend import JaxTrainer as Trainer
    else:
        from train.engine.tensorflow_backend import TensorFlowTrainer as Trainer
    with devices.strategy.scope():
        optimizer = MomentumSGD(rate)
        return Trainer(make(), optimizer, strategy=devices.strategy, **settings)


def noise(count, size, side, seed=0):
    """Returns so many batches of images and labels, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    return [
        (
            rng.uniform(-1, 1, (size, side, side, 3)).astype("float32"),
            rng.integers(0, CLASSES, size).astype("int32"),
        )
        for _ in range(count)
    ]


def placed(batch, devices=DEVICES):
    """Returns a batch as trainers on the devices take it."""
    whole = tf.data.Dataset.from_tensor_slices(batch)
    size = len(batch[1])
    [found] = devices.batches(lambda share: whole.batch(size // share.devices))
    return found


def batches_of(count, size, side, seed=0):
    return [placed(batch) for batch in noise(count, size, side, seed)]


def values(variables):
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def assert_equal(found, expected, tolerance=0):
    """Compares arrays one by one."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)

"""A model as a SavedModel that TensorFlow Hub loads, without this package."""

import contextlib
import logging
import pathlib

import keras
import tensorflow as tf

from train.data.preprocessing import squash, to_model_range
from train.errors import RunError
from train.files import whole_folder

# What models of keras_vit end in: with their head, and without.
_LAST_LAYERS = ("head", "pre_logits", "pooling")


def write_saved_model(model, folder):
    """Writes a model in TensorFlow 2's format, with TensorFlow Hub's signatures.

    `tensorflow_hub.load`, `tensorflow_hub.KerasLayer` and `tf.saved_model.load` open
    it. What is loaded is called as `loaded(images, training=False)`:

    - `images` are float32 (batch, height, width, channels) in [0, 1], which is not
      checked, of any size: they are resized as for evaluation. There are 3 channels,
      red, green and blue; or 1 where the model has 1.
    - The result is float32: the logits (batch, classes) or, of a model without head,
      its features (batch, hidden_size or representation_size). A head's activation is
      left out, so a softmax is for the caller to take.
    - `training=True` turns on the dropout and stochastic depth that the model has.
      Gradients reach `loaded.trainable_variables`.

    The signatures take `images` and return `{"default": ...}`: `image_classification`
    the logits, `image_feature_vector` what goes into the head, `serving_default` the
    same as a call.

    Args:
        model: a model of `keras_vit`, with or without head, pooled.
        folder: str or path, made if missing. A SavedModel that is there is replaced
            whole, once the new one is complete.

    Raises:
        ValueError: the model is no such model.
        RunError: the folder holds something else, or cannot be written.

    Source:
        https://www.tensorflow.org/hub/reusable_saved_models and
        https://www.tensorflow.org/hub/common_saved_model_apis/images; the names of the
        signatures from https://www.tensorflow.org/hub/common_signatures/images.

    Example:

    >>> model = keras_vit.VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
    >>> write_saved_model(model, "exported")
    >>> tuple(tf.saved_model.load("exported")(tf.zeros((2, 48, 64, 3))).shape)
    (2, 10)
    """
    _check_model(model)
    _check_folder(pathlib.Path(folder))
    package, signatures = _package(model)
    with whole_folder(folder) as temporary, _without_notices():
        try:
            tf.saved_model.save(package, str(temporary), signatures=signatures)
        except tf.errors.OpError as error:
            raise OSError(error.message) from error


def _check_model(model):
    last = model.layers[-1].name
    if len(model.output_shape) != 2:
        raise ValueError(
            f"{model.name} puts out {model.output_shape}, all tokens, where TensorFlow "
            'Hub expects one vector an image: build it with pooling="token" or "gap".'
        )
    if last not in _LAST_LAYERS:
        raise ValueError(
            f"{model.name} ends in the layer {last!r}: pass a model as keras_vit makes "
            f"it, which ends in one of {', '.join(_LAST_LAYERS)}."
        )


def _check_folder(folder):
    is_other = folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
    if is_other and not (folder / "saved_model.pb").exists():
        raise RunError(
            f"{folder} is there and is no SavedModel, which could be replaced: choose "
            "another folder, or remove it."
        )


def _package(model):
    """What the loaded object is made of, and the signatures."""
    *image_size, channels = model.input_shape[1:]
    images = tf.TensorSpec((None, None, None, channels), tf.float32, name="images")
    head = model.layers[-1] if model.layers[-1].name == "head" else None
    body = keras.Model(model.input, head.input) if head else model

    @tf.function(autograph=False)
    def features(images, training=False):
        pixels = 255.0 * squash(images, image_size)
        outputs = body(to_model_range(pixels), training=training)
        return tf.cast(outputs, tf.float32)

    @tf.function(autograph=False)
    def logits(images, training=False):
        return tf.matmul(features(images, training), head.kernel) + head.bias

    def signature(answer):
        return tf.function(
            lambda images: {"default": answer(images)},
            input_signature=[images],
            autograph=False,
        )

    call = logits if head else features
    for training in (False, True):
        call.get_concrete_function(images, training=training)
    package = tf.train.Checkpoint()
    package.__call__ = call
    package.variables = [variable.value for variable in model.variables]
    package.trainable_variables = [
        variable.value for variable in model.trainable_variables
    ]
    package.regularization_losses = []
    signatures = {
        "serving_default": signature(call),
        "image_feature_vector": signature(features),
    }
    if head:
        signatures["image_classification"] = signature(logits)
    return package, signatures


@contextlib.contextmanager
def _without_notices():
    """Keeps TensorFlow from naming the temporary folder it writes to."""
    loggers = [logging.getLogger(name) for name in ("absl", "tensorflow")]

    # Not their levels: in the midst of saving, TensorFlow sets absl's back.
    def is_warning(record):
        return record.levelno >= logging.WARNING

    try:
        for logger in loggers:
            logger.addFilter(is_warning)
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_warning)

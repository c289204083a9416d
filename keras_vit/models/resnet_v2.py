"""ResNet50V2 of Keras, to compare with."""

import os

import keras

from keras_vit.layers import ClassificationHead
from keras_vit.models.base import Description, Model
from keras_vit.structure import architectures
from zoo.network import ResNetV2Config, pair


def ResNet50V2(  # noqa: N802
    config: str | ResNetV2Config,
    weights: str | os.PathLike | None = None,
    *,
    image_size: int | tuple[int, int] = 224,
    classes: int,
) -> Model:
    """Returns Keras's ResNet50V2 with a new head of zeros, from images in [-1, 1].

    Its batch normalisation takes its statistics of each micro-batch on each device, not
    of the batch, and under `tf.distribute.MirroredStrategy` each device keeps moving
    averages of its own, of which a saved model has those of the first: train it on one
    device, in few and large micro-batches.

    Args:
        config: `zoo.network.ResNetV2Config`, or its name `"ResNet50V2"`.
        weights: None for random ones, the `.h5` of one without its head, or
            `"imagenet"`, which Keras downloads.
        image_size: int or (height, width) in pixels.
        classes: int, the size of the head.

    Returns:
        A functional `keras.Model` from float images (batch, height, width, 3) to
        float32 logits (batch, classes).

    Raises:
        ValueError: an argument does not fit, or the weights cannot be loaded.

    Source:
        arXiv 1603.05027, `keras.applications.ResNet50V2`.

    Example:
        >>> ResNet50V2("ResNet50V2", image_size=64, classes=10).output_shape
        (None, 10)
    """
    height, width = image_size = pair(image_size, "image_size")
    try:
        body = keras.applications.ResNet50V2(
            include_top=False,
            weights=weights,
            input_shape=(height, width, 3),
            pooling="avg",
        )
    # Keras raises a plain Exception where a download fails.
    except Exception as error:
        known = 'the .h5 of one without its head, or "imagenet", which Keras downloads'
        hint = f" (weights are {known}, or none)" if weights else ""
        raise ValueError(f"ResNet50V2 cannot be built: {error}{hint}") from error
    logits = ClassificationHead(
        classes, kernel_initializer="zeros", dtype="float32", name="head"
    )(body.output)
    description = Description(ResNetV2Config(), image_size)
    return Model(body.input, logits, name=body.name, description=description)


architectures.register(
    architectures.Architecture(
        "ResNet of Keras", ResNetV2Config, ResNet50V2, batch_norm=True
    )
)

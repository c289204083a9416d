"""The ResNet of the hybrid models."""

import keras

from keras_vit.layers import ResidualUnit, StdConv2D
from keras_vit.layers.residual_unit import group_norm


def resnet(images, stages, width):
    """Applies the hybrids' ResNet as layers of a functional model.

    Args:
        images: Keras tensor (batch, height, width, channels).
        stages: sequence of ints, bottleneck units a stage; may be empty.
        width: int, channels of the root convolution.

    Returns:
        Keras tensor (batch, rows, columns, features).

    Source:
        Paper section 3.1 "Hybrid Architecture"; `conv_root` and `block1/unit1`, ... in
        the released files.

    Example:

    >>> images = keras.Input((64, 64, 3))
    >>> resnet(images, stages=(2, 2), width=64).shape
    (None, 8, 8, 512)
    """
    features = StdConv2D(width, 7, strides=2, name="conv_root")(images)
    features = group_norm("gn_root")(features)
    features = keras.layers.ReLU(name="root_relu")(features)
    features = keras.layers.MaxPooling2D(
        3, strides=2, padding="same", data_format="channels_last", name="root_pool"
    )(features)
    for stage, num_units in enumerate(stages, start=1):
        for unit in range(1, num_units + 1):
            features = ResidualUnit(
                filters=width * 2 ** (stage - 1),
                strides=2 if stage > 1 and unit == 1 else 1,
                name=f"resnet_stage_{stage}_unit_{unit}",
            )(features)
    return features

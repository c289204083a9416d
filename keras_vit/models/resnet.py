"""The ResNet of the hybrid models."""

import keras

from keras_vit.layers import ResidualUnit, StdConv2D
from keras_vit.layers.residual_unit import group_norm


def resnet(images, stages, width, padding="same", epsilons="released"):
    """Applies the hybrids' ResNet (paper section 3.1) as layers of a functional model.

    `stages` has the bottleneck units of each stage and may be empty, `width` is of the
    root convolution; padding and epsilons are those of `StdConv2D` and `ResidualUnit`.
    """
    features = StdConv2D(
        width, 7, strides=2, padding=padding, epsilons=epsilons, name="conv_root"
    )(images)
    features = group_norm("gn_root", epsilons=epsilons)(features)
    features = keras.layers.ReLU(name="root_relu")(features)
    if padding == "symmetric":
        # Zeros never win: the features are none below zero.
        features = keras.layers.ZeroPadding2D(
            1, data_format="channels_last", name="root_pad"
        )(features)
    features = keras.layers.MaxPooling2D(
        3,
        strides=2,
        padding="valid" if padding == "symmetric" else padding,
        data_format="channels_last",
        name="root_pool",
    )(features)
    for stage, num_units in enumerate(stages, start=1):
        for unit in range(1, num_units + 1):
            features = ResidualUnit(
                filters=width * 2 ** (stage - 1),
                strides=2 if stage > 1 and unit == 1 else 1,
                padding=padding,
                epsilons=epsilons,
                name=f"resnet_stage_{stage}_unit_{unit}",
            )(features)
    return features

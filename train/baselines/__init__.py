"""ResNet baselines to compare a Vision Transformer with."""

import keras

import keras_vit
from train.baselines.bit_resnet import BIT_VARIANTS, BiT_R50x1, BiTConfig, BiTResNet
from train.baselines.bit_weights import load_bit_weights, save_bit_weights
from train.common.errors import RunError
from zoo.network import pair

__all__ = [
    "BASELINES", "BIT_VARIANTS", "BiTConfig", "BiTResNet", "BiT_R50x1", "build",
    "load_bit_weights", "save_bit_weights",
]  # fmt: skip


def build(name, *, weights=None, image_size=224, classes):
    """Returns one of `BASELINES` with a new head of zeros, from images in [-1, 1].

    `weights` are those that `BASELINES` names, or None for random ones.

    The batch normalisation of ResNet50V2 takes its statistics of each micro-batch on
    each device, not of the batch, and under `tf.distribute.MirroredStrategy` each
    device keeps moving averages of its own, of which a saved model has those of the
    first: train it on one device, in few and large micro-batches. BiT has group norms
    and depends on neither.

    Source:
        BiT: arXiv 1912.11370. ResNet50V2: arXiv 1603.05027, `keras.applications`.
    """
    if name not in BASELINES:
        raise RunError(
            f"There is no baseline {name!r}: choose one of {', '.join(BASELINES)}."
        )
    make, known_weights = BASELINES[name]
    try:
        body = make(weights, pair(image_size, "image_size"))
    # Keras raises a plain Exception where a download fails.
    except Exception as error:
        hint = f" (weights are {known_weights}, or none)" if weights else ""
        raise RunError(f"The baseline {name} cannot be built: {error}{hint}") from error
    logits = keras_vit.layers.ClassificationHead(
        classes, kernel_initializer="zeros", dtype="float32", name="head"
    )(body.output)
    return keras.Model(body.input, logits, name=body.name)


def _bit_r50x1(weights, image_size):
    return BiT_R50x1(weights, include_top=False, image_size=image_size)


def _resnet50v2(weights, image_size):
    return keras.applications.ResNet50V2(
        include_top=False,
        weights=weights,
        input_shape=(*image_size, 3),
        pooling="avg",
    )


# Name -> function of weights and (height, width) to a model that gives features, and
# the weights that it takes.
BASELINES = {
    "BiT-R50x1": (
        _bit_r50x1,
        "the path or URL of a released .npz such as "
        "https://storage.googleapis.com/bit_models/BiT-M-R50x1.npz",
    ),
    "ResNet50V2": (
        _resnet50v2,
        'the .h5 of one without its head, or "imagenet", which Keras downloads',
    ),
}

"""BiT's ResNets (Big Transfer) as functional models."""

import dataclasses

import keras

from keras_vit.layers import StdConv2D, initial_values
from keras_vit.layers.residual_unit import group_norm
from keras_vit.models import arguments
from train.baselines.bit_weights import assign, head_size, read
from train.baselines.pre_activation_unit import PreActivationUnit
from zoo.network import pair, positive_int


@dataclasses.dataclass(frozen=True)
class BiTConfig:
    """The architecture of a BiT ResNet: bottleneck units of each stage, and how wide.

    Source:
        Big Transfer, arXiv 1912.11370, section 3.1.
    """

    depths: tuple[int, ...]
    width_factor: int = 1


BIT_VARIANTS = {
    "BiT-R50x1": BiTConfig((3, 4, 6, 3)),
    "BiT-R50x3": BiTConfig((3, 4, 6, 3), width_factor=3),
    "BiT-R101x1": BiTConfig((3, 4, 23, 3)),
    "BiT-R101x3": BiTConfig((3, 4, 23, 3), width_factor=3),
    "BiT-R152x2": BiTConfig((3, 8, 36, 3), width_factor=2),
    "BiT-R152x4": BiTConfig((3, 8, 36, 3), width_factor=4),
}


@arguments.takes_own_arguments
def BiTResNet(  # noqa: N802 - reads as the model it returns
    config,
    weights=None,
    *,
    include_top=True,
    image_size=None,
    classes=None,
    new_head=False,
    classifier_activation=None,
    channels=3,
    dtype=None,
    name=None,
):
    """Returns a ResNet of BiT (Big Transfer), with or without released weights.

    It has group norms instead of statistics of batches: it trains with batches,
    micro-batches and devices as a Vision Transformer does.

    Arguments, result and errors are those of `keras_vit.VisionTransformer`, but that
    `config` is the name of a released variant such as `"BiT-R50x1"`, or a `BiTConfig`,
    and `weights` are None for random ones, or the path or URL of an `.npz` in the
    released naming of BiT, which `save_bit_weights` writes too.

    Source:
        Kolesnikov et al., Big Transfer, arXiv 1912.11370, and its released code: 1e-10
        is added to the variance of a kernel, 1e-5 to that of a group. timm adds 1e-8 to
        the former and computes the same otherwise. Checked against timm with random
        weights under the released names; the released files have not been opened.

    Example:
        >>> BiTResNet(BiTConfig((1, 2)), image_size=(64, 96), classes=10).output_shape
        (None, 10)
    """
    own_name = "bit_resnet"
    if isinstance(config, str):
        if config not in BIT_VARIANTS:
            raise ValueError(
                f"Unknown variant {config!r}: choose one of "
                f"{', '.join(BIT_VARIANTS)}, or pass a BiTConfig."
            )
        own_name = config.lower().replace("-", "_")
        config = BIT_VARIANTS[config]
    if not include_top:
        arguments.check_without_head(
            classes=classes,
            new_head=new_head,
            classifier_activation=classifier_activation,
        )
    if classes is not None:
        hint = "; a model without head has include_top=False"
        classes = positive_int(classes, "classes", hint)
    channels = positive_int(channels, "channels")
    image_size = pair(224 if image_size is None else image_size, "image_size")
    path, arrays = (None, None) if weights is None else read(weights)
    of_file = None if weights is None else head_size(arrays)
    if include_top and classes is None and weights is not None and of_file is None:
        raise ValueError(
            f"{path} has no head: pass classes=K for a new one, or include_top=False."
        )
    classes = classes or of_file or 1000

    with arguments.dtype_policy(dtype), initial_values.left_out(weights is not None):
        images = arguments.images_input(image_size, channels)
        outputs = _body(images, config)
        if include_top:
            outputs = keras.layers.Dense(
                classes,
                activation=classifier_activation,
                kernel_initializer="zeros",
                dtype=arguments.head_dtype(),
                name="head",
            )(outputs)
        model = keras.Model(images, outputs, name=name or own_name)
    if weights is not None:
        assign(model, path, arrays, new_head=new_head or classes != of_file)
    return model


def _body(images, config):
    width = 64 * config.width_factor
    features = StdConv2D(
        width, 7, strides=2, padding="symmetric", epsilons="bit", name="root_conv"
    )(images)
    # Zeros, which win over what is below zero: no ReLU comes before.
    features = keras.layers.ZeroPadding2D(
        1, data_format="channels_last", name="root_pad"
    )(features)
    features = keras.layers.MaxPooling2D(
        3, strides=2, data_format="channels_last", name="root_pool"
    )(features)
    for stage, num_units in enumerate(config.depths, start=1):
        for unit in range(1, num_units + 1):
            features = PreActivationUnit(
                filters=width * 2 ** (stage - 1),
                strides=2 if stage > 1 and unit == 1 else 1,
                name=f"block{stage}_unit{unit:02d}",
            )(features)
    features = group_norm("norm", epsilons="bit")(features)
    features = keras.layers.ReLU(name="relu")(features)
    return keras.layers.GlobalAveragePooling2D(
        data_format="channels_last", name="pooling"
    )(features)


@arguments.takes_own_arguments
def BiT_R50x1(weights=None, **options):  # noqa: N802 - named as released
    """Returns BiT-R50x1, with released or random weights.

    The arguments are those of `BiTResNet`.

    Source:
        Big Transfer, arXiv 1912.11370. Released are, among others,
        https://storage.googleapis.com/bit_models/BiT-M-R50x1.npz (ImageNet-21k) and
        BiT-S-R50x1.npz (ImageNet), which have not been opened with this.

    Example:
        >>> BiT_R50x1(image_size=64, classes=10).output_shape
        (None, 10)
    """
    return BiTResNet("BiT-R50x1", weights, **options)

"""BiT's ResNets (Big Transfer), the second architecture."""

import collections
import os
import re

import keras

from keras_vit.layers import (
    ClassificationHead,
    PreActivationUnit,
    StdConv2D,
    initial_values,
)
from keras_vit.layers.residual_unit import group_norm, root_pool, stages
from keras_vit.models import arguments
from keras_vit.models.base import Description, Model
from keras_vit.structure import architectures
from keras_vit.weights.named_files import NamedArrays, NamedFiles
from keras_vit.weights.released_places import ReleasedPlaces
from zoo.network import BIT_VARIANTS, BiTConfig, pair, positive_int

_ROOT = "resnet/root_block/standardized_conv2d/kernel"
_LARGEST_KERNEL = re.compile(r"resnet/block(\d)/unit\d\d/b/standardized_conv2d/kernel")
_HEAD_KERNEL, _HEAD_BIAS = "resnet/head/conv2d/kernel", "resnet/head/conv2d/bias"
# Layer of a model -> {released key: the variable's place in the layer}. Numbers in a
# layer's name fill the braces of its keys.
_LAYERS = {
    r"root_conv": {_ROOT: "kernel"},
    r"block(\d)_unit(\d\d)": {
        f"resnet/block{{}}/unit{{}}/{key}": place
        for number, part in enumerate("abc", 1)
        for key, place in {
            f"{part}/standardized_conv2d/kernel": f"conv{number}.kernel",
            f"{part}/group_norm/gamma": f"gn{number}.gamma",
            f"{part}/group_norm/beta": f"gn{number}.beta",
        }.items()
    }
    | {
        "resnet/block{}/unit{}/a/proj/standardized_conv2d/kernel": "conv_proj.kernel",
    },
    r"norm": {"resnet/group_norm/gamma": "gamma", "resnet/group_norm/beta": "beta"},
    r"head": {_HEAD_KERNEL: "kernel", _HEAD_BIAS: "bias"},
}


def _released_shape(key, shape, _):
    # The released head is a convolution of 1x1.
    return (1, 1, *shape) if key == _HEAD_KERNEL else shape


def _config_of(shapes):
    width, depths = shapes[_ROOT][-1], collections.Counter()
    for key, shape in shapes.items():
        # Its other kernels are no larger: so a model is at most twice its file.
        if match := _LARGEST_KERNEL.fullmatch(key):
            filters = width * 2 ** (int(match[1]) - 1)
            depths[match[1]] += shape == (3, 3, filters, filters)
    depths = [units for _, units in sorted(depths.items()) if units]
    return BiTConfig(depths, width // 64)


FILES = NamedFiles(
    ReleasedPlaces(_LAYERS, _released_shape),
    "BiT",
    head=(_HEAD_KERNEL, _HEAD_BIAS),
    mark=_ROOT,
    config_of=_config_of,
)


@arguments.takes_own_arguments
def BiTResNet(  # noqa: N802 - reads as the model it returns
    config: str | BiTConfig,
    weights: str | os.PathLike | NamedArrays | None = None,
    *,
    include_top: bool = True,
    image_size: int | tuple[int | None, int | None] | None = None,
    classes: int | None = None,
    new_head: bool = False,
    classifier_activation: str | None = None,
    channels: int = 3,
    dtype: str | keras.DTypePolicy | None = None,
    name: str | None = None,
) -> keras.Model:
    """Returns a ResNet of BiT (Big Transfer), with or without released weights.

    It has group norms instead of statistics of batches: it trains with batches,
    micro-batches and devices as a Vision Transformer does.

    Arguments, result and errors are those of `keras_vit.VisionTransformer`, but that
    `config` is the name of a released variant such as `"BiT-R50x1"`, or a `BiTConfig`,
    and `weights` are None for random ones, or the path or URL of an `.npz` in the
    released naming of BiT, which `keras_vit.save_released_weights` writes too. Released
    are, among others, https://storage.googleapis.com/bit_models/BiT-M-R50x1.npz
    (ImageNet-21k) and BiT-S-R50x1.npz (ImageNet).

    Source:
        Kolesnikov et al., Big Transfer, arXiv 1912.11370, and its released code: 1e-10
        is added to the variance of a kernel, 1e-5 to that of a group. timm adds 1e-8 to
        the former and computes the same otherwise. Checked against timm with random
        weights under the released names; the released files have not been opened.

    Example:
        >>> BiTResNet(BiTConfig((1, 2)), image_size=(64, 96), classes=10).output_shape
        (None, 10)
    """
    config, variant = arguments.network_of(config, BiTConfig, BIT_VARIANTS)
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
    file = None if weights is None else FILES.read(weights)
    if include_top:
        classes, new_head = arguments.classes_of_head(classes, new_head, file)
    if not name:
        name = (variant or "bit_resnet").lower().replace("-", "_")

    with arguments.dtype_policy(dtype), initial_values.left_out(file is not None):
        images = arguments.images_input(image_size, channels)
        outputs = _body(images, config)
        if include_top:
            outputs = ClassificationHead(
                classes,
                activation=classifier_activation,
                kernel_initializer="zeros",
                dtype=arguments.head_dtype(),
                name="head",
            )(outputs)
        description = Description(config, image_size)
        model = Model(images, outputs, name=name, description=description)
    if file is not None:
        FILES.assign(model, file, new_head=new_head)
    return model


def _body(images, config):
    width = 64 * config.width_factor
    features = StdConv2D(
        width, 7, strides=2, padding="symmetric", epsilons="bit", name="root_conv"
    )(images)
    features = root_pool(features, "symmetric")
    name = "block{}_unit{:02d}"
    features = stages(features, PreActivationUnit, config.depths, width, name)
    features = group_norm("norm", epsilons="bit")(features)
    features = keras.layers.ReLU(name="relu")(features)
    return keras.layers.GlobalAveragePooling2D(
        data_format="channels_last", name="pooling"
    )(features)


architectures.register(
    architectures.Architecture("BiT ResNet", BiTConfig, BiTResNet, files=FILES)
)

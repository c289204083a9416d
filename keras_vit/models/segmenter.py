"""Segmenters: Vision Transformers with a head for the class of every pixel."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import keras

from keras_vit.layers import ClassificationHead
from keras_vit.models.arguments import (
    ANY_SIZE,
    dtype_policy,
    number_of_classes,
    takes_own_arguments,
)
from keras_vit.models.features import Features, features
from keras_vit.models.network import build
from keras_vit.models.resizing import at_image_size
from keras_vit.structure import (
    architectures,
    bits_of,
    check_model,
    check_no_queries,
    preparation_of,
)
from keras_vit.structure.architectures import check_one_grid
from keras_vit.structure.image_sizes import size_step, takes_any_size
from zoo.common.safe_text import brief
from zoo.network import pair, positive_int
from zoo.network.head import NO_OBJECT

# The arguments of `segmenter` that one head alone takes, with their defaults.
_OPTIONS: dict[str, dict[str, Any]] = {
    "linear": {"layers": 1},
    "eomt": {
        "num_queries": 100,
        "query_blocks": 4,
        "upscale_blocks": None,
        "masked_steps": None,
    },
}


@takes_own_arguments
def segmenter(
    backbone: keras.Model,
    classes: int | None = None,
    *,
    class_names: Sequence[str] | None = None,
    head: str = "linear",
    layers: int | Iterable[int] | None = None,
    num_queries: int | None = None,
    query_blocks: int | None = None,
    upscale_blocks: int | None = None,
    masked_steps: int | None = None,
    frozen: bool = False,
    name: str | None = None,
) -> keras.Model:
    """Returns a model that segments images, made of a Vision Transformer for `fit`.

    With the linear head it gives every pixel logits of classes: a batch norm, a 1x1
    convolution and bilinear upsampling on maps of patches. It shares the weights of
    the backbone. Keras has its losses and metrics,
    `SparseCategoricalCrossentropy(from_logits=True, ignore_class=255)` and
    `MeanIoU(classes, ignore_class=255, sparse_y_pred=False)`, which take masks (batch,
    height, width) of class numbers, where 255 is unlabelled.

    With `"eomt"` it is a network of its own with the weights of the backbone, whose
    last blocks have queries, each for a mask and its class, as EoMT. It is compiled
    with `keras_vit.MaskLoss` and takes the same masks and metrics.
    `keras_vit.semantic_map` makes one map of what it gives.

    A new head for classes starts at zero; queries, masks and upscaling start at random
    as those of EoMT do.

    Args:
        backbone: functional `keras.Model` of `TransformerBlock` layers, with or without
            its head, for images of one size or of any; for `"eomt"` a model of
            `keras_vit`.
        classes: int, how many; by default as many as there are names.
        class_names: sequence of str, which are saved with the model.
        head: `"linear"` or `"eomt"`.
        layers: of the linear head, how many of the last blocks give the maps that it
            reads, by default 1, 4 also in DINOv2's evaluation; or the numbers of
            blocks, see `features`. The model's final norm is applied to each, and they
            are concatenated.
        num_queries: of EoMT, int, how many masks; by default 100.
        query_blocks: of EoMT, int, how many of the last blocks have queries; by default
            4, or all of fewer.
        upscale_blocks: of EoMT, int, how often the sides of the grid of patches are
            doubled for the masks; by default 2 with patches of 16 pixels, so that a
            mask has a quarter of the image's sides.
        masked_steps: of EoMT, the steps of the whole training, in which the attention
            of queries to patches is masked, see `MaskAnnealing`, and every block with
            queries has losses of its own; by default None for neither. `rebuild()`
            leaves it out of a trained model.
        frozen: bool, whether the backbone is frozen, as one is whose `trainable` is
            False: its weights stay, with a linear head in `backbone` too, and nothing
            is dropped in it.
        name: str, by default that of the backbone and `_segmenter`.

    Returns:
        Functional `keras.Model` from the images of the backbone: to logits (batch,
        height, width, classes) in float32 or float64; with `"eomt"` to the dict that
        `VisionTransformer(..., pooling="queries")` gives.

    Raises:
        ValueError: the backbone is no such model, has no such layers, or an argument is
            of the other head.

    Source:
        Oquab et al. (DINOv2), arXiv 2304.07193, section 7.4: `BNHead` of its code,
        whose kernel starts with a deviation of 0.01. Kerssies et al. (EoMT), arXiv
        2503.19108, section 3.2.

    Example:
        >>> backbone = VisionTransformer("ViT-Ti_16", image_size=(32, 48))
        >>> segmenter(backbone, classes=5, layers=4, frozen=True).output_shape
        (None, 32, 48, 5)
        >>> masks = segmenter(backbone, classes=5, head="eomt").output["mask_logits"]
        >>> masks.shape
        (None, 100, 8, 12)
    """
    check_model(backbone)
    if classes is None and class_names is None:
        raise ValueError(
            f"The segmenter of {backbone.name} does not know its classes: pass "
            "classes= or class_names=."
        )
    classes = number_of_classes(classes, class_names)
    name = name or f"{backbone.name}_segmenter"
    options = _options(
        head,
        layers=layers,
        num_queries=num_queries,
        query_blocks=query_blocks,
        upscale_blocks=upscale_blocks,
        masked_steps=masked_steps,
    )
    frozen = frozen or not backbone.trainable
    make = _linear if head == "linear" else _eomt
    return make(backbone, classes, class_names, frozen, name, **options)


def _options(head, **options):
    """Returns the arguments of a head, of those that are not None."""
    if head not in _OPTIONS:
        raise ValueError(
            f"head must be one of {', '.join(_OPTIONS)}, got {brief(head)}: pass "
            'head="linear".'
        )
    given = {name: one for name, one in options.items() if one is not None}
    if others := given.keys() - _OPTIONS[head].keys():
        raise ValueError(
            f"{', '.join(sorted(others))} is no argument of the head {head!r}, which "
            f"takes {', '.join(_OPTIONS[head])}: leave it out, or pass another head."
        )
    return _OPTIONS[head] | given


def _linear(backbone, classes, class_names, frozen, name, layers):
    maps = _maps(features(backbone, _blocks(layers)))
    if frozen:
        maps.trainable = False
    [images] = backbone.inputs
    images = keras.Input(images.shape[1:], dtype=images.dtype, name="images")
    compute_dtype = _dtype_policy(backbone).compute_dtype
    dtype = "float64" if compute_dtype == "float64" else "float32"
    # PyTorch's momentum of 0.1 is of the new values.
    normed = keras.layers.BatchNormalization(
        momentum=0.9, epsilon=1e-5, dtype=dtype, name="head_norm"
    )(maps(images))
    logits = ClassificationHead(
        classes,
        class_names=class_names,
        preparation=preparation_of(backbone),
        bits=bits_of(backbone),
        kernel_initializer="zeros",
        dtype=dtype,
        name="head",
    )(normed)
    logits = keras.layers.UpSampling2D(
        size_step(backbone), interpolation="bilinear", dtype=dtype, name="upsampling"
    )(logits)
    return keras.Model(images, logits, name=name)


def _maps(model):
    """Returns the model of maps with one output, the maps one behind the other."""
    # By their numbers, as sorted names would have 10 before 9.
    order = sorted(model.output, key=lambda name: int(name.rpartition("_")[2]))
    maps = [model.output[name] for name in order]
    if len(maps) > 1:
        maps = [keras.layers.Concatenate(name="maps")(maps)]
    return Features(model.input, *maps, name=model.name)


def _eomt(
    backbone,
    classes,
    class_names,
    frozen,
    name,
    num_queries,
    query_blocks,
    upscale_blocks,
    masked_steps,
):
    check_no_queries(backbone)
    check_one_grid(backbone)
    config = architectures.config_of(backbone)
    if upscale_blocks is None:
        # As in EoMT's code; patches of a hybrid have one place.
        doublings = int(math.log2(max(pair(config.patch_size, "patch_size"))))
        upscale_blocks = max(min(1, doublings), doublings - 2)
    config = dataclasses.replace(
        config,
        num_queries=positive_int(num_queries, "num_queries"),
        query_blocks=min(query_blocks, config.num_layers),
        upscale_blocks=upscale_blocks,
    )
    if masked_steps is not None:
        masked_steps = positive_int(masked_steps, "masked_steps")
    with dtype_policy(_dtype_policy(backbone)):
        model = build(
            config,
            backbone.description.image_size,
            channels=backbone.input_shape[-1],
            class_token=backbone.description.class_token,
            pooling="queries",
            head={
                "units": classes + 1,
                "class_names": class_names and (*class_names, NO_OBJECT),
            },
            preparation=preparation_of(backbone),
            bits=bits_of(backbone),
            masked_steps=masked_steps,
            name=name,
        )
    own = {layer.name: layer for layer in backbone.layers}
    for layer in model.layers:
        if layer.name in own and layer.name not in ("pooling", "head"):
            layer.set_weights(own[layer.name].get_weights())
            layer.trainable = own[layer.name].trainable and not frozen
    if takes_any_size(backbone):
        model = at_image_size(model, ANY_SIZE)
    return model


def _blocks(layers):
    """Returns the numbers of the blocks whose maps are read."""
    if isinstance(layers, int) and not isinstance(layers, bool):
        return range(-positive_int(layers, "layers"), 0)
    if isinstance(layers, str) or not isinstance(layers, Iterable):
        raise ValueError(
            f"layers must be a number of last blocks or numbers of blocks, got "
            f"{brief(layers)}: pass 1, 4 or (5, 11)."
        )
    layers = tuple(layers)
    if any(isinstance(one, str) for one in layers):
        raise ValueError(
            f"layers of a segmenter are numbers of blocks, got {brief(layers)}: leave "
            "out what gives no map, such as the class token."
        )
    return layers


def _dtype_policy(backbone):
    return next(one for one in backbone.layers if one.weights).dtype_policy

"""Models that name the class of every pixel, on the patches of a Vision Transformer."""

from collections.abc import Iterable, Sequence

import keras

from keras_vit.layers import ClassificationHead
from keras_vit.models.arguments import number_of_classes, takes_own_arguments
from keras_vit.models.features import features
from keras_vit.structure import bits_of, check_model, preparation_of
from keras_vit.structure.image_sizes import size_step
from zoo.common.safe_text import brief
from zoo.network import positive_int


@takes_own_arguments
def segmenter(
    backbone: keras.Model,
    classes: int | None = None,
    *,
    class_names: Sequence[str] | None = None,
    layers: int | Iterable[int] = 1,
    frozen: bool = False,
    name: str | None = None,
) -> keras.Model:
    """Returns a model that gives every pixel of an image logits of classes.

    The head is linear: a batch norm, a convolution of one place and bilinear
    upsampling on maps of patches. It starts at zero, and shares the weights of the
    backbone. `fit` trains it with what Keras has: `SparseCategoricalCrossentropy(
    from_logits=True, ignore_class=255)` and `MeanIoU(classes, ignore_class=255,
    sparse_y_pred=False)` take masks (batch, height, width) of class numbers, where 255
    is unlabelled.

    Args:
        backbone: functional `keras.Model` of `TransformerBlock` layers, with or without
            its head, for images of one size or of any.
        classes: int, how many; by default as many as there are names.
        class_names: sequence of str, which are saved with the model.
        layers: int, how many of the last blocks give the maps that the head reads, 1
            or 4 in DINOv2's evaluation; or the numbers of blocks, see `features`. The
            model's final norm is applied to each, and they are concatenated.
        frozen: bool, whether the backbone is frozen, as one is whose `trainable` is
            False: its weights stay, in `backbone` too, and nothing is dropped in it.
        name: str, by default that of the backbone and `_segmenter`.

    Returns:
        Functional `keras.Model` from the images of the backbone to logits (batch,
        height, width, classes), in float32 or float64.

    Raises:
        ValueError: the backbone is no such model or has no such layers.

    Source:
        Oquab et al. (DINOv2), arXiv 2304.07193, section 7.4: `BNHead` of its code,
        whose kernel starts with a deviation of 0.01.

    Example:
        >>> backbone = VisionTransformer("ViT-Ti_16", image_size=(32, 48))
        >>> segmenter(backbone, classes=5, layers=4, frozen=True).output_shape
        (None, 32, 48, 5)
    """
    check_model(backbone)
    if classes is None and class_names is None:
        raise ValueError(
            f"The segmenter of {backbone.name} does not know its classes: pass "
            "classes= or class_names=."
        )
    classes = number_of_classes(classes, class_names)
    maps = features(backbone, _blocks(layers))
    if frozen or not backbone.trainable:
        maps.trainable = False
    [images] = backbone.inputs
    images = keras.Input(images.shape[1:], dtype=images.dtype, name="images")
    found = maps(images)
    # By their numbers, as sorted names would have 10 before 9.
    order = sorted(found, key=lambda name: int(name.rpartition("_")[2]))
    patches = [found[name] for name in order]
    if len(patches) > 1:
        patches = [keras.layers.Concatenate(name="maps")(patches)]
    dtype = _dtype_of_logits(backbone)
    # PyTorch's momentum of 0.1 is of the new values.
    normed = keras.layers.BatchNormalization(
        momentum=0.9, epsilon=1e-5, dtype=dtype, name="head_norm"
    )(*patches)
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
    return keras.Model(images, logits, name=name or f"{backbone.name}_segmenter")


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


def _dtype_of_logits(backbone):
    policy = next(one for one in backbone.layers if one.weights).dtype_policy
    return "float64" if policy.compute_dtype == "float64" else "float32"

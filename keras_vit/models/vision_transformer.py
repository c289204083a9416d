"""The Vision Transformer as a functional model."""

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

import keras

import zoo
from keras_vit.layers import initial_values
from keras_vit.layers.poolings import POOLINGS
from keras_vit.models import arguments
from keras_vit.models.arguments import ANY_SIZE
from keras_vit.models.base import Model
from keras_vit.models.network import build
from keras_vit.models.resizing import at_image_size
from keras_vit.structure import architectures
from keras_vit.weights import loading
from zoo.catalog.locate import read_located
from zoo.network import (
    ViTConfig,
    finite_float,
    nearest_size,
    pair,
    positive_int,
    rate,
)
from zoo.network.head import NO_OBJECT, ONE_CLASS, Head
from zoo.network.position_embedding import METHODS
from zoo.network.preparation import check_preparation

# Names of Keras and timm -> what to pass here instead.
_OTHER_POOLINGS = {
    "avg": ': the mean over the patches is pooling="gap" here',
    "max": ": take the maximum over the tokens that include_top=False, pooling=None "
    "gives",
}


@arguments.takes_own_arguments
def VisionTransformer(  # noqa: N802 - reads as the model it returns
    config: str | ViTConfig,
    weights: str | os.PathLike | zoo.Checkpoint | None = None,
    *,
    include_top: bool = True,
    image_size: int | tuple[int | None, int | None] | None = None,
    classes: int | None = None,
    class_names: Sequence[str] | str | None = None,
    preparation: str | None = None,
    new_head: bool = False,
    pooling: str | None = "token",
    classifier_activation: str | None = None,
    representation_size: int | None = None,
    head_bias_init: float = 0.0,
    dropout_rate: float = 0.0,
    stochastic_depth_rate: float = 0.0,
    remat: bool = False,
    position_embedding_method: str | None = None,
    channels: int = 3,
    dtype: str | keras.DTypePolicy | None = None,
    name: str | None = None,
) -> Model:
    """Returns a Vision Transformer of any size, with or without released weights.

    Args:
        config: `ViTConfig`, or the name of a released variant such as `"ViT-B_16"`.
        weights: None for random ones, the name of a release of the variant such as
            `"imagenet21k"`, the path or URL of a file that `zoo.read` reads (released,
            timm, transformers, keras-hub), or a `zoo.Checkpoint`; see `zoo.locate`.
            The model computes what the source of the file does.
        include_top: bool, whether the model ends in its classification head.
        image_size: int or (height, width) in pixels; by default that of the file, 224
            without a file. Position embeddings are resized to it. (None, None) gives a
            model for images of any size, which does so for the images it is given, see
            `at_image_size`.
        classes: int, the size of the head; by default that of the file, 1000 without
            one. A number other than the file's gets a new head of zeros. With queries
            it has one output more, the last, for "no object".
        class_names: sequence of str, the names of the classes, which are saved with the
            model; `classes` may then be left out. By default those that the file, the
            settings beside it or its card have, unless the head is new.
        preparation: how `classify` and `embed` bring photos to `image_size`:
            `"squash"`, as the released evaluation does, or another of
            `zoo.photos.prepare`; by default that of the file, else `"squash"`.
        new_head: bool, whether the head is new although the file has one of this many
            classes, which may be others.
        pooling: `"token"` for the class token's state, `"gap"` for the mean over the
            patches, None for all tokens. With `"gap"` there is a class token where the
            file has one; the file's head, which was trained on it, is then refused.
            Of other families there are `"map"` for attention pooling,
            `"token_and_gap"` for the class token's state and the mean,
            `"distilled"` for a distilled DeiT, and `"queries"` for the masks of an
            EoMT, which has no queries with another pooling or without its head.
        classifier_activation: None for logits, or an activation such as `"softmax"`.
        representation_size: int, the size of the tanh layer before the head; by default
            that of the file where its head is loaded, else there is none.
        head_bias_init: float, of the biases of a new head. AugReg pre-trains with a
            sigmoid from -10 on ImageNet-21k and -6.9 on ImageNet.
        dropout_rate: float in [0, 1).
        stochastic_depth_rate: float in [0, 1), of the last block, falling linearly to
            0 at the first.
        remat: bool, whether training takes less memory and a third more time, see
            `TransformerBlock`.
        position_embedding_method: `"released"`, `"bilinear"`, `"bicubic"`, ..., see
            `zoo.resize`; by default that of the library whose file it is.
        channels: int, of the images. With weights of 3 channels also 1, but not for
            hybrids, which equals giving the gray value three times; or others, such as
            4 and 12, by timm's rule: the kernels of the three are repeated and
            multiplied by 3 / channels, and all have the mean of the weights' means and
            deviations.
        dtype: str or `keras.DTypePolicy` of all layers, such as `"mixed_bfloat16"`; by
            default the global one, which stays as it is. The head is in float32, and
            in float64 with `"float64"`.
        name: str, by default the variant's.

    Returns:
        A functional `keras.Model` from float images (batch, height, width, channels)
        in [-1, 1] to logits (batch, classes) in the head's dtype. Without the head to
        (batch, hidden_size) in the compute dtype; without pooling there is one more
        axis, of tokens. With `pooling="queries"` to a dict: `"class_logits"` (batch,
        queries, classes + 1), and `"mask_logits"` (batch, queries, rows, columns) in
        the compute dtype, the mask of each query.

    Raises:
        ValueError: an argument does not fit the others or the file.
        TypeError: an argument is unknown.
        zoo.CatalogError, zoo.StoreError: there is no such release or file.
        zoo.CheckpointError: the file is not a whole checkpoint.

    Source:
        Paper section 3.1; the released `.npz` files. Other sources: `zoo.read`.

    Example:
        >>> config = ViTConfig(hidden_size=64, num_layers=2, num_heads=2, mlp_dim=128,
        ...                    patch_size=8)
        >>> model = VisionTransformer(config, image_size=32, classes=10)
        >>> tuple(model(keras.ops.zeros((1, 32, 32, 3))).shape)
        (1, 10)
    """
    config, variant = arguments.network_of(config, zoo.ViTConfig, zoo.VARIANTS)
    _check_choices(pooling, preparation, position_embedding_method)
    head_bias_init = finite_float(head_bias_init, "head_bias_init")
    if not include_top:
        arguments.check_without_head(
            classes=classes,
            class_names=class_names,
            new_head=new_head,
            classifier_activation=classifier_activation,
            head_bias_init=head_bias_init or None,
        )
    classes = arguments.number_of_classes(classes, class_names)
    representation_size = _unless_none(
        positive_int, representation_size, "representation_size"
    )
    channels = positive_int(channels, "channels")
    dropout_rate = rate(dropout_rate, "dropout_rate")
    stochastic_depth_rate = rate(stochastic_depth_rate, "stochastic_depth_rate")
    name = name or _name_of(variant)

    image_size = _unless_none(arguments.size_of, image_size)
    config, checkpoint, stated = _read(config, weights, variant, include_top, pooling)
    pooling, classes, class_names = _of_queries(
        pooling, include_top, classes, class_names, checkpoint
    )
    head = None
    if include_top:
        classes, new_head = arguments.classes_of_head(classes, new_head, checkpoint)
        head = _head(stated, new_head, classes, class_names) | {
            "activation": classifier_activation,
            "bias_initializer": keras.initializers.Constant(head_bias_init),
        }
    keeps_head = checkpoint is not None and include_top and not new_head
    if keeps_head:
        _check_new_bias(head_bias_init, checkpoint)
        representation_size = representation_size or checkpoint.representation_size
    _check_tokens(pooling, config, name)
    pooled = _pooling(pooling, config)

    with arguments.dtype_policy(dtype), initial_values.left_out(checkpoint is not None):
        model = build(
            config,
            _image_size(image_size, config, checkpoint, variant or name),
            channels=channels,
            class_token=_has_class_token(checkpoint, pooling),
            pooling=pooled,
            pooling_options=_pooling_options(checkpoint, pooled, keeps_head),
            representation_size=representation_size,
            head=head,
            preparation=preparation or stated.preparation or "squash",
            bits=stated.bits,
            dropout_rate=dropout_rate,
            stochastic_depth_rate=stochastic_depth_rate,
            remat=remat,
            name=name,
        )
    if image_size == ANY_SIZE:
        model = at_image_size(model, ANY_SIZE, position_embedding_method)
    if checkpoint is not None:
        loading.assign(model, checkpoint, new_head, position_embedding_method)
    return model if pooled == pooling else _without_pooling(model)


def load_model(
    weights: str | os.PathLike | zoo.Checkpoint,
    *,
    patch_size: int | tuple[int, int] | None = None,
    **options: Any,
) -> keras.Model:
    """Returns the model that some weights are of, whatever its architecture.

    Args:
        weights: what `zoo.locate` finds, such as `"vit-b16/sam"` or the path of a file,
            or a `zoo.Checkpoint`.
        patch_size: None for that of the weights, or int or (height, width) in pixels,
            to which the patch embedding is resized; FlexiViT is trained for that.
        **options: of `VisionTransformer`, or of what makes models of another
            architecture, such as `classes` or `image_size`. Pooling and channels are by
            default those of the weights.

    Returns:
        A functional `keras.Model`; see `VisionTransformer`, also for the errors raised.
        The head has the names of its classes where the settings beside a file or the
        card of a released or published model say them.

    Source:
        The names and sizes of the arrays, and what else `zoo.read` knows of a file.

    Example:
        >>> tiny = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> load_model(save_released_weights(tiny, "tiny.npz"), classes=5).output_shape
        (None, 5)
    """
    if (of_file := architectures.of_file(weights)) is not None:
        architecture, config = of_file
        if patch_size is not None:
            options["patch_size"] = patch_size
        return architecture.make(config, weights, **options)
    checkpoint = read_located(weights)
    if patch_size is not None:
        checkpoint = checkpoint.with_patch_size(patch_size)
    options.setdefault("pooling", checkpoint.pooling)
    options.setdefault("channels", checkpoint.channels)
    return VisionTransformer(zoo.ViTConfig(), checkpoint, **options)


def _check_choices(pooling, preparation, position_embedding_method):
    if pooling not in (*POOLINGS, None):
        raise ValueError(
            f'pooling must be "token", "gap" or None, got {pooling!r}'
            f"{_OTHER_POOLINGS.get(pooling, '')}."
        )
    if preparation is not None:
        check_preparation(preparation)
    if position_embedding_method not in (None, *METHODS):
        raise ValueError(
            f"position_embedding_method: unknown method {position_embedding_method!r}, "
            f"choose from {METHODS}."
        )


def _of_queries(pooling, include_top, classes, class_names, checkpoint):
    """Returns pooling and outputs: of a head of queries one more, for no object."""
    if pooling != "queries":
        return pooling, classes, class_names
    if not include_top:
        return "token", classes, class_names
    if class_names is not None and not isinstance(class_names, str):
        class_names = (*class_names, NO_OBJECT)
    if classes is None and checkpoint is None:
        classes = 1000
    return "queries", classes and classes + 1, class_names


def _check_tokens(pooling, config, name):
    if (pooling == "queries") != bool(config.num_queries):
        raise ValueError(
            'pooling="queries" and the num_queries of the ViTConfig go together, and '
            f"{name} has num_queries={config.num_queries} and pooling={pooling!r}: "
            "pass both or neither."
        )
    if pooling == "distilled" and not config.distillation_token:
        raise ValueError(
            f'pooling="distilled" needs a distillation token, which {name} has not: '
            "pass another pooling, or distillation_token=True in the ViTConfig."
        )


def _unless_none(check, value, *about):
    return None if value is None else check(value, *about)


def _name_of(variant):
    return re.sub("[+-]", "_", variant or "vision_transformer").lower()


def _read(config, weights, variant, include_top, pooling):
    """Returns the config with nothing left to a file, the `Checkpoint` and its `Head`.

    Without weights there is no checkpoint, and nothing is stated of the head. What has
    queries is taken for its encoder if the model is to have none.
    """
    if not include_top:
        config = config.without_queries()
    if weights is None:
        return config.completed(), None, Head()
    if not config.has_released_positions:
        raise ValueError(
            "The weights of files go with learned position embeddings added at the "
            f"stem, and the ViTConfig has position_embedding="
            f"{config.position_embedding!r} and position_embedding_at="
            f"{config.position_embedding_at!r}: leave these out, or pass weights=None."
        )
    checkpoint = read_located(weights, variant, config.num_heads)
    if not include_top or pooling != "queries":
        config, checkpoint = config.without_queries(), checkpoint.without_queries()
    config = config.completed(checkpoint.config, checkpoint.path)
    return config, checkpoint, checkpoint.head


def _head(stated, new_head, classes, class_names):
    """Returns what arguments and a file say of the head's answers, a dict."""
    stated = Head() if new_head else stated
    return {
        "units": classes,
        "class_names": class_names or stated.class_names,
        "problem_type": stated.problem_type or ONE_CLASS,
    }


def _pooling(pooling, config):
    """Returns the pooling of the whole model, of which a model of tokens is a part."""
    if pooling is None and config.norm_after_pooling:
        return "gap"
    return pooling


def _without_pooling(model):
    description = dataclasses.replace(model.description, pooling=None)
    all_tokens = model.get_layer("pooling").input
    return Model(model.input, all_tokens, name=model.name, description=description)


def _check_new_bias(head_bias_init, checkpoint):
    if head_bias_init != 0.0:
        raise ValueError(
            f"head_bias_init={head_bias_init!r} is for a new head, and that of "
            f"{checkpoint.path} is kept: leave it out, or pass new_head=True or "
            "another number of classes."
        )


def _image_size(image_size, config, checkpoint, name):
    """Returns the (height, width) to build a network for, before it takes any size."""
    any_size = image_size == ANY_SIZE
    if any_size:
        image_size = None
    if image_size is None and checkpoint is not None:
        if checkpoint.grid_size is None and checkpoint.num_positions:
            raise ValueError(
                f"{checkpoint.path} has {checkpoint.num_positions} positions, which is "
                "not a square grid: pass the image_size=(height, width) it was trained "
                "at."
            )
        # Without a table of positions no file needs to know its images' size.
        image_size = checkpoint.image_size
    if image_size is None:
        image_size = nearest_size((224, 224), config.stride) if any_size else 224
    image_size = pair(image_size, "image_size")
    config.grid_size(image_size, name=name)  # refuses what cannot be cut
    return image_size


def _has_class_token(checkpoint, pooling):
    """Whether a network has one: with the mean over patches, if its file has."""
    if checkpoint is not None and pooling != "token":
        return checkpoint.class_token
    return pooling is None or POOLINGS[pooling].class_token


def _pooling_options(checkpoint, pooling, keeps_head):
    """Returns what a file says of the layer that pools."""
    if checkpoint is None:
        return {}
    if pooling == "distilled" and keeps_head:
        return {"concatenate": checkpoint.default_pooling == "distilled"}
    if pooling == "map" and checkpoint.pooling_heads:
        return {
            "num_heads": checkpoint.pooling_heads,
            "mlp_dim": checkpoint.pooling_mlp_dim,
        }
    return {}


architectures.register(
    architectures.Architecture(
        "Vision Transformer",
        zoo.ViTConfig,
        VisionTransformer,
        files=loading,
        one_grid=True,
    )
)

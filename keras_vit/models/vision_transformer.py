"""The Vision Transformer as a functional model."""

import dataclasses
import functools
import re

import keras

import zoo
from keras_vit import layers
from keras_vit.layers import initial_values
from keras_vit.layers.residual_unit import group_norm
from keras_vit.models import arguments
from keras_vit.models.arguments import ANY_SIZE
from keras_vit.models.base import Description, Model
from keras_vit.models.resizing import at_image_size
from keras_vit.weights.loading import assign, read_weights
from zoo.catalog.similar import similar_variants
from zoo.head import ONE_CLASS, Head
from zoo.network import finite_float, pair, positive_int, rate
from zoo.position_embedding import METHODS
from zoo.preparation import check_preparation
from zoo.text import brief

# By the kind of pooling: a layer, for a number of tokens before those of the patches.
_POOLINGS = {
    "token": lambda prefix: layers.ClassTokenPooling,
    "gap": lambda prefix: (
        functools.partial(layers.PatchPooling, prefix)
        if prefix
        else functools.partial(
            keras.layers.GlobalAveragePooling1D, data_format="channels_last"
        )
    ),
    "token_and_gap": lambda prefix: functools.partial(
        layers.ClassTokenAndPatchPooling, prefix
    ),
    "distilled": lambda prefix: layers.DistillationPooling,
    "map": lambda prefix: functools.partial(
        layers.AttentionPooling, num_prefix_tokens=prefix
    ),
}
# Of Keras and timm, with what is here instead.
_OTHER_POOLINGS = {
    "avg": ': the mean over the patches is pooling="gap" here',
    "max": ": take the maximum over the tokens that include_top=False, pooling=None "
    "gives",
}


@arguments.takes_own_arguments
def VisionTransformer(  # noqa: N802 - reads as the model it returns
    config,
    weights=None,
    *,
    include_top=True,
    image_size=None,
    classes=None,
    class_names=None,
    preparation=None,
    new_head=False,
    pooling="token",
    classifier_activation=None,
    representation_size=None,
    head_bias_init=0.0,
    dropout_rate=0.0,
    stochastic_depth_rate=0.0,
    remat=False,
    position_embedding_method=None,
    channels=3,
    dtype=None,
    name=None,
):
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
            one. A number other than the file's gets a new head of zeros.
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
            `"token_and_gap"` for the class token's state and the mean, and
            `"distilled"` for a distilled DeiT.
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
        axis, of tokens.

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
    if not isinstance(config, (str, zoo.ViTConfig)):
        raise ValueError(
            f"config must be a ViTConfig or the name of a variant, got {brief(config)}:"
            f" pass one of {', '.join(zoo.ARCHITECTURES)}."
        )
    variant = config if isinstance(config, str) else None
    if variant is not None:
        if variant not in zoo.ARCHITECTURES:
            near = similar_variants(variant, zoo.ARCHITECTURES)
            hint = f"did you mean {' or '.join(near)}? Choose" if near else "choose"
            raise ValueError(
                f"Unknown variant {variant!r}: {hint} one of "
                f"{', '.join(zoo.ARCHITECTURES)}, or pass a ViTConfig."
            )
        config = zoo.ARCHITECTURES[variant]
    if pooling not in (*_POOLINGS, None):
        raise ValueError(
            f'pooling must be "token", "gap" or None, got {pooling!r}'
            f"{_OTHER_POOLINGS.get(pooling, '')}."
        )
    head_bias_init = finite_float(head_bias_init, "head_bias_init")
    if not include_top:
        arguments.check_without_head(
            classes=classes,
            class_names=class_names,
            new_head=new_head,
            classifier_activation=classifier_activation,
            head_bias_init=head_bias_init or None,
        )
    if preparation is not None:
        check_preparation(preparation)
    classes = arguments.number_of_classes(classes, class_names)
    if classes is not None:
        hint = "; names are class_names=, a model without head has include_top=False"
        classes = positive_int(classes, "classes", hint)
    if representation_size is not None:
        representation_size = positive_int(representation_size, "representation_size")
    channels = positive_int(channels, "channels")
    dropout_rate = rate(dropout_rate, "dropout_rate")
    stochastic_depth_rate = rate(stochastic_depth_rate, "stochastic_depth_rate")
    if position_embedding_method not in (None, *METHODS):
        raise ValueError(
            f"position_embedding_method: unknown method {position_embedding_method!r}, "
            f"choose from {METHODS}."
        )
    if weights is not None and not config.has_released_positions:
        raise ValueError(
            "The weights of files go with learned position embeddings added at the "
            f"stem, and the ViTConfig has position_embedding="
            f"{config.position_embedding!r} and position_embedding_at="
            f"{config.position_embedding_at!r}: leave these out, or pass weights=None."
        )
    if not name:
        name = re.sub("[+-]", "_", (variant or "vision_transformer").lower())

    any_size = image_size is not None and arguments.size_of(image_size) == ANY_SIZE
    if any_size:
        image_size = None
    checkpoint = None
    class_token = pooling not in ("gap", "map")
    if weights is None:
        config = config.completed()
    else:
        checkpoint = read_weights(weights, variant, config.num_heads)
        path = checkpoint.path
        config = config.completed(checkpoint.config, path)
        if pooling != "token":
            class_token = checkpoint.class_token
        if image_size is None:
            if checkpoint.grid_size is None and checkpoint.num_positions:
                raise ValueError(
                    f"{path} has {checkpoint.num_positions} positions, which is not "
                    "a square grid: pass the image_size=(height, width) it was trained "
                    "at."
                )
            # Without a table of positions no file needs to know its images' size.
            image_size = checkpoint.image_size
        if include_top and classes is None:
            classes = checkpoint.classes
            if classes is None:
                raise ValueError(
                    f"{path} has no head: pass classes=K for a new one, or "
                    "include_top=False."
                )
        new_head = new_head or classes != checkpoint.classes
        if include_top and not new_head:
            representation_size = representation_size or checkpoint.representation_size
            if head_bias_init != 0.0:
                raise ValueError(
                    f"head_bias_init={head_bias_init!r} is for a new head, and that of "
                    f"{path} is kept: leave it out, or pass new_head=True or another "
                    "number of classes."
                )
    if image_size is None:
        image_size = _nearest(224, config.stride) if any_size else 224
    image_size = pair(image_size, "image_size")
    said = checkpoint.head if checkpoint else Head()
    preparation, bits = preparation or said.preparation or "squash", said.bits
    if new_head:
        said = Head()
    grid_size = config.grid_size(image_size, name=variant or name)
    if pooling == "distilled" and not config.distillation_token:
        raise ValueError(
            f'pooling="distilled" needs a distillation token, which {name} has not: '
            "pass another pooling, or distillation_token=True in the ViTConfig."
        )
    # A norm behind the pooling belongs to a whole model: tokens are of a part of one.
    pooled = pooling or ("gap" if config.norm_after_pooling else None)

    with arguments.dtype_policy(dtype), initial_values.left_out(checkpoint is not None):
        images = arguments.images_input(image_size, channels)
        features = _resnet(images, config) if config.is_hybrid else images
        tokens = layers.PatchEncoder(
            config.patch_size,
            config.hidden_size,
            preparation,
            bits,
            name="embedding",
        )(features)
        at_stem, *at_blocks = _positions(config, grid_size)
        for layer in _before_blocks(config, class_token, at_stem):
            tokens = layer(tokens)
        tokens = keras.layers.Dropout(dropout_rate, name="dropout")(tokens)
        if config.norm_before_blocks:
            tokens = layers.LayerNorm(
                config.layer_norm_epsilon, name="norm_before_blocks"
            )(tokens)
        # Where the file or the config only says that there are factors.
        layer_scale = 1e-5 if config.layer_scale is True else config.layer_scale
        relative = config.position_embedding == "relative"
        biased = config.relative_position_bias
        placed = relative or biased or config.rotary != "none"
        for index, positions in enumerate(at_blocks):
            if positions is not None:
                tokens = positions(tokens)
            depth = index / max(config.num_layers - 1, 1)
            tokens = layers.TransformerBlock(
                num_heads=config.num_heads,
                mlp_dim=config.mlp_dim,
                dropout_rate=dropout_rate,
                stochastic_depth_rate=stochastic_depth_rate * depth,
                activation=config.activation,
                layer_norm_epsilon=config.layer_norm_epsilon,
                relative_positions=relative,
                grid_size=grid_size if placed else None,
                num_registers=config.num_registers + config.distillation_token,
                rotary=config.rotary,
                rotary_grid=config.rotary_grid,
                rotary_base=config.rotary_base,
                attention_norm_inside=config.attention_norm_inside,
                mlp_norm_inside=config.mlp_norm_inside,
                norm_after=config.norm_after_branches,
                layer_scale=layer_scale or None,
                qkv_bias=config.qkv_bias,
                relative_bias=config.relative_position_resizing if biased else None,
                name=f"encoder_block_{index}",
            )(tokens, remat=remat)
        norm = functools.partial(layers.LayerNorm, config.layer_norm_epsilon)
        if not config.final_norm:
            # That the model is whole is seen by its layers' names.
            tokens = keras.layers.Identity(name="no_encoder_norm")(tokens)
        elif not config.norm_after_pooling:
            tokens = norm(name="encoder_norm")(tokens)
        if pooled is not None:
            prefix = config.num_registers + config.distillation_token + class_token
            options = {"name": "pooling"}
            two_heads = checkpoint is not None and (
                checkpoint.default_pooling == "distilled"
            )
            if pooled == "distilled" and two_heads and include_top and not new_head:
                options["concatenate"] = True
            if pooled == "map":
                found = checkpoint if checkpoint and checkpoint.pooling_heads else None
                # Perception Encoder's attends to the class token too.
                if config.rotary == "perception":
                    prefix = 0
                options |= {
                    "num_heads": found.pooling_heads if found else config.num_heads,
                    "mlp_dim": found.pooling_mlp_dim if found else config.mlp_dim,
                    "activation": config.activation,
                    "layer_norm_epsilon": config.layer_norm_epsilon,
                }
            tokens = _POOLINGS[pooled](prefix)(**options)(tokens)
        if config.norm_after_pooling:
            tokens = norm(name="norm_after_pooling")(tokens)
        if representation_size is not None:
            tokens = keras.layers.Dense(
                representation_size,
                activation="tanh",
                kernel_initializer="lecun_normal",
                name="pre_logits",
            )(tokens)
        if include_top:
            tokens = layers.ClassificationHead(
                1000 if classes is None else classes,
                class_names=class_names or said.class_names,
                preparation=preparation,
                problem_type=said.problem_type or ONE_CLASS,
                bits=bits,
                activation=classifier_activation,
                kernel_initializer="zeros",
                bias_initializer=keras.initializers.Constant(head_bias_init),
                dtype=arguments.head_dtype(),
                name="head",
            )(tokens)
        description = Description(config, image_size, class_token, pooled)
        model = Model(images, tokens, name=name, description=description)

    if any_size:
        model = at_image_size(model, ANY_SIZE, position_embedding_method)
    if checkpoint is not None:
        assign(model, checkpoint, new_head, position_embedding_method)
    if pooled != pooling:
        description = dataclasses.replace(model.description, pooling=pooling)
        all_tokens = model.get_layer("pooling").input
        return Model(model.input, all_tokens, name=name, description=description)
    return model


def load_model(weights, *, patch_size=None, **options):
    """Returns the model that some weights are of, whatever its architecture.

    Args:
        weights: what `zoo.locate` finds, such as `"vit-b16/sam"` or the path of a file,
            or a `zoo.Checkpoint`.
        patch_size: None for that of the weights, or int or (height, width) in pixels,
            to which the patch embedding is resized; FlexiViT is trained for that.
        **options: of `VisionTransformer`, such as `classes` or `image_size`. Pooling
            and channels are by default those of the weights.

    Returns:
        A functional `keras.Model`; see `VisionTransformer`, also for the errors raised.
        The head has the names of its classes where the settings beside a file or the
        card of a released or published model say them.

    Source:
        The sizes of the arrays, and what else `zoo.read` knows of a file.

    Example:
        >>> tiny = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> load_model(save_released_weights(tiny, "tiny.npz"), classes=5).output_shape
        (None, 5)
    """
    checkpoint = read_weights(weights)
    if patch_size is not None:
        checkpoint = checkpoint.with_patch_size(patch_size)
    options.setdefault("pooling", checkpoint.pooling)
    options.setdefault("channels", checkpoint.channels)
    return VisionTransformer(zoo.ViTConfig(), checkpoint, **options)


def _nearest(size, steps):
    """Returns the sides that are multiples of steps, nearest to a size."""
    return tuple(max(round(size / step), 1) * step for step in steps)


def _resnet(images, config):
    """The ResNet of the hybrids (paper section 3.1), whose stages may be empty."""
    options = {"padding": config.resnet_padding, "epsilons": config.resnet_epsilons}
    width, symmetric = config.resnet_width, config.resnet_padding == "symmetric"
    features = layers.StdConv2D(width, 7, strides=2, name="conv_root", **options)(
        images
    )
    features = group_norm("gn_root", config.resnet_epsilons)(features)
    features = keras.layers.ReLU(name="root_relu")(features)
    if symmetric:
        # Zeros never win: the features are none below zero.
        features = keras.layers.ZeroPadding2D(
            1, data_format="channels_last", name="root_pad"
        )(features)
    features = keras.layers.MaxPooling2D(
        3,
        strides=2,
        padding="valid" if symmetric else config.resnet_padding,
        data_format="channels_last",
        name="root_pool",
    )(features)
    for stage, num_units in enumerate(config.resnet_stages, start=1):
        for unit in range(1, num_units + 1):
            features = layers.ResidualUnit(
                filters=width * 2 ** (stage - 1),
                strides=2 if stage > 1 and unit == 1 else 1,
                name=f"resnet_stage_{stage}_unit_{unit}",
                **options,
            )(features)
    return features


def _before_blocks(config, class_token, positions):
    """The layers that add tokens before those of the patches, and positions."""
    if class_token:
        class_token = layers.ClassToken(name="class_token")
    others = []
    behind = 1 if config.tokens_with_positions == "class token and patches" else 0
    for name, count in (
        ("registers", config.num_registers),
        ("distillation_token", int(config.distillation_token)),
    ):
        if count:
            others.append(layers.RegisterTokens(count, behind, name=name))
    order = {
        "all": [*others, class_token, positions],
        "patches": [positions, *others, class_token],
        "none": [*others, class_token],
        "class token and patches": [class_token, positions, *others],
    }
    return filter(None, order[config.tokens_with_positions])


def _positions(config, grid_size):
    """The layers that add positions at the stem and before each block, or None.

    Only what released files hold has the name `keras_vit.weights` knows it by.
    """
    kinds = {"learned": layers.AddPositionEmbs, "2d": layers.AddPositionEmbs2D}
    layer = kinds.get(config.position_embedding)
    if config.tokens_with_positions == "none":
        layer = None
    nowhere = [None] * config.num_layers
    if layer is None:
        return [None, *nowhere]
    if config.position_embedding_at == "stem":
        name = "position_embedding"
        if not config.has_released_positions:
            name = f"{name}_{config.position_embedding}"
        options = {}
        if config.position_embedding == "learned":
            options["resizing"] = config.position_resizing
            if config.tokens_with_positions == "all":
                registers = config.num_registers + config.distillation_token
                options["num_registers"] = registers
        return [layer(grid_size, name=name, **options), *nowhere]
    if config.position_embedding_at == "every_layer_shared":
        shared = layer(grid_size, name="shared_position_embedding")
        return [None, *[shared] * config.num_layers]
    names = [f"position_embedding_{index}" for index in range(config.num_layers)]
    return [None, *(layer(grid_size, name=name) for name in names)]

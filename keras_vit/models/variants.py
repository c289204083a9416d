"""The released variants as functions with one signature."""

import zoo
from keras_vit.models.arguments import takes_own_arguments
from keras_vit.models.vision_transformer import VisionTransformer

_DOCSTRING = """Returns {variant}, with released or random weights.

    Args:
        weights: name of a release ({releases}), None for random weights, the path or
            URL of a file of the released code, timm, transformers or keras-hub, or a
            `zoo.Checkpoint`. `"default"` is {whole!r} as it was released, for images
            of {image_size}x{image_size}{usable}; and the pre-trained {base!r} where
            its head of {whole_classes:,} classes is not kept: with other `classes`,
            `new_head=True` or `include_top=False`. `pooling="gap"`,
            `representation_size` and `head_bias_init` go with one of these.
        include_top: bool, whether the model ends in its classification head.
        image_size: int or (height, width) in pixels; by default that of the file, 224
            without a file. Position embeddings are resized to it.
        classes: int, the size of the head; by default that of the file, 1000 without
            one. A number other than the file's gets a new head of zeros.
        new_head: bool, whether the head is new although the file has one of this many
            classes, which may be others.
        pooling: `"token"`, `"gap"`, or None for all tokens.
        classifier_activation: None for logits, or an activation such as `"softmax"`.
        representation_size: int, the size of the tanh layer before the head; by
            default as in the file where its head is kept, else none.
        head_bias_init: float, of the biases of a new head.
        dropout_rate: float in [0, 1).
        stochastic_depth_rate: float in [0, 1), of the last block.
        remat: bool, less memory in training for a third more time.
        position_embedding_method: `"released"`, `"bilinear"`, `"bicubic"` or
            `"lanczos3"`.
        channels: int, of the images; with weights 3, or 1 but not for hybrids.
        dtype: str or `keras.DTypePolicy` of all layers but the head; by default the
            global one.
        name: str, the model's name.

    Returns:
        A functional `keras.Model` from float images in [-1, 1] to logits; see
        `VisionTransformer` for the other outputs and for the errors raised.

    Source:
        Paper table 1; AugReg paper table 2.

    Example:

    >>> model = {function}(weights=None, classes=10)
    >>> model.output_shape
    (None, 10)
    """


def _variant_function(variant):
    whole, base = zoo.default_classifier(variant), zoo.default_release(variant)

    @takes_own_arguments
    def build(
        weights="default",
        *,
        include_top=True,
        image_size=None,
        classes=None,
        new_head=False,
        pooling="token",
        classifier_activation=None,
        representation_size=None,
        head_bias_init=0.0,
        dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        remat=False,
        position_embedding_method="released",
        channels=3,
        dtype=None,
        name=None,
    ):
        if isinstance(weights, str) and weights == "default":
            weights, new_head = _default(
                variant,
                include_top=include_top,
                classes=classes,
                new_head=new_head,
                pooling=pooling,
                representation_size=representation_size,
                head_bias_init=head_bias_init,
            )
        return VisionTransformer(
            variant,
            weights,
            include_top=include_top,
            image_size=image_size,
            classes=classes,
            new_head=new_head,
            pooling=pooling,
            classifier_activation=classifier_activation,
            representation_size=representation_size,
            head_bias_init=head_bias_init,
            dropout_rate=dropout_rate,
            stochastic_depth_rate=stochastic_depth_rate,
            remat=remat,
            position_embedding_method=position_embedding_method,
            channels=channels,
            dtype=dtype,
            name=name,
        )

    # "R50+ViT-B_16" -> "R50_ViT_B16": the last underscore goes, the signs become one.
    head, _, patch = variant.rpartition("_")
    build.__name__ = head.replace("+", "_").replace("-", "_") + patch
    build.__qualname__ = build.__name__
    releases = ", ".join(f'`"{release}"`' for release in zoo.releases(variant))
    card = zoo.find(variant, whole)
    build.__doc__ = _DOCSTRING.format(
        variant=variant,
        releases=releases,
        whole=whole,
        base=base,
        image_size=card.image_size,
        whole_classes=card.classes,
        usable="" if card.usable_head else ", whose head is all zeros",
        function=build.__name__,
    )
    return build


def _default(
    variant,
    *,
    include_top,
    classes,
    new_head,
    pooling,
    representation_size,
    head_bias_init,
):
    """Returns the release that is the default, and whether its head is made anew.

    Raises:
        ValueError: no release fits; it is said before one is downloaded.
    """
    whole = zoo.find(variant, zoo.default_classifier(variant))
    base = zoo.find(variant, zoo.default_release(variant))
    pre_logits = f"representation_size={representation_size!r}"
    if representation_size not in (None, base.representation_size):
        raise ValueError(
            f"{pre_logits} does not fit the default weights of {variant}, "
            f"{base.release!r}, whose own is {base.representation_size}: pass that, "
            "or weights=None."
        )
    if representation_size is not None and pooling == "gap":
        raise ValueError(
            f"{pre_logits} of the default weights of {variant} was trained on the "
            'class token: leave it out with pooling="gap", or pass weights=None.'
        )
    if new_head or not include_top:
        return base.release, new_head
    asked = {
        'pooling="gap"': pooling == "gap",
        pre_logits: representation_size not in (None, whole.representation_size),
        f"head_bias_init={head_bias_init!r}": head_bias_init != 0.0,
    }
    asked = [argument for argument, is_asked in asked.items() if is_asked]
    if asked and classes is None:
        raise ValueError(
            f"{' and '.join(asked)} needs a new head, and the default weights of "
            f"{variant} come with one: pass classes=K for a new one of K classes, or "
            "weights=None."
        )
    if not asked and classes in (None, whole.classes):
        return whole.release, False
    return base.release, bool(asked)


ViT_Ti16 = _variant_function("ViT-Ti_16")
ViT_S16 = _variant_function("ViT-S_16")
ViT_S32 = _variant_function("ViT-S_32")
ViT_B8 = _variant_function("ViT-B_8")
ViT_B16 = _variant_function("ViT-B_16")
ViT_B32 = _variant_function("ViT-B_32")
ViT_L16 = _variant_function("ViT-L_16")
ViT_L32 = _variant_function("ViT-L_32")
ViT_H14 = _variant_function("ViT-H_14")
R_ViT_Ti16 = _variant_function("R+ViT-Ti_16")
R26_ViT_S32 = _variant_function("R26+ViT-S_32")
R26_ViT_B32 = _variant_function("R26+ViT-B_32")
R50_ViT_B16 = _variant_function("R50+ViT-B_16")
R50_ViT_L32 = _variant_function("R50+ViT-L_32")

"""The released variants as functions with one signature."""

import inspect
import os
import re
from typing import Any

import zoo
from keras_vit.models.arguments import number_of_classes, takes_own_arguments
from keras_vit.models.base import Model
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
        {options}

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
# The other arguments, which are those of `VisionTransformer`.
_, *_PARAMETERS = inspect.signature(VisionTransformer).parameters.values()
_OPTIONS = re.search(
    r"include_top: .*?(?=\n\n)", VisionTransformer.__doc__ or "include_top: \n\n", re.S
)[0]


def _variant_function(variant):
    whole, base = zoo.default_classifier(variant), zoo.default_release(variant)

    def build(
        weights: str | os.PathLike | zoo.Checkpoint | None = "default", **options: Any
    ) -> Model:
        if isinstance(weights, str) and weights == "default":
            weights, options["new_head"] = _default(variant, **options)
        return VisionTransformer(variant, weights, **options)

    # "R50+ViT-B_16" -> "R50_ViT_B16": the last underscore goes, the signs become one.
    head, _, patch = variant.rpartition("_")
    build.__name__ = head.replace("+", "_").replace("-", "_") + patch
    build.__qualname__ = build.__name__
    weights, *others = _PARAMETERS
    build.__signature__ = inspect.Signature(
        [weights.replace(default="default"), *others]
    )
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
        options=_OPTIONS,
    )
    return takes_own_arguments(build)


def _default(
    variant,
    *,
    include_top=True,
    classes=None,
    class_names=None,
    new_head=False,
    pooling="token",
    representation_size=None,
    head_bias_init=0.0,
    **_,
):
    """Returns the release that is the default, and whether its head is made anew."""
    classes = number_of_classes(classes, class_names)
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

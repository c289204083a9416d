"""The released arrays of a Vision Transformer, and what it computes with them."""

from keras_vit.weights.released_places import ReleasedPlaces
from zoo.released_names import CLASS_TOKEN, POSITION_EMBEDDING

_NORM = {"scale": "gamma", "bias": "beta"}
_DENSE = {"kernel": "kernel", "bias": "bias"}
_ATTENTION = "MultiHeadDotProductAttention_1"


def _rename(released_module, attribute, parameters):
    return {
        f"{released_module}/{released}": f"{attribute}.{own}".lstrip(".")
        for released, own in parameters.items()
    }


# Layer of a model -> {released key: the variable's place in the layer}. Numbers in a
# layer's name fill the braces of its keys.
_LAYERS = {
    r"conv_root": {"conv_root/kernel": "kernel"},
    r"gn_root": _rename("gn_root", "", _NORM),
    r"resnet_stage_(\d+)_unit_(\d+)": {
        f"block{{}}/unit{{}}/{key}": place
        for part in ("1", "2", "3", "_proj")
        for key, place in {
            f"conv{part}/kernel": f"conv{part}.kernel",
            **_rename(f"gn{part}", f"gn{part}", _NORM),
        }.items()
    },
    r"embedding": _rename("embedding", "", _DENSE),
    r"class_token": {CLASS_TOKEN: "token"},
    r"position_embedding": {POSITION_EMBEDDING: "position_embedding"},
    r"encoder_block_(\d+)": {
        f"Transformer/encoderblock_{{}}/{key}": place
        for key, place in {
            **_rename("LayerNorm_0", "attention_norm", _NORM),
            **_rename(f"{_ATTENTION}/query", "attention.query", _DENSE),
            **_rename(f"{_ATTENTION}/key", "attention.key", _DENSE),
            **_rename(f"{_ATTENTION}/value", "attention.value", _DENSE),
            **_rename(f"{_ATTENTION}/out", "attention.out", _DENSE),
            **_rename("LayerNorm_2", "mlp_norm", _NORM),
            **_rename("MlpBlock_3/Dense_0", "mlp.expand", _DENSE),
            **_rename("MlpBlock_3/Dense_1", "mlp.project", _DENSE),
        }.items()
    },
    r"encoder_norm": _rename("Transformer/encoder_norm", "", _NORM),
    r"pre_logits": _rename("pre_logits", "", _DENSE),
    r"head": _rename("head", "", _DENSE),
}


def _released_shape(key, shape, layer):
    # Heads have an axis of their own in the released attention.
    if _ATTENTION not in key or key.endswith("out/bias"):
        return shape
    heads = layer.attention.num_heads
    head_size = shape[-1] // heads
    if key.endswith("out/kernel"):
        return (heads, head_size, shape[-1])
    return (*shape[:-1], heads, head_size)


PLACES = ReleasedPlaces(
    _LAYERS,
    ("embedding", "encoder_block_0", "encoder_norm"),
    "keras_vit.VisionTransformer or one of the variants",
    _released_shape,
)


def released_variables(model):
    """Returns {released key: (variable, released shape)} of a whole model of ours."""
    found = PLACES.variables(model)
    if POSITION_EMBEDDING not in found:
        raise ValueError(
            f"Model {model.name!r} has no learned position embeddings added at the "
            "stem, and released files hold no others: build it with the "
            "position_embedding and position_embedding_at of ViTConfig at their "
            "defaults, or keep its weights with Model.save."
        )
    return found


def saved_variables(model):
    """Returns the `released_variables` of a model that has no weights besides."""
    found = released_variables(model)
    PLACES.check_accounted(model)
    return found


def computed(model):
    """Returns {name in `zoo.network.RELEASED`: value} of a `VisionTransformer`.

    Inputs are not among them, and what a ResNet computes is in hybrids only.
    """
    values = {
        "activation": model.get_layer("encoder_block_0").activation,
        "layer_norm_epsilon": model.get_layer("encoder_norm").epsilon,
    }
    stems = [layer for layer in model.layers if layer.name == "conv_root"]
    for stem in stems:
        values["resnet_padding"] = stem.get_config()["padding"]
        values["resnet_epsilons"] = stem.epsilons
    return values

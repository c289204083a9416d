"""The released arrays of a Vision Transformer: their places, and writing them."""

import pathlib

import zoo
from keras_vit.layers import PatchPooling
from keras_vit.structure import layers_of
from keras_vit.weights.released_places import ReleasedPlaces, as_arrays
from zoo.released_names import CLASS_TOKEN, HEADS, POSITION_EMBEDDING

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


def save_released_weights(model, path, naming="released"):
    """Writes a model's weights for the released code or another library.

    LoRA's products are written as a part of the kernels that they are added to.

    Args:
        model: a model of `VisionTransformer` or one of the variants, every weight of
            which has a released name.
        path: str or path of an `.npz` or `.safetensors`; models that do not compute
            as the released ones do need the latter.
        naming: `"released"`, `"timm"` or `"transformers"`, see `zoo.write`.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: the model is not a whole one of ours, has int8 weights, or weights
            or layers that have no released name, or calls one twice.
        zoo.CheckpointError: the path has another ending, a weight is not finite, or
            neither the file nor the library can say what the model computes.

    Source:
        The names and shapes of the released files, and of timm and transformers.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> save_released_weights(model, "tiny.npz").name
        'tiny.npz'
    """
    path = pathlib.Path(path).expanduser()
    variables = saved_variables(model)
    if layers_of(model, PatchPooling) and HEADS & variables.keys():
        raise ValueError(
            f"Model {model.name!r} has a class token and a head on the mean of the "
            "patches, and files of released names cannot say so: keep it with "
            "Model.save."
        )
    zoo.write(
        path,
        as_arrays(variables),
        grid_size=model.get_layer("position_embedding").grid_size,
        naming=naming,
        semantics=zoo.ViTConfig(**computed(model)),
    )
    return path

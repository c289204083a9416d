"""The released arrays of a Vision Transformer: their places in a model."""

import dataclasses
import os

import keras

import zoo
from keras_vit.structure import (
    architectures,
    bits_of,
    head_of,
    kind_of_pooling,
    num_prefix_tokens,
    preparation_of,
)
from keras_vit.weights.released_places import ReleasedPlaces, as_arrays
from zoo.network.head import ONE_CLASS, Head
from zoo.network.released_names import (
    CLASS_TOKEN,
    HEAD_ARRAYS,
    POSITION_EMBEDDING,
    QUERIES,
    REGISTERS,
    RELATIVE_BIAS,
    SECOND_HEAD_ARRAYS,
    UPSCALE,
)

_HEAD_KERNEL, _ = HEAD_ARRAYS
_NORM = {"scale": "gamma", "bias": "beta"}
_DENSE = {"kernel": "kernel", "bias": "bias"}
_POOL_ATTENTION = "MAPHead_0/MultiHeadDotProductAttention_0"
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
    r"registers": {REGISTERS: "registers"},
    r"distillation_token": {"distillation_token": "registers"},
    r"queries": {QUERIES: "registers"},
    r"norm_before_blocks": _rename("norm_before_blocks", "", _NORM),
    r"position_embedding": {POSITION_EMBEDDING: "position_embedding"},
    r"encoder_block_(\d+)": {
        f"Transformer/encoderblock_{{}}/{key}": place
        for key, place in {
            **_rename("LayerNorm_0", "attention_norm", _NORM),
            **_rename(f"{_ATTENTION}/query", "attention.query", _DENSE),
            **_rename(f"{_ATTENTION}/key", "attention.key", _DENSE),
            **_rename(f"{_ATTENTION}/value", "attention.value", _DENSE),
            **_rename(f"{_ATTENTION}/out", "attention.out", _DENSE),
            **_rename(f"{_ATTENTION}/LayerNorm_0", "attention.norm", _NORM),
            f"{_ATTENTION}/{RELATIVE_BIAS}": "attention.positions.table",
            **_rename("LayerScale_0", "attention_scale", {"scale": "gamma"}),
            **_rename("LayerNorm_2", "mlp_norm", _NORM),
            **_rename("MlpBlock_3/Dense_0", "mlp.expand", _DENSE),
            **_rename("MlpBlock_3/LayerNorm_0", "mlp.norm", _NORM),
            **_rename("MlpBlock_3/Dense_1", "mlp.project", _DENSE),
            **_rename("LayerScale_1", "mlp_scale", {"scale": "gamma"}),
        }.items()
    },
    r"encoder_norm": _rename("Transformer/encoder_norm", "", _NORM),
    r"pooling": {
        "MAPHead_0/probe": "probe",
        **{
            key: place
            for part in ("query", "key", "value", "out")
            for key, place in _rename(f"{_POOL_ATTENTION}/{part}", part, _DENSE).items()
        },
        **_rename("MAPHead_0/LayerNorm_0", "norm", _NORM),
        **_rename("MAPHead_0/MlpBlock_0/Dense_0", "mlp.expand", _DENSE),
        **_rename("MAPHead_0/MlpBlock_0/Dense_1", "mlp.project", _DENSE),
    },
    r"norm_after_pooling": _rename("norm_after_pooling", "", _NORM),
    r"mask_head_(\d+)": _rename("MaskHead_0/Dense_{}", "", _DENSE),
    r"upscale_block_(\d+)": {
        **_rename(f"{UPSCALE}_{{}}/ConvTranspose_0", "expand", _DENSE),
        **_rename(f"{UPSCALE}_{{}}/DepthwiseConv_0", "smooth", {"kernel": "kernel"}),
        **_rename(f"{UPSCALE}_{{}}/LayerNorm_0", "norm", _NORM),
    },
    r"pre_logits": _rename("pre_logits", "", _DENSE),
    r"head": _rename("head", "", _DENSE),
}


def _released_shape(key, shape, layer):
    # Heads have an axis of their own in the released attention.
    pooling = _POOL_ATTENTION in key
    without = key.endswith(("out/bias", RELATIVE_BIAS)) or "LayerNorm" in key
    if not (pooling or _ATTENTION in key) or without:
        return shape
    heads = (layer if pooling else layer.attention).num_heads
    head_size = shape[-1] // heads
    if key.endswith("out/kernel"):
        return (heads, head_size, shape[-1])
    return (*shape[:-1], heads, head_size)


_PLACES = ReleasedPlaces(_LAYERS, _released_shape)


def released_variables(model: keras.Model, to_load: bool = False) -> dict:
    """Returns what `ReleasedPlaces.variables` does, of a Vision Transformer of ours."""
    config = architectures.config_of(model)
    if not isinstance(config, zoo.ViTConfig):
        raise ValueError(
            f"Model {model.name!r} is a {architectures.of_config(config).name} and no "
            "Vision Transformer, whose names its arrays would have: keep it with "
            "Model.save."
        )
    in_attention = config.rotary != "none" or config.relative_position_bias
    variables = {}
    if config.has_released_positions:
        variables = _PLACES.variables(model, to_load)
    if not variables or not (POSITION_EMBEDDING in variables or in_attention):
        raise ValueError(
            f"Model {model.name!r} has no learned position embeddings added at the "
            "stem, and released files hold no others: build it with the "
            "position_embedding and position_embedding_at of ViTConfig at their "
            "defaults, or keep its weights with Model.save."
        )
    return variables


def stated(model: keras.Model) -> zoo.ViTConfig:
    """Returns a model's `ViTConfig` as files have it, None where nothing reads it."""
    config = model.config
    no_matter = ["input_mean", "input_std"]
    if not config.is_hybrid:
        # Without a ResNet any width of it means nothing, and a file shows none.
        config = dataclasses.replace(config, resnet_width=zoo.ViTConfig.resnet_width)
        no_matter += ["resnet_padding", "resnet_epsilons"]
    return dataclasses.replace(
        config,
        **dict.fromkeys(no_matter),
        layer_scale=bool(config.layer_scale),
        tokens_with_positions=_tokens_with_positions(model),
    )


def _tokens_with_positions(model):
    """Returns the field of that name; `"all"` where another means the same."""
    kind, prefix = model.config.tokens_with_positions, num_prefix_tokens(model)
    class_token = int(model.description.class_token)
    if kind == "class token and patches" and prefix > class_token == 0:
        return "patches"
    others = {"patches": prefix, "class token and patches": prefix - class_token}
    return kind if kind == "none" or others.get(kind) else "all"


def grid_of(model: keras.Model) -> tuple[int, int]:
    """Returns the (rows, columns) of patches that a model's positions are of."""
    return model.config.grid_size(model.description.image_size)


def checkpoint_of(model: keras.Model, path: str | os.PathLike) -> zoo.Checkpoint:
    """Returns the `zoo.Checkpoint` of a model, to be written as a file."""
    arrays = as_arrays(released_variables(model))
    pooling = kind_of_pooling(model)
    hidden_size = model.config.hidden_size
    if pooling == "distilled" and len(arrays.get(_HEAD_KERNEL, ())) == 2 * hidden_size:
        _part_heads(arrays, hidden_size)
    return zoo.Checkpoint(
        str(path), arrays, grid_of(model), stated(model), pooling, _said_of_head(model)
    )


def _said_of_head(model):
    head, preparation, bits = head_of(model), preparation_of(model), bits_of(model)
    if preparation == "squash":  # as the released files, which say nothing
        preparation = None
    if head is None:
        return Head(preparation=preparation, bits=bits)
    problem_type = None if head.problem_type == ONE_CLASS else head.problem_type
    return Head(head.class_names, problem_type, preparation, bits)


def _part_heads(arrays, hidden_size):
    """Makes a head of the class token and the token behind it two, whose mean it is."""
    kernel, bias = HEAD_ARRAYS
    second_kernel, second_bias = SECOND_HEAD_ARRAYS
    both = 2 * arrays[kernel]
    arrays[kernel], arrays[second_kernel] = both[:hidden_size], both[hidden_size:]
    arrays[second_bias] = arrays[bias]

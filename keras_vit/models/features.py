"""Models of the features inside a model, for dense tasks, probes and retrieval."""

import contextlib
import operator
from collections.abc import Iterable
from typing import Any

import keras

from keras_vit.layers import (
    ClassToken,
    LayerNorm,
    PatchEncoder,
    PatchGrid,
    PatchMap,
    TransformerBlock,
)
from keras_vit.structure import (
    check_model,
    check_no_queries,
    num_prefix_tokens,
    pooled_features,
)
from keras_vit.structure.architectures import check_one_grid
from zoo.common.safe_text import brief


@keras.saving.register_keras_serializable(package="keras_vit")
class Features(keras.Model):
    """A functional model that nothing is dropped in while it is frozen.

    Keras hands the `training` of an outer model to all that is in it, whatever the
    graph was built with, so that a frozen backbone would keep its dropout.
    """

    # Keras takes a class for a functional one that has literally these two.
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        return super().call(inputs, training=training and self.trainable, mask=mask)


def features(
    model: keras.Model,
    layers: int | str | Iterable[int | str] = (-1,),
    *,
    as_maps: bool = True,
    norm: bool = True,
) -> keras.Model:
    """Returns a model of the features inside a model, whose weights it shares.

    It is functional, to build on: a decoder for dense tasks reads maps of some layers,
    retrieval one vector. What comes after the last of them is not computed.

    Args:
        model: functional `keras.Model` of `TransformerBlock` layers.
        layers: what to return, one or more: ints, the numbers of blocks from 0,
            negative ones from the last; `"class_token"`, its state after the last
            block; `"pooled"`, what the head reads.
        as_maps: bool, whether a block gives a map of its patches, without the tokens
            before them, or all tokens.
        norm: bool, whether the model's final norm, if it has one before its pooling, is
            applied to the blocks' tokens and to the class token.

    Returns:
        Functional `keras.Model` from the images of `model` to a dict: `"layer_3"` is a
        float tensor (batch, rows, columns, hidden_size) or (batch, tokens,
        hidden_size), `"class_token"` and `"pooled"` are (batch, hidden_size). With
        `trainable = False` it drops nothing, also in a model that is trained.

    Raises:
        ValueError: the model is not functional, or has no such layer.

    Source:
        `forward_intermediates` of timm; Oquab et al. (DINOv2), arXiv 2304.07193,
        section 7.4, dense tasks on four layers.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=(32, 48))
        >>> maps = features(model, layers=(5, -1, "pooled"))
        >>> {name: tensor.shape[1:] for name, tensor in maps.output.items()}
        {'layer_5': (2, 3, 192), 'layer_11': (2, 3, 192), 'pooled': (192,)}
    """
    check_model(model)
    check_one_grid(model)
    check_no_queries(model)
    own = getattr(model, "layers", ())
    blocks = [layer for layer in own if isinstance(layer, TransformerBlock)]
    if not blocks or not getattr(model, "inputs", None):
        raise ValueError(
            f"features takes a functional model of TransformerBlock layers, got "
            f"{model!r}: pass one of keras_vit, not a model that wraps it."
        )
    last = blocks[-1].output
    norms = [one for one in own if isinstance(one, LayerNorm) and one.input is last]
    normed = norms[0] if norm and norms else lambda tokens: tokens
    named = {
        "pooled": lambda: _pooled(model),
        "class_token": lambda: _class_token(normed(last), model),
    }
    outputs = {}
    for layer in _requested(layers):
        if isinstance(layer, str) and layer in named:
            outputs[layer] = named[layer]()
        else:
            number = _number(layer, len(blocks), model)
            tokens = normed(blocks[number].output)
            outputs[f"layer_{number}"] = _as_map(tokens, model) if as_maps else tokens
    if not outputs:
        raise ValueError(
            f'layers are {brief(layers)}: pass numbers, "class_token" or "pooled".'
        )
    return Features(model.input, outputs, name=f"{model.name}_features")


def _requested(layers):
    """Returns a list of names and numbers, of one too."""
    if isinstance(layers, (str, bytes)) or not isinstance(layers, Iterable):
        return [layers]
    try:
        return [*layers]
    except TypeError:  # an array without axes
        return []


def _pooled(model):
    pooled = pooled_features(model)
    if pooled is None:
        raise ValueError(
            f"The model {model.name} has no pooled features: leave out "
            '"pooled", or build it with another pooling than None.'
        )
    return pooled


def _class_token(tokens, model):
    if not any(isinstance(one, ClassToken) for one in model.layers):
        raise ValueError(
            f"The model {model.name} has no class token: pass other layers, such as "
            '"pooled".'
        )
    return tokens[:, 0]


def _as_map(tokens, model):
    grids = [one.output for one in model.layers if isinstance(one, PatchGrid)]
    if not grids:
        [encoder] = (one for one in model.layers if isinstance(one, PatchEncoder))
        grids = [PatchGrid(encoder.patch_size)(encoder.input)]
    return PatchMap(num_prefix_tokens(model))(tokens, grid=grids[0])


def _number(layer, count, model):
    with contextlib.suppress(TypeError):  # no number
        if -count <= operator.index(layer) < count:
            return operator.index(layer) % count
    raise ValueError(
        f"The model {model.name} has no layer {brief(layer)}: pass numbers from "
        f'{-count} to {count - 1}, "class_token" or "pooled".'
    )

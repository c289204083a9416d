"""Weights out of released files and into them, whatever the architecture."""

import os
import pathlib

import keras

import zoo
from keras_vit.structure import architectures, check_model
from keras_vit.weights.named_files import NamedArrays


def load_released_weights(
    model: keras.Model,
    source: str | os.PathLike | zoo.Checkpoint | NamedArrays,
    *,
    variant: str | None = None,
    new_head: bool = False,
    position_embedding_method: str | None = None,
) -> keras.Model:
    """Loads a released checkpoint into a model, every array accounted for.

    The head is loaded if the file has one of the model's size, else it stays as it is
    and the file's is left out, with its pre_logits unless the model has them too.

    Args:
        model: a model of `VisionTransformer`, one of the variants, or of another
            architecture.
        source: the `weights` of the function that made the model.
        variant: str, such as `"ViT-B_16"`, that the name of a release goes with; by
            default the one that has the model's sizes.
        new_head: bool, leave the file's head out even if it fits.
        position_embedding_method: see `VisionTransformer`.

    Returns:
        The model.

    Raises:
        ValueError: the model is not a whole one of ours, or has LoRA's or int8 weights.
        zoo.CheckpointError: the file is not a whole checkpoint, does not fit the model,
            or its source computes something else; no variable is changed.
        zoo.CatalogError, zoo.StoreError: there is no such release or file.

    Source:
        `checkpoint.load_pretrained` of the released code.

    Example:
        >>> tiny = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> path = save_released_weights(tiny, "tiny.npz")
        >>> model = VisionTransformer("ViT-Ti_16", image_size=(48, 64), classes=5)
        >>> load_released_weights(model, path).output_shape
        (None, 5)
    """
    check_model(model)
    asked = {
        "variant": variant,
        "position_embedding_method": position_embedding_method,
    }
    asked = {name: value for name, value in asked.items() if value is not None}
    architectures.files_of(model).load(model, source, new_head=new_head, **asked)
    return model


def save_released_weights(
    model: keras.Model, path: str | os.PathLike, naming: str = "released"
) -> pathlib.Path:
    """Writes a model's weights for the released code or another library.

    LoRA's products are written as a part of the kernels that they are added to.

    Args:
        model: a model of `VisionTransformer`, one of the variants, or of another
            architecture, every weight of which has a released name.
        path: str or path of an `.npz` or `.safetensors`; models that do not compute
            as the released ones do need the latter.
        naming: `"released"`, `"timm"` or `"transformers"`, see `zoo.write`.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: the model is not a whole one of ours, or has int8 weights, or some
            that have no released name.
        zoo.CheckpointError: the path has another ending, a weight is not finite, or
            neither the file nor the library can say what the model computes.

    Source:
        The names and shapes of the released files, and of timm and transformers.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> save_released_weights(model, "tiny.npz").name
        'tiny.npz'
    """
    check_model(model)
    return architectures.files_of(model).save(model, path, naming)

"""Writing a model's variables as released arrays."""

import pathlib

import zoo
from keras_vit.layers import PatchPooling
from keras_vit.structure import layers_of
from keras_vit.weights.model_arrays import computed, saved_variables
from keras_vit.weights.released_places import as_arrays
from zoo.released_names import HEADS


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
    grid_size = model.get_layer("position_embedding").grid_size
    zoo.write(
        path,
        as_arrays(variables),
        grid_size=grid_size,
        naming=naming,
        semantics=zoo.ViTConfig(**computed(model)),
    )
    return path

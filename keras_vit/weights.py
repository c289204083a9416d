"""Released arrays into a model's variables, and back."""

import math
import os
import warnings

import numpy as np
from keras import ops

import zoo
from keras_vit.fitting import changed_arrays
from keras_vit.layers import PatchPooling
from keras_vit.released_places import placed
from zoo.locate import EXTENSIONS, fetch_card
from zoo.released_names import (
    CLASS_TOKEN,
    HEAD_ARRAYS,
    POSITION_EMBEDDING,
    PRE_LOGITS_ARRAYS,
)
from zoo.semantics import Semantics

_NORM = {"scale": "gamma", "bias": "beta"}
_DENSE = {"kernel": "kernel", "bias": "bias"}
_HEADS = HEAD_ARRAYS.keys() | PRE_LOGITS_ARRAYS.keys()


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
        key: place
        for part in ("1", "2", "3", "_proj")
        for key, place in {
            f"block{{}}/unit{{}}/conv{part}/kernel": f"conv{part}.kernel",
            **_rename(f"block{{}}/unit{{}}/gn{part}", f"gn{part}", _NORM),
        }.items()
    },
    r"embedding": _rename("embedding", "", _DENSE),
    r"class_token": {CLASS_TOKEN: "token"},
    r"position_embedding": {POSITION_EMBEDDING: "position_embedding"},
    r"encoder_block_(\d+)": {
        f"Transformer/encoderblock_{{}}/{key}": place
        for key, place in {
            **_rename("LayerNorm_0", "attention_norm", _NORM),
            **{
                key: place
                for part in ("query", "key", "value", "out")
                for key, place in _rename(
                    f"MultiHeadDotProductAttention_1/{part}",
                    f"attention.{part}",
                    _DENSE,
                ).items()
            },
            **_rename("LayerNorm_2", "mlp_norm", _NORM),
            **_rename("MlpBlock_3/Dense_0", "mlp.expand", _DENSE),
            **_rename("MlpBlock_3/Dense_1", "mlp.project", _DENSE),
        }.items()
    },
    r"encoder_norm": _rename("Transformer/encoder_norm", "", _NORM),
    r"pre_logits": _rename("pre_logits", "", _DENSE),
    r"head": _rename("head", "", _DENSE),
}


def load_released_weights(
    model,
    source,
    *,
    variant=None,
    new_head=False,
    position_embedding_method="released",
):
    """Loads a released checkpoint into a model, every array accounted for.

    The head is loaded if the file has one of the model's size, else it stays as it is
    and the file's is left out, with its pre_logits unless the model has them too.

    Args:
        model: a model of `VisionTransformer` or one of the variants.
        source: path or URL of a file that `zoo.read` reads, the name of a release, or
            a `zoo.Checkpoint`.
        variant: str, such as `"ViT-B_16"`, which goes with the name of a release.
        new_head: bool, leave the file's head out even if it fits.
        position_embedding_method: see `zoo.resize`.

    Raises:
        ValueError: the file does not fit the model, or its source computes something
            else; lists what differs.
        zoo.CheckpointError: the file is not a whole checkpoint.
        zoo.StoreError: the file cannot be had.

    Source:
        `checkpoint.load_pretrained` of the released code.

    Example:

    >>> config = ViTConfig(hidden_size=64, num_layers=2, num_heads=2, mlp_dim=128,
    ...                    patch_size=8)
    >>> save_released_weights(VisionTransformer(config, image_size=32), "tiny.npz")
    >>> model = VisionTransformer(config, image_size=(48, 64), classes=5)
    >>> load_released_weights(model, "tiny.npz")
    """
    assign(
        model,
        read_weights(source, variant, _num_heads(model)),
        new_head=new_head,
        position_embedding_method=position_embedding_method,
    )


def save_released_weights(model, path, naming="released"):
    """Writes a model's weights for the released code or another library.

    Args:
        model: a model of `VisionTransformer` or one of the variants.
        path: str or path of the file, an `.npz` or, for models that compute something
            else than the released ones, a `.safetensors`.
        naming: `"released"`, `"timm"` or `"transformers"`, see `zoo.write`.

    Raises:
        ValueError: the model is not one of ours.
        zoo.CheckpointError: neither the file nor the library can say what the model
            computes.
        OSError: the file cannot be written.

    Source:
        The names and shapes of the released files, and of timm and transformers.

    Example:

    >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
    >>> save_released_weights(model, "tiny.npz")
    """
    if _pools_patches(model) and _HEADS & released_variables(model).keys():
        raise ValueError(
            f"Model {model.name!r} has a class token and a head on the mean of the "
            "patches, and files of released names cannot say so: keep it with "
            "Model.save."
        )
    arrays = {
        key: ops.convert_to_numpy(ops.cast(variable, "float32")).reshape(shape)
        for key, (variable, shape) in released_variables(model).items()
    }
    grid_size = model.get_layer("position_embedding").grid_size
    zoo.write(
        path,
        arrays,
        grid_size=grid_size,
        naming=naming,
        semantics=Semantics(**computed(model)),
    )


def read_weights(weights, variant=None, num_heads=None):
    """Reads what the `weights=` of a model names.

    Args:
        weights: the name of a release of the variant, whatever `zoo.locate` finds, or
            a `zoo.Checkpoint`.
        variant: str, the variant's name, or None where there are no releases.
        num_heads: int, the model's, for files that do not tell theirs.

    Returns:
        `zoo.Checkpoint`.

    Raises:
        zoo.CatalogError: there is no such release, or model.
        zoo.StoreError: the file cannot be had.
    """
    if isinstance(weights, zoo.Checkpoint):
        return weights
    text = os.fspath(weights)
    is_path = os.path.exists(text) or text.endswith(EXTENSIONS)
    if variant is None or is_path or "/" in text or os.sep in text:
        return zoo.read(zoo.locate(text), num_heads=num_heads)
    try:
        card = zoo.find(variant, text)
    except zoo.CatalogError as error:
        card = zoo.registry.models().get(text)
        if card is None:
            raise zoo.CatalogError(f"{error} Or pass the path of a file.") from error
    return zoo.read(fetch_card(card))


def computed(model):
    """Returns what a model of ours computes where sources differ.

    Args:
        model: a model of `VisionTransformer` or one of the variants.

    Returns:
        Dict of the names in `zoo.semantics.COMPUTED` to values, those of a ResNet in
        hybrids only.
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


def image_size(checkpoint, config):
    """Returns the (height, width) in pixels that a checkpoint was trained at.

    Raises:
        ValueError: the file does not tell (a grid that is not square).
    """
    if checkpoint.grid_size is None:
        raise ValueError(
            f"{checkpoint.path} has {checkpoint.num_positions} positions, which is no "
            "square grid: pass the image_size=(height, width) it was trained at."
        )
    return tuple(
        side * stride
        for side, stride in zip(checkpoint.grid_size, config.stride, strict=True)
    )


def released_variables(model):
    """Returns {released key: (variable, released shape)} of a model.

    Raises:
        ValueError: the model is not one of ours.
    """
    found = {
        key: (variable, _released_shape(pattern, variable.shape, layer))
        for key, pattern, variable, layer in placed(model, _LAYERS)
    }
    if POSITION_EMBEDDING not in found:
        if any(layer.name == "encoder_block_0" for layer in model.layers):
            raise ValueError(
                f"Model {model.name!r} has no learned position embeddings added at the "
                "stem, and released files hold no others: build it with the "
                "position_embedding and position_embedding_at of ViTConfig at their "
                "defaults, or keep its weights with Model.save."
            )
        raise ValueError(
            f"Model {model.name!r} has no layers of the released names: pass a model "
            "made by keras_vit.VisionTransformer or one of the variants, not a model "
            "that wraps one."
        )
    return found


def _num_heads(model):
    """The heads of a model of ours, None of any other."""
    blocks = [layer for layer in model.layers if layer.name == "encoder_block_0"]
    return blocks[0].num_heads if blocks else None


def _released_shape(key, shape, layer):
    """Heads have an axis of their own in the released attention."""
    shape = tuple(shape)
    if "MultiHeadDotProductAttention" not in key:
        return shape
    heads = layer.attention.num_heads
    head_size = shape[-1] // heads
    if key.endswith("out/kernel"):
        return (heads, head_size, shape[-1])
    if key.endswith("out/bias"):
        return shape
    return (*shape[:-1], heads, head_size)


def assign(model, checkpoint, *, new_head, position_embedding_method):
    """Assigns a checkpoint's arrays to a model's variables; see the loader above.

    Raises:
        ValueError: the file does not fit the model; no variable is changed then.
    """
    targets = released_variables(model)
    _check_architecture(checkpoint, model.name, targets)
    _check_semantics(checkpoint, model)
    names = set(checkpoint.arrays)

    if checkpoint.classes is None or _classes(targets) != checkpoint.classes:
        new_head = True
    if new_head:
        names -= HEAD_ARRAYS.keys()
        for key in HEAD_ARRAYS:
            targets.pop(key, None)
        if not targets.keys() & PRE_LOGITS_ARRAYS.keys():
            names -= PRE_LOGITS_ARRAYS.keys()
    _check_keys(checkpoint, targets, names)
    if _pools_patches(model) and _HEADS & targets.keys():
        what = "pre_logits were" if new_head else "head was"
        raise zoo.CheckpointError(
            f"The {what} trained on the class token in {checkpoint.path}, and the "
            'model takes the mean of the patches: pass pooling="token" to keep what '
            "the file computes, include_top=False for the mean alone, or "
            "new_head=True and no representation_size for a new head on the mean."
        )

    grid_size = model.get_layer("position_embedding").grid_size
    shapes = {key: shape for key, (_, shape) in targets.items()}
    fitted = changed_arrays(checkpoint, shapes, grid_size, position_embedding_method)
    found = checkpoint.shapes | {key: array.shape for key, array in fitted.items()}
    wrong = [
        f"{key} {found[key]} (the model has {shape})"
        for key, (_, shape) in targets.items()
        if found[key] != shape
    ]
    if wrong:
        raise ValueError(
            f"{checkpoint.path} has arrays of other shapes than the model: "
            f"{', '.join(wrong)}. Pass the channels and the representation_size of the "
            "file."
        )
    # One by one from the file, the largest first: the memory of one serves the next.
    for key in sorted(targets, key=lambda key: -math.prod(found[key])):
        variable, _ = targets[key]
        array = fitted[key] if key in fitted else checkpoint.arrays[key]
        variable.assign(array.reshape(variable.shape))
    if not new_head and checkpoint.zero_head:
        warnings.warn(
            f"The head in {checkpoint.path} is all zeros, as new heads and those of "
            "the original ImageNet-21k files are, and so will be the logits: pass "
            "classes=K for a new head to fine-tune, include_top=False for features, or "
            'weights="augreg-imagenet21k" for ImageNet-21k logits.',
            stacklevel=4,
        )


def _check_architecture(checkpoint, name, targets):
    # Arrays of the model's shapes that hold nothing tell its sizes as a file's do.
    shapes = {key: shape for key, (_, shape) in targets.items()}
    in_model = zoo.Checkpoint(
        name,
        {key: np.broadcast_to(np.float32(0), shape) for key, shape in shapes.items()},
    )
    differences = [
        f"{size} {getattr(checkpoint, size)} (the model has {getattr(in_model, size)})"
        for size in (
            "hidden_size",
            "num_layers",
            "num_heads",
            "mlp_dim",
            "patch_size",
            "resnet_stages",
            "resnet_width",
        )
        if getattr(checkpoint, size) != getattr(in_model, size)
    ]
    if differences:
        raise ValueError(
            f"{checkpoint.path} is another architecture than the model: "
            f"{', '.join(differences)}. Choose the variant or the ViTConfig of the "
            "file."
        )


def _check_semantics(checkpoint, model):
    differences = [
        f"{name} {getattr(checkpoint.semantics, name)!r} (the model has {value!r})"
        for name, value in computed(model).items()
        if getattr(checkpoint.semantics, name) != value
    ]
    if differences:
        raise ValueError(
            f"{checkpoint.path} computes other numbers than the model: "
            f"{', '.join(differences)}. Build the model with the file as its weights, "
            "or with these in its ViTConfig."
        )


def _pools_patches(model):
    """Whether a model has a class token and answers from the mean of the patches."""
    return any(isinstance(layer, PatchPooling) for layer in model.layers)


def _classes(targets):
    """The size of the model's head, None without one."""
    return next(
        (shape[-1] for key, (_, shape) in targets.items() if key in HEAD_ARRAYS), None
    )


def _check_keys(checkpoint, targets, names):
    missing = sorted(targets.keys() - names)
    left_over = sorted(names - targets.keys())
    if not missing and not left_over:
        return
    remedies = []
    if CLASS_TOKEN in missing:
        remedies.append('the file has no class token: pass pooling="gap" or None')
    if CLASS_TOKEN in left_over:
        remedies.append(
            "the model has no class token: build it with the file as its weights and "
            'pooling="gap", which keeps the token and averages the patches'
        )
    if PRE_LOGITS_ARRAYS.keys() & set(missing):
        remedies.append("the file has no pre_logits: pass representation_size=None")
    if PRE_LOGITS_ARRAYS.keys() & set(left_over):
        size = checkpoint.representation_size
        remedies.append(f"its head needs pre_logits: pass representation_size={size}")
    raise ValueError(
        f"{checkpoint.path} does not fit the model. Missing in the file: "
        f"{', '.join(missing) or 'nothing'}. Left over: "
        f"{', '.join(left_over) or 'nothing'}. Remedy: "
        f"{'; '.join(remedies) or 'choose the ViTConfig of the file'}."
    )

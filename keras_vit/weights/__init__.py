"""Released arrays into a model's variables, and back."""

import dataclasses
import math
import pathlib
import warnings

import numpy as np
from keras import ops

import zoo
from keras_vit.layers import PatchPooling
from keras_vit.structure import layers_of
from keras_vit.weights.callers import stacklevel
from keras_vit.weights.fitting import changed_arrays
from keras_vit.weights.released_places import (
    check_accounted,
    check_complete,
    check_loadable,
    placed,
)
from zoo.released_names import (
    CLASS_TOKEN,
    HEAD_ARRAYS,
    POSITION_EMBEDDING,
    PRE_LOGITS_ARRAYS,
)
from zoo.semantics import Semantics

_NORM = {"scale": "gamma", "bias": "beta"}
_DENSE = {"kernel": "kernel", "bias": "bias"}
# Of the original files, whose heads are zeros.
_IMAGENET21K_CLASSES = 21843
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
        source: the name of a release of the model's variant, a path, a URL or another
            text that `zoo.locate` takes, or a `zoo.Checkpoint`.
        variant: str, such as `"ViT-B_16"`, that the name of a release goes with; by
            default the one that has the model's sizes.
        new_head: bool, leave the file's head out even if it fits.
        position_embedding_method: see `zoo.resize`.

    Returns:
        The model.

    Raises:
        ValueError: the model is not a whole one of ours, or has LoRA's or int8
            weights.
        zoo.CatalogError: no such release.
        zoo.CheckpointError: the file is not a whole checkpoint, does not fit the model,
            or its source computes something else; lists what differs, and no variable
            is changed.
        zoo.StoreError: the file cannot be had.

    Source:
        `checkpoint.load_pretrained` of the released code.

    Example:

    >>> config = ViTConfig(hidden_size=64, num_layers=2, num_heads=2, mlp_dim=128,
    ...                    patch_size=8)
    >>> tiny = VisionTransformer(config, image_size=32, classes=10)
    >>> path = save_released_weights(tiny, "tiny.npz")
    >>> model = VisionTransformer(config, image_size=(48, 64), classes=5)
    >>> load_released_weights(model, path).output_shape
    (None, 5)
    """
    sizes = _in_model(model, released_variables(model))
    assign(
        model,
        read_weights(source, variant or _variant(sizes), sizes.num_heads),
        new_head=new_head,
        position_embedding_method=position_embedding_method,
    )
    return model


def save_released_weights(model, path, naming="released"):
    """Writes a model's weights for the released code or another library.

    LoRA's products are written as a part of the kernels that they are added to.

    Args:
        model: a model of `VisionTransformer` or one of the variants, every weight of
            which has a released name.
        path: str or path of the file, an `.npz` or, for models that compute something
            else than the released ones, a `.safetensors`.
        naming: `"released"`, `"timm"` or `"transformers"`, see `zoo.write`.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: the model is not a whole one of ours, has int8 weights, or weights
            or layers that have no released name, or calls one twice; nothing is
            written then.
        zoo.CheckpointError: the path has another ending, a weight is not finite, or
            neither the file nor the library can say what the model computes.
        OSError: the file cannot be written.

    Source:
        The names and shapes of the released files, and of timm and transformers.

    Example:

    >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
    >>> save_released_weights(model, "tiny.npz").name
    'tiny.npz'
    """
    path = pathlib.Path(path).expanduser()
    variables = saved_variables(model)
    if layers_of(model, PatchPooling) and _HEADS & variables.keys():
        raise ValueError(
            f"Model {model.name!r} has a class token and a head on the mean of the "
            "patches, and files of released names cannot say so: keep it with "
            "Model.save."
        )
    arrays = {
        key: ops.convert_to_numpy(ops.cast(variable, "float32")).reshape(shape)
        for key, (variable, shape) in variables.items()
    }
    grid_size = model.get_layer("position_embedding").grid_size
    zoo.write(
        path,
        arrays,
        grid_size=grid_size,
        naming=naming,
        semantics=Semantics(**computed(model)),
    )
    return path


def read_weights(weights, variant=None, num_heads=None):
    """Reads what the `weights=` of a model names.

    Args:
        weights: the name of a release of the variant, whatever `zoo.locate` finds, or
            a `zoo.Checkpoint`. `zoo.locate` says which of them a text is.
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
    return zoo.read(zoo.locate(weights, variant), num_heads=num_heads)


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
        ValueError: the model is not a whole one of ours.
    """
    check_complete(
        model,
        ("embedding", "encoder_block_0", "encoder_norm"),
        "keras_vit.VisionTransformer or one of the variants",
    )
    found = {
        key: (variable, _released_shape(pattern, variable.shape, layer))
        for key, pattern, variable, layer in placed(model, _LAYERS)
    }
    if POSITION_EMBEDDING not in found:
        raise ValueError(
            f"Model {model.name!r} has no learned position embeddings added at the "
            "stem, and released files hold no others: build it with the "
            "position_embedding and position_embedding_at of ViTConfig at their "
            "defaults, or keep its weights with Model.save."
        )
    return found


def saved_variables(model):
    """Returns {released key: (variable, released shape)} of all weights of a model.

    Raises:
        ValueError: the model is not a whole one of ours, or has weights besides.
    """
    found = released_variables(model)
    check_accounted(model, _LAYERS)
    return found


def _in_model(model, targets):
    """A checkpoint of a model's shapes, whose arrays hold nothing."""
    # Their shapes tell the model's sizes as a file's do.
    arrays = {
        key: np.broadcast_to(np.float32(0), shape)
        for key, (_, shape) in targets.items()
    }
    return zoo.Checkpoint(model.name, arrays)


def _variant(sizes):
    """The released variant of a model's sizes, or None."""
    for name, row in zoo.ARCHITECTURES.items():
        own = {**dataclasses.asdict(row), "patch_size": (row.patch_size,) * 2}
        if row.resnet_stages is None:
            own["resnet_width"] = None
        if all(getattr(sizes, size) == value for size, value in own.items()):
            return name
    return None


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
        ValueError: the model is not a whole one of ours, or has LoRA's products.
        zoo.CheckpointError: the file does not fit the model; no variable is changed
            then.
    """
    targets = released_variables(model)
    check_loadable(model, _LAYERS)
    _check_architecture(checkpoint, _in_model(model, targets))
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
    if layers_of(model, PatchPooling) and _HEADS & targets.keys():
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
        raise zoo.CheckpointError(
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
        remedies = (
            "classes=K for a new head to fine-tune, include_top=False for features"
        )
        own = _variant(checkpoint)
        releases = () if own is None else zoo.releases(own)
        is_original = checkpoint.classes == _IMAGENET21K_CLASSES
        if is_original and "augreg-imagenet21k" in releases:
            remedies += ', or weights="augreg-imagenet21k" for ImageNet-21k logits'
        warnings.warn(
            f"The head in {checkpoint.path} is all zeros, as new heads and those of "
            "the original ImageNet-21k files are, and so will be the logits: pass "
            f"{remedies}.",
            stacklevel=stacklevel(),
        )


def _check_architecture(checkpoint, in_model):
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
        raise zoo.CheckpointError(
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
        raise zoo.CheckpointError(
            f"{checkpoint.path} computes other numbers than the model: "
            f"{', '.join(differences)}. Build the model with the file as its weights, "
            "or with these in its ViTConfig."
        )


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
    raise zoo.CheckpointError(
        f"{checkpoint.path} does not fit the model. Missing in the file: "
        f"{', '.join(missing) or 'nothing'}. Left over: "
        f"{', '.join(left_over) or 'nothing'}. Remedy: "
        f"{'; '.join(remedies) or 'choose the ViTConfig of the file'}."
    )

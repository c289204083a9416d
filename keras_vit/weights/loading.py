"""Reading released arrays and assigning them to a model's variables."""

import math
import warnings

import numpy as np

import zoo
from keras_vit.layers import PatchPooling
from keras_vit.structure import layers_of
from keras_vit.weights.callers import stacklevel
from keras_vit.weights.fitting import changed_arrays
from keras_vit.weights.model_arrays import PLACES, computed, released_variables
from zoo.network import SIZES
from zoo.released_names import CLASS_TOKEN, HEAD_ARRAYS, HEADS, PRE_LOGITS_ARRAYS

# Of the original files, whose heads are zeros.
_IMAGENET21K_CLASSES = 21843


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
        zoo.StoreError: the file is not available.
    """
    if isinstance(weights, zoo.Checkpoint):
        return weights
    return zoo.read(zoo.locate(weights, variant), num_heads=num_heads)


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
        zoo.StoreError: the file is not available.

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
    own = _in_model(model, released_variables(model)).config
    assign(
        model,
        read_weights(source, variant or _variant(own), own.num_heads),
        new_head=new_head,
        position_embedding_method=position_embedding_method,
    )
    return model


def assign(model, checkpoint, *, new_head, position_embedding_method):
    """Assigns a checkpoint's arrays to a model's variables, see the loader above.

    Raises:
        ValueError: the model is not a whole one of ours, or has LoRA's products.
        zoo.CheckpointError: the file does not fit the model; no variable is changed
            then.
    """
    targets = released_variables(model)
    PLACES.check_loadable(model)
    own = _in_model(model, targets)
    _check_same(checkpoint, own.config, computed(model))
    names = set(checkpoint.arrays)

    if checkpoint.classes is None or own.classes != checkpoint.classes:
        new_head = True
    if new_head:
        names -= HEAD_ARRAYS.keys()
        for key in HEAD_ARRAYS:
            targets.pop(key, None)
        if not targets.keys() & PRE_LOGITS_ARRAYS.keys():
            names -= PRE_LOGITS_ARRAYS.keys()
    _check_keys(checkpoint, targets, names)
    if layers_of(model, PatchPooling) and HEADS & targets.keys():
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
        variant = _variant(checkpoint.config)
        releases = () if variant is None else zoo.releases(variant)
        is_original = checkpoint.classes == _IMAGENET21K_CLASSES
        if is_original and "augreg-imagenet21k" in releases:
            remedies += ', or weights="augreg-imagenet21k" for ImageNet-21k logits'
        warnings.warn(
            f"The head in {checkpoint.path} is all zeros, as new heads and those of "
            "the original ImageNet-21k files are, and so will be the logits: pass "
            f"{remedies}.",
            stacklevel=stacklevel(),
        )


def _check_same(checkpoint, config, computed):
    """Makes sure that a file and a model have the same sizes and compute the same."""
    text = {
        name: f"{name} {theirs!r} (the model has {ours!r})"
        for name, (theirs, ours) in checkpoint.config.differences(config).items()
    }
    if sizes := [text[name] for name in SIZES if name in text]:
        raise zoo.CheckpointError(
            f"{checkpoint.path} is another architecture than the model: "
            f"{', '.join(sizes)}. Choose the variant or the ViTConfig of the file."
        )
    if others := [text[name] for name in computed if name in text]:
        raise zoo.CheckpointError(
            f"{checkpoint.path} computes other numbers than the model: "
            f"{', '.join(others)}. Build the model with the file as its weights, or "
            "with these in its ViTConfig."
        )


def _in_model(model, targets):
    """Returns a checkpoint of a model's shapes, whose arrays hold nothing."""
    arrays = {
        key: np.broadcast_to(np.float32(0), shape)
        for key, (_, shape) in targets.items()
    }
    semantics = zoo.ViTConfig(**computed(model))
    return zoo.Checkpoint(model.name, arrays, semantics=semantics)


def _variant(config):
    """Returns the released variant of a model's sizes, or None."""
    rows = zoo.ARCHITECTURES.items()
    return next((name for name, row in rows if row.sizes == config.sizes), None)


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

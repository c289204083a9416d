"""Reading and writing the weights of BiT under their released names.

The names are those that the released code of BiT, timm and big_vision read; no file of
BiT's own has been opened with this yet.
"""

import os
import tempfile
import warnings

import numpy as np

import zoo
from keras_vit.weights.loading import stacklevel
from keras_vit.weights.released_places import ReleasedPlaces, as_arrays
from zoo.files.archive import Archive, CheckpointError, StoredArrays, refuse
from zoo.files.dialects import wrong_dtypes
from zoo.regular_files import expand_home

_NAMES = "under the names BiT was released with"
_HEAD_KERNEL, _HEAD_BIAS = "resnet/head/conv2d/kernel", "resnet/head/conv2d/bias"


# Layer of a model -> {released key: the variable's place in the layer}. Numbers in a
# layer's name fill the braces of its keys.
_LAYERS = {
    r"root_conv": {"resnet/root_block/standardized_conv2d/kernel": "kernel"},
    r"block(\d)_unit(\d\d)": {
        "resnet/block{}/unit{}/a/standardized_conv2d/kernel": "conv1.kernel",
        "resnet/block{}/unit{}/a/group_norm/gamma": "gn1.gamma",
        "resnet/block{}/unit{}/a/group_norm/beta": "gn1.beta",
        "resnet/block{}/unit{}/b/standardized_conv2d/kernel": "conv2.kernel",
        "resnet/block{}/unit{}/b/group_norm/gamma": "gn2.gamma",
        "resnet/block{}/unit{}/b/group_norm/beta": "gn2.beta",
        "resnet/block{}/unit{}/c/standardized_conv2d/kernel": "conv3.kernel",
        "resnet/block{}/unit{}/c/group_norm/gamma": "gn3.gamma",
        "resnet/block{}/unit{}/c/group_norm/beta": "gn3.beta",
        "resnet/block{}/unit{}/a/proj/standardized_conv2d/kernel": "conv_proj.kernel",
    },
    r"norm": {"resnet/group_norm/gamma": "gamma", "resnet/group_norm/beta": "beta"},
    r"head": {_HEAD_KERNEL: "kernel", _HEAD_BIAS: "bias"},
}


def load_bit_weights(model, source, *, new_head=False):
    """Loads a released checkpoint of BiT into a model, every array accounted for.

    Arguments, result and errors are those of `keras_vit.load_released_weights`: `model`
    is one of `BiTResNet`, `source` the path or URL of an `.npz` in the released naming
    of https://github.com/google-research/big_transfer.

    Example:
        >>> from train.baselines import BiTConfig, BiTResNet
        >>> small = BiTResNet(BiTConfig((1, 2)), image_size=32, classes=10)
        >>> path = save_bit_weights(small, "bit.npz")
        >>> model = BiTResNet(BiTConfig((1, 2)), image_size=64, classes=5)
        >>> load_bit_weights(model, path).output_shape
        (None, 5)
    """
    assign(model, *read(source), new_head=new_head)
    return model


def save_bit_weights(model, path):
    """Writes a model's weights in the released naming of BiT, which timm reads too.

    Arguments, result and errors are those of `keras_vit.save_released_weights`: `model`
    is one of `BiTResNet`, and `path` ends in `.npz`.

    Example:
        >>> from train.baselines import BiTConfig, BiTResNet
        >>> save_bit_weights(BiTResNet(BiTConfig((1, 2))), "bit.npz").name
        'bit.npz'
    """
    path = expand_home(path)
    if path.suffix != ".npz":
        raise CheckpointError(f"Cannot write {path}: its name must end in .npz.")
    variables = PLACES.variables(model)
    PLACES.check_accounted(model)
    arrays = as_arrays(variables)
    problems = [
        f"{key} holds NaN or infinity"
        for key, array in arrays.items()
        if not np.isfinite(array).all()
    ]
    refuse(path, f"a checkpoint of BiT, {_NAMES}", problems)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".checkpoint-") as folder:
        part = os.path.join(folder, path.name)
        np.savez(part, **arrays)
        os.replace(part, path)
    return path


def read(source):
    """Returns the path of a released file of BiT, and its arrays, read one by one."""
    file = Archive(zoo.locate(source))
    parts = {key: file.check(key) for key in file.keys}
    refuse(file.path, f"a checkpoint of BiT, {_NAMES}", wrong_dtypes(parts))
    return file.path, StoredArrays(parts)


def head_size(arrays):
    """Returns the number of classes of a file's arrays, None without a head."""
    shape = arrays.shapes.get(_HEAD_KERNEL)
    return shape[-1] if shape else None


def _released_shape(key, shape, _):
    # The released head is a convolution of 1x1.
    return (1, 1, *shape) if key == _HEAD_KERNEL else shape


PLACES = ReleasedPlaces(
    _LAYERS,
    ("root_conv", "norm"),
    "train.baselines.BiTResNet or train.baselines.BiT_R50x1",
    _released_shape,
)


def assign(model, path, arrays, *, new_head):
    """Assigns the arrays of a file to a model's variables, see `load_bit_weights`."""
    targets = PLACES.variables(model)
    PLACES.check_loadable(model)
    shapes = dict(arrays.shapes)
    head = {_HEAD_KERNEL, _HEAD_BIAS}
    own = targets[_HEAD_KERNEL][1][-1] if head <= targets.keys() else None
    if new_head or own is None or own != head_size(arrays):
        for key in head:
            targets.pop(key, None)
            shapes.pop(key, None)
    problems = [f"missing {key}" for key in targets if key not in shapes]
    problems += [f"unknown {key}" for key in shapes if key not in targets]
    problems += [
        f"{key} has shape {shapes[key]}, not {shape}"
        for key, (_, shape) in targets.items()
        if key in shapes and shapes[key] != shape
    ]
    refuse(path, f"a checkpoint of BiT that fits {model.name!r}, {_NAMES}", problems)
    for key, (variable, _) in targets.items():
        variable.assign(arrays[key].reshape(variable.shape))
    if _HEAD_KERNEL in targets and not arrays[_HEAD_KERNEL].any():
        warnings.warn(
            f"The head in {path} is all zeros, and so will be the logits: pass "
            "classes=K for a new head to fine-tune, or include_top=False for features.",
            stacklevel=stacklevel(),
        )

"""Reading and writing the weights of BiT under their released names.

The names are those that the released code of BiT, timm and big_vision read; no file of
BiT's own has been opened with this yet.
"""

import os
import pathlib
import tempfile
import warnings

import numpy as np

import zoo
from keras_vit.weights.loading import stacklevel
from keras_vit.weights.released_places import ReleasedPlaces, as_arrays
from zoo.files.archive import Archive, CheckpointError, StoredArrays, refuse
from zoo.files.dialects import wrong_dtypes

_NAMES = "under the names BiT was released with"
_HEAD = "resnet/head/conv2d"


def _norm(module, attribute=""):
    return {
        f"resnet/{module}group_norm/{part}": f"{attribute}.{part}".lstrip(".")
        for part in ("gamma", "beta")
    }


# Layer of a model -> {released key: the variable's place in the layer}. Numbers in a
# layer's name fill the braces of its keys.
_LAYERS = {
    r"root_conv": {"resnet/root_block/standardized_conv2d/kernel": "kernel"},
    r"block(\d)_unit(\d\d)": {
        **{
            key: place
            for part, number in (("a", 1), ("b", 2), ("c", 3))
            for key, place in {
                f"resnet/block{{}}/unit{{}}/{part}/standardized_conv2d/kernel": (
                    f"conv{number}.kernel"
                ),
                **_norm(f"block{{}}/unit{{}}/{part}/", f"gn{number}"),
            }.items()
        },
        "resnet/block{}/unit{}/a/proj/standardized_conv2d/kernel": "conv_proj.kernel",
    },
    r"norm": _norm(""),
    r"head": {f"{_HEAD}/kernel": "kernel", f"{_HEAD}/bias": "bias"},
}


def load_bit_weights(model, source, *, new_head=False):
    """Loads a released checkpoint of BiT into a model, every array accounted for.

    The head is loaded if the model and the file have one of the same size, else the
    model's stays as it is and the file's is left out.

    Args:
        model: a model of `BiTResNet`.
        source: path or URL of an `.npz` in the released naming of BiT.
        new_head: bool, leave the file's head out even if it fits.

    Returns:
        The model.

    Raises:
        ValueError: the model is not a whole one of `BiTResNet`, or has LoRA's or int8
            weights.
        zoo.CheckpointError: the file is damaged, or does not fit the model: arrays are
            missing, unknown or of other shapes; the first of them are listed, and no
            variable is changed.
        zoo.StoreError: the file is not available.

    Source:
        The `.npz` files of https://github.com/google-research/big_transfer

    Example:

    >>> from train.baselines import BiT_R50x1
    >>> model = BiT_R50x1(image_size=32, classes=10)
    >>> path = save_bit_weights(model, "bit.npz")
    >>> load_bit_weights(BiT_R50x1(image_size=64, classes=5), path).output_shape
    (None, 5)
    """
    assign(model, BiTArrays(source), new_head=new_head)
    return model


def save_bit_weights(model, path):
    """Writes a model's weights in the released naming of BiT, which timm reads too.

    LoRA's products are written as a part of the kernels that they are added to.

    Args:
        model: a model of `BiTResNet`, every weight of which has a released name.
        path: str or path of the `.npz` to write or replace.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: the model is not a whole one of `BiTResNet`, has int8 weights, or
            weights or layers that have no released name, or calls one twice; nothing
            is written then.
        zoo.CheckpointError: the path does not end in `.npz`, or a weight is not
            finite.
        OSError: the file cannot be written.

    Source:
        The `.npz` files of https://github.com/google-research/big_transfer

    Example:

    >>> from train.baselines import BiT_R50x1
    >>> save_bit_weights(BiT_R50x1(image_size=32, classes=10), "bit.npz").name
    'bit.npz'
    """
    path = pathlib.Path(path).expanduser()
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


class BiTArrays:
    """The arrays of a released file of BiT, read one by one.

    Args:
        source: path or URL of an `.npz`.

    Raises:
        zoo.CheckpointError: it is no `.npz`, damaged or holds pickled objects.
        zoo.StoreError: the file is not available.
    """

    def __init__(self, source):
        file = Archive(zoo.locate(source))
        self.path = file.path
        parts = {key: file.check(key) for key in file.keys}
        refuse(self.path, f"a checkpoint of BiT, {_NAMES}", wrong_dtypes(parts))
        self.arrays = StoredArrays(parts)

    @property
    def classes(self):
        """The size of the head, None without one."""
        shape = self.arrays.shapes.get(f"{_HEAD}/kernel")
        return shape[-1] if shape else None


def _released_shape(key, shape, _):
    # The released head is a convolution of 1x1.
    return (1, 1, *shape) if key == f"{_HEAD}/kernel" else shape


PLACES = ReleasedPlaces(
    _LAYERS,
    ("root_conv", "norm"),
    "train.baselines.BiTResNet or train.baselines.BiT_R50x1",
    _released_shape,
)


def assign(model, released, *, new_head):
    """Assigns the arrays of a file to a model's variables; see the loader above.

    Args:
        model: a model of `BiTResNet`.
        released: `BiTArrays`.
        new_head: bool, leave the file's head out even if it fits.

    Raises:
        ValueError: the model is not a whole one of `BiTResNet`, or has LoRA's products.
        zoo.CheckpointError: the file does not fit; no variable is changed then.
    """
    targets = PLACES.variables(model)
    PLACES.check_loadable(model)
    shapes = dict(released.arrays.shapes)
    head = {f"{_HEAD}/kernel", f"{_HEAD}/bias"}
    own = targets[f"{_HEAD}/kernel"][1][-1] if head <= targets.keys() else None
    if new_head or own is None or own != released.classes:
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
    what = f"a checkpoint of BiT that fits {model.name!r}, {_NAMES}"
    refuse(released.path, what, problems)
    for key, (variable, _) in targets.items():
        variable.assign(released.arrays[key].reshape(variable.shape))
    if f"{_HEAD}/kernel" in targets and not released.arrays[f"{_HEAD}/kernel"].any():
        warnings.warn(
            f"The head in {released.path} is all zeros, and so will be the logits: "
            "pass classes=K for a new head to fine-tune, or include_top=False for "
            "features.",
            stacklevel=stacklevel(),
        )

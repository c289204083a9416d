"""Loads `.keras` files, which are checked before Keras reads them."""

import contextlib
import functools
import io
import json
import math
import os
import pathlib
import threading
import zipfile
from typing import Any

import keras

import keras_vit  # noqa: F401 - whose layers the files name
from train.common.errors import RunError, first_line
from train.models.run_directory import RunDirectory
from zoo.common import limits
from zoo.common.regular_files import missing_remedy, open_regular
from zoo.containers.arrays import BUGS, CheckpointError
from zoo.containers.h5 import MAGIC, arrays_of

_CONFIG, _METADATA = "config.json", "metadata.json"
_H5 = "model.weights.h5"
_WEIGHTS = {_H5, "model.weights.npz"}


def load_model(path: str | os.PathLike) -> keras.Model:
    """Returns the `keras.Model` in a `.keras` file, without its optimizer.

    Refuses files that are damaged, of another kind, or could run code.
    """
    path = pathlib.Path(path)
    try:
        config, version = _checked(path)
        try:
            with _bounded_weights(path):
                model = keras.saving.load_model(path, compile=False)
        # Layers raise errors of any kind at a wrong config.
        except Exception as error:
            raise RunError(_why_not(config, version, error)) from error
        if not isinstance(model, keras.Model):
            kind = type(model).__name__
            raise RunError(f"it holds a {kind}, not a model: save a keras.Model.")
        ends = [len(getattr(model, end, None) or ()) for end in ("inputs", "outputs")]
        # An EoMT's are of queries: what cannot use them refuses these by name.
        # Models with a Sequential in them may have no output of their own.
        outputs = getattr(model, "output", None)
        has_masks = isinstance(outputs, dict) and "mask_logits" in outputs
        if ends != [1, 1] and not has_masks:
            raise RunError(
                f"it has {ends[0]} known inputs and {ends[1]} outputs, where one of "
                "each is needed. Save a functional keras.Model from images to logits."
            )
        return model
    except RunError as error:
        raise RunError(f"The model {path} cannot be used: {error}") from error


def _checked(path):
    """Returns the config of an undamaged file, and the version of Keras in it."""
    again = "copy, download or save it again"
    if RunDirectory(path.parent).checkpoints.is_dir():
        again += ", or run the command of its run again, which writes it anew"
    if not path.is_file():
        problem = "it is a folder" if path.is_dir() else "there is no such file"
        raise RunError(f"{problem}: {missing_remedy(path)}")
    try:
        with open_regular(path) as file:
            start = file.read(16)
        if start.startswith(MAGIC):
            raise RunError(
                "it is an HDF5 file under another name: call weights .weights.h5; load "
                "a whole model in Python and save it as .keras."
            )
        if not start:
            raise RunError(f"it is empty: {again}.")
        if not start.startswith(b"PK"):
            raise RunError(f"it is no .keras file (it starts with {start!r}): {again}.")
        with zipfile.ZipFile(path) as archive:
            return _read(archive, path.stat().st_size)
    except (RunError, *BUGS):
        raise
    except Exception as error:
        reason = first_line(error)
        raise RunError(f"it is damaged or cut short ({reason}): {again}.") from error


def _read(archive, size):
    names = {*archive.namelist()}
    if _CONFIG not in names or not _WEIGHTS & names:
        raise RunError(
            "it is a zip archive, but not of a model that Keras saved: it has no "
            f"{_CONFIG} or no {_H5}."
        )
    _check_members(archive, size)
    config = json.loads(archive.read(_CONFIG))
    if not isinstance(config, dict) or "class_name" not in config:
        raise ValueError(f"{_CONFIG} names no class")
    if any(entry.get("class_name") == "__lambda__" for entry in _objects(config)):
        raise RunError(
            "it holds Python code in a Lambda layer, which could do anything and is "
            "never loaded: replace the layer, and save the model again."
        )
    for entry in _objects(config):
        _check_shapes(entry)
    if _H5 in names:
        _check_arrays(archive.read(_H5))
    try:
        version = str(json.loads(archive.read(_METADATA))["keras_version"])
    except (KeyError, ValueError, TypeError):
        version = "of an unknown version"
    return config, version


def _check_members(archive, size):
    """Refuses an archive of `size` bytes that is damaged, or larger than it looks."""
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two of its members have one name")
    unpacked = sum(member.file_size for member in members)
    if unpacked > limits.UNPACKED_RATIO * size:
        raise ValueError(f"{size} bytes hold {unpacked}")
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"compression {member.compress_type}")
    if len(members) > limits.ZIP_MEMBERS:
        raise ValueError(f"it has {len(members)} members")
    if archive.getinfo(_CONFIG).file_size > limits.KERAS_CONFIG_BYTES:
        raise ValueError(f"{_CONFIG} has over {limits.KERAS_CONFIG_BYTES} bytes")
    if damaged := archive.testzip():
        raise ValueError(f"another CRC-32 of {damaged!a}")


def _check_arrays(content):
    """Refuses weights in other files, and those that have a shape and no bytes."""
    import h5py

    with h5py.File(io.BytesIO(content)) as file:
        try:
            arrays = arrays_of(file, f"its {_H5}").values()
        except CheckpointError as error:
            raise RunError(str(error)) from error
        held = sum((array.size or 0) * array.dtype.itemsize for array in arrays)
    if held > limits.UNPACKED_RATIO * len(content):
        raise ValueError(f"{len(content)} bytes of {_H5} hold {held}")


@contextlib.contextmanager
def _bounded_weights(path):
    """Refuses layers with far larger weights than a file holds, before they are made.

    Keras makes the weights that the config describes, and reads the file afterwards.
    """
    with zipfile.ZipFile(path) as archive:
        held = sum(member.file_size for member in archive.infolist())
    # Weights may have 4 bits in the file and 32 in memory.
    left = [8 * held + limits.UNSAVED_BYTES]
    make, here = keras.Layer.add_weight, threading.get_ident()

    @functools.wraps(make)
    def counted(layer: Any, shape: Any = None, *arguments: Any, **options: Any) -> Any:
        if threading.get_ident() == here:
            sides = (shape,) if isinstance(shape, int) else (shape or ())
            left[0] -= 4 * math.prod(sides)
            if left[0] < 0:
                raise ValueError(
                    f"{layer.name} has weights of shape {tuple(sides)}, and the whole "
                    f"file {held:,} bytes"
                )
        return make(layer, shape, *arguments, **options)

    keras.Layer.add_weight = counted
    try:
        yield
    finally:
        keras.Layer.add_weight = make


def _check_shapes(entry):
    """Refuses layers whose images would not fit in memory."""
    for key in ("batch_shape", "batch_input_shape", "input_shape", "shape"):
        shape = entry.get(key)
        if not isinstance(shape, list) or not 3 <= len(shape) <= 4:
            continue
        sides = [side for side in shape[-3:-1] if side is not None]
        if len(sides) == 2:
            limits.check_image_size(sides)


def _why_not(config, version, error):
    foreign = dict.fromkeys(
        f"{entry['module']}.{entry['class_name']}"
        for entry in _objects(config)
        if _is_foreign(entry)
    )
    if foreign:
        return (
            f"its {first_line(', '.join(foreign))} is from neither Keras nor "
            "keras_vit: load it in Python with the library that it comes from."
        )
    return (
        f"Keras {version} saved it, and Keras {keras.__version__} cannot load it "
        f"({type(error).__name__}: {first_line(error)}): install that Keras, or save "
        "the model again."
    )


def _is_foreign(entry):
    """Returns whether a class is from a library that has not been imported."""
    registered = entry.get("registered_name")
    if not isinstance(entry.get("class_name"), str) or "module" not in entry:
        return False
    if isinstance(registered, str) and keras.saving.get_registered_object(registered):
        return False
    package = str(entry["module"]).partition(".")[0]
    return package not in ("keras", "keras_vit", "train", "builtins")


def _objects(config):
    """Yields the dicts in parsed JSON, without recursion."""
    left = [config]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)

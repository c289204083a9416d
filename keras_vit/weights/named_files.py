"""Files whose arrays have the names under which an architecture was released."""

import dataclasses
import os
import pathlib
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import zoo
from keras_vit.weights.loading import stacklevel
from keras_vit.weights.released_places import ReleasedPlaces, as_arrays
from zoo.common.regular_files import expand_home
from zoo.containers.arrays import CheckpointError, StoredArrays, refuse, wrong_dtypes
from zoo.containers.npz import Npz


@dataclasses.dataclass(frozen=True)
class NamedArrays:
    """Arrays, with the path of their file or what it is called, and their classes."""

    path: Any
    arrays: StoredArrays
    classes: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class NamedFiles:
    """Reads and writes `.npz` files of an architecture, every array accounted for.

    Attributes:
        places: `ReleasedPlaces`.
        architecture: str, its name in messages.
        head: names of the kernel, whose last axis is that of the classes, and of the
            bias of the head.
        mark: name of an array that no file of another architecture has.
        config_of: function of {name: shape} of a file's arrays to the config of their
            network.
    """

    places: ReleasedPlaces
    architecture: str
    head: tuple[str, str]
    mark: str
    config_of: Callable[[dict], object]

    def config_in(self, path: pathlib.Path) -> Any:
        """Returns the config of a file's network, None of another architecture's."""
        if path.suffix != ".npz" or self.mark not in Npz(path).keys:
            return None
        return self.config_of(self.read(path).arrays.shapes)

    def read(self, source: str | os.PathLike | NamedArrays) -> NamedArrays:
        """Returns the arrays of a file, which are read one by one; or what is read."""
        if isinstance(source, NamedArrays):
            return source
        file = Npz(zoo.locate(source))
        parts = {key: file.check(key) for key in file.keys}
        refuse(file.path, self._kind(), wrong_dtypes(parts))
        return self._named(file.path, parts)

    def weights_of(self, model: keras.Model) -> NamedArrays:
        """Returns a model's weights as the function that makes it takes them."""
        arrays = as_arrays(self.places.variables(model))
        return self._named(f"The model {model.name}", arrays)

    def _named(self, path, arrays):
        arrays = StoredArrays(arrays)
        kernel = arrays.shapes.get(self.head[0])
        return NamedArrays(path, arrays, kernel and kernel[-1])

    def load(
        self,
        model: keras.Model,
        source: str | os.PathLike | NamedArrays,
        *,
        new_head: bool = False,
        **others: object,
    ) -> None:
        """Loads a file into a model, see `keras_vit.load_released_weights`."""
        if others:
            raise ValueError(
                f"{model.name!r} is no Vision Transformer: leave out "
                f"{', '.join(others)}."
            )
        self.assign(model, self.read(source), new_head=new_head)

    def assign(self, model: keras.Model, file: NamedArrays, *, new_head: bool) -> None:
        """Assigns the arrays of a file to a model's variables, all of them or none."""
        targets = self.places.variables(model, to_load=True)
        path, arrays = file.path, file.arrays
        shapes, kernel = dict(arrays.shapes), self.head[0]
        own = targets[kernel][1][-1] if targets.keys() >= {*self.head} else None
        if new_head or own is None or own != file.classes:
            for key in self.head:
                targets.pop(key, None)
                shapes.pop(key, None)
        problems = [f"missing {key}" for key in targets if key not in shapes]
        problems += [f"unknown {key}" for key in shapes if key not in targets]
        problems += [
            f"{key} has shape {shapes[key]}, not {shape}"
            for key, (_, shape) in targets.items()
            if key in shapes and shapes[key] != shape
        ]
        refuse(path, self._kind(f" that fits {model.name!r}"), problems)
        for key, (variable, _) in targets.items():
            variable.assign(arrays[key].reshape(variable.shape))
        if kernel in targets and not arrays[kernel].any():
            warnings.warn(
                f"The head in {path} is all zeros, and so will be the logits: pass "
                "classes=K for a new head to fine-tune, or include_top=False for "
                "features.",
                stacklevel=stacklevel(),
            )

    def save(
        self, model: keras.Model, path: str | os.PathLike, naming: str = "released"
    ) -> pathlib.Path:
        """Writes a model's weights, see `keras_vit.save_released_weights`."""
        path = expand_home(path)
        if naming != "released":
            raise ValueError(
                f"{model.name!r} is no Vision Transformer: leave out naming={naming!r}."
            )
        if path.suffix != ".npz":
            raise CheckpointError(f"Cannot write {path}: its name must end in .npz.")
        variables = self.places.variables(model)
        arrays = as_arrays(variables)
        problems = [
            f"{key} holds NaN or infinity"
            for key, array in arrays.items()
            if not np.isfinite(array).all()
        ]
        refuse(path, self._kind(), problems)
        folder = tempfile.TemporaryDirectory(dir=path.parent, prefix=".checkpoint-")
        with folder as temporary:
            part = os.path.join(temporary, path.name)
            np.savez(part, **arrays)
            os.replace(part, path)
        return path

    def _kind(self, fitting=""):
        names = f"under the names {self.architecture} was released with"
        return f"a checkpoint of {self.architecture}{fitting}, {names}"

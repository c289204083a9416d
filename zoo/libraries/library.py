"""What a library of checkpoints declares: how its files are recognised, read, written.

A new one is a subclass of `Library` in a module of its own, which `reading.LIBRARIES`
lists, and a column of `array_names.csv`, unless its names become those of another one.
"""

import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zoo.containers.arrays import OpenFile
from zoo.containers.opening import Collected
from zoo.libraries import array_names
from zoo.libraries.comparison import Shown
from zoo.libraries.description import Description
from zoo.network.head import Head

if TYPE_CHECKING:
    from zoo.libraries.checkpoint import Checkpoint

EMBEDDING_BIAS, HEAD_BIAS = "embedding/bias", "head/bias"


class Library:
    """The checkpoints of one library.

    Attributes:
        name: str, in messages and for `zoo.write`.
        beside: the files that are read beside the one with the arrays.
        keys: a pattern that some key of each of its files has.
        reasons: {pattern of keys: why a file that has such a key is not read}.
        shared_biases: the name of biases of offsets that all blocks share, and that of
            a block's own; None without.
        without_biases: released biases that are zeros, and not in its files, where a
            norm comes before the blocks.
        is_written: whether `written` is there.
    """

    name = ""
    beside: tuple[str, ...] = ()
    keys = re.compile("$^")
    reasons: dict[str, str] = {}
    shared_biases: tuple[str, str] | None = None
    without_biases: tuple[str, ...] = ()
    is_written = False

    def check_named(self, file: pathlib.Path, config: dict) -> None:
        """Refuses a `config.json` that names a network which is not read."""

    def recognises(self, keys: Iterable[str], folder: pathlib.Path) -> bool:
        """Returns whether the arrays of a file in a folder are named by the library."""
        return any(map(self.keys.search, keys))

    def whole(self, file: OpenFile | Collected) -> OpenFile | Collected:
        """Returns an open file together with the others of its checkpoint."""
        return file

    def column(self, keys: Iterable[str]) -> str:
        """Returns the column of `array_names.TABLE` that has the names of `select`."""
        return self.name

    def select(self, keys: Iterable[str]) -> dict[str, str]:
        """Returns {key: name in `array_names.TABLE`} of the model's arrays."""
        raise NotImplementedError

    def wrong_values(self, arrays: dict) -> list[str]:
        """Returns the problems with values of networks that are not computed."""
        return []

    def arranged(self, arrays: dict) -> dict:
        """Returns {name in `array_names.TABLE`: array} as the column has them."""
        return arrays

    def describe(self, folder: pathlib.Path, shown: Shown) -> Description:
        """Returns what settings beside a file say, the library's defaults elsewhere.

        Raises:
            CheckpointError: they describe another network than the arrays show, or one
                that is not computed.
        """
        raise NotImplementedError

    def head_of(self, folder: pathlib.Path, shown: Shown) -> Head:
        """Returns what settings beside a file with our header say of its outputs."""
        return Head()

    def written(self, checkpoint: "Checkpoint") -> tuple[dict, dict[str, dict]]:
        """Returns {key: array} of a checkpoint, and {name: table} of its settings.

        Raises:
            ValueError: the library has no such network.
        """
        raise NotImplementedError


def arrays_of(
    checkpoint: "Checkpoint", column: str, library: Library, without: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Returns a checkpoint's arrays under the names of a column, `without` biases."""
    released = dict(checkpoint.arrays)
    for bias in without:
        if bias in released and released.pop(bias).any():
            raise ValueError(
                f"{library.name}'s networks with a norm before their blocks have no "
                f"{bias}, which a model for images in [-1, 1] needs"
            )
    heads = checkpoint.num_heads, checkpoint.pooling_heads
    return array_names.from_released(column, released, *heads)


def first_alike(
    library: Library, candidates: dict[str, tuple[dict, dict]]
) -> tuple[str, dict]:
    """Returns the first name whose network is the wanted one, and its settings.

    `candidates` is {name: (settings, {field: (value of its network, value wanted)})}.
    """
    differences = {
        name: [
            f"{field} {has!r}, not {needs!r}"
            for field, (has, needs) in fields.items()
            if has != needs
        ]
        for name, (_, fields) in candidates.items()
    }
    nearest = min(candidates, key=lambda name: len(differences[name]))
    if differences[nearest]:
        raise ValueError(
            f"{library.name} has no network like this: its nearest one, {nearest}, has "
            f"{', '.join(differences[nearest])}"
        )
    return nearest, candidates[nearest][0]

"""How a data set is read: where it is, what is left out, corrected, or named."""

import dataclasses
import os

from train.data.columns import USUAL, Columns
from train.data.correction_files import Files


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """How a data set is read, by the flags that all commands share; docs/data.md.

    Attributes:
        data_dir: folder of TFDS data sets, None for its default.
        skip_corrupt: decode all images first, and leave out those that cannot be read.
        without: file of the photos to leave out, or several.
        relabel: file of labels of photos, or several; like `without` as
            `train.data.sources.corrections.corrected` takes it.
        bits: bits of the values in PNG and TIFF files of 16 bits, 8 to 16.
        columns: those of a CSV file.
        ignore: names and values of classes of masks that do not count, with commas
            between; see `train.masks.classes.of_table`.
        task: what labels are for, one of `train.tasks.TASKS`; None for classes.
    """

    data_dir: str | os.PathLike | None = None
    skip_corrupt: bool = False
    without: Files = None
    relabel: Files = None
    bits: int | None = None
    columns: Columns = USUAL
    ignore: str | None = None
    task: str | None = None


DEFAULTS = DataOptions()

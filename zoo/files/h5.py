"""Reader of Keras weights in HDF5 files.

HDF5 files can refer to other files and hold compressed data of any size. Keras writes
neither, so both are refused: only contiguous arrays in the file itself are read.
"""

import os

from zoo.files.archive import CheckpointError, OpenFile, StoredArray
from zoo.limits import GROUP_DEPTH

MAGIC = b"\x89HDF\r\n\x1a\n"


class H5(OpenFile):
    """An open `.h5` file."""

    def __init__(self, path: str | os.PathLike):
        import h5py

        super().__init__(path)

        def visit(name, item):
            if not isinstance(name, str):
                raise ValueError(f"an array is called {name!r}")
            self._check_name(name)
            # The deeper a group is, the longer it takes to find.
            if name.count("/") > GROUP_DEPTH:
                raise ValueError(f"groups are more than {GROUP_DEPTH} deep")
            if isinstance(item, h5py.Dataset):
                self._add(name, item)

        with self._damage_explained(), h5py.File(path, "r") as file:
            # Links to other places are not visited.
            file.visititems(visit)

    def _add(self, name, dataset):
        dtype = dataset.dtype
        # bfloat16 is void of two bytes, as in an .npz file.
        plain = dtype.kind in "fiu" or (dtype.kind, dtype.itemsize) == ("V", 2)
        elsewhere = dataset.external or dataset.is_virtual or dataset.chunks
        if elsewhere or not plain or dataset.shape is None:
            raise CheckpointError(
                f"{self.path} holds {name!r}, which is not a plain array of numbers: "
                "save the weights with Keras."
            )
        # An array that was never written has a shape, but no bytes.
        if dataset.id.get_storage_size() != dataset.nbytes or not dataset.nbytes:
            raise ValueError(f"{name} has shape {dataset.shape} without its bytes")
        offset = dataset.id.get_offset()
        if offset is None:
            # Small arrays may lie within the header.
            self._arrays[name] = dataset[()]
        else:
            self._arrays[name] = StoredArray(self, offset, dtype, dataset.shape)

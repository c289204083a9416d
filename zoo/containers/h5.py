"""Reader of Keras weights in HDF5 files.

HDF5 files can refer to other files and hold compressed data of any size. Keras writes
neither, so both are refused: only contiguous arrays in the file itself are read.
"""

import os
from typing import TYPE_CHECKING, Any

from zoo.common.limits import GROUP_DEPTH
from zoo.containers.arrays import CheckpointError, OpenFile, StoredArray

if TYPE_CHECKING:
    import h5py

MAGIC = b"\x89HDF\r\n\x1a\n"


def arrays_of(file: "h5py.File", title: str) -> dict[str, "h5py.Dataset"]:
    """Returns the arrays of an open file, which lie in the file itself.

    Args:
        file: open for reading.
        title: what messages call it.

    Raises:
        CheckpointError: it has links, or arrays whose numbers are in other files.
        ValueError: it has groups in groups without end.
    """
    import h5py

    datasets = {}

    def visit(name: Any, item: Any) -> None:
        if not isinstance(name, str):
            raise ValueError(f"an array is called {name!r}")
        # The deeper a group is, the longer it takes to find.
        if name.count("/") > GROUP_DEPTH:
            raise ValueError(f"groups are more than {GROUP_DEPTH} deep")
        if isinstance(item, h5py.Group):
            check_links(name, item)
        elif isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                refuse(name, "an array whose numbers lie in another file")
            datasets[name] = item

    def check_links(name: str, group: "h5py.Group") -> None:
        for key in group:
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                refuse(f"{name}/{key}".strip("/"), "a link to another place")

    def refuse(name: str, what: str) -> None:
        raise CheckpointError(
            f"{title} holds {name!r}, {what}, and no other place is read: save the "
            "weights with Keras."
        )

    check_links("", file)
    # It visits what is in the file itself, each object once.
    file.visititems(visit)
    return datasets


class H5(OpenFile):
    """An open `.h5` file."""

    def __init__(self, path: str | os.PathLike):
        import h5py

        super().__init__(path)
        with self._damage_explained(), h5py.File(path, "r") as file:
            for name, dataset in arrays_of(file, self.path).items():
                self._add(name, dataset)

    def _add(self, name, dataset):
        self._check_name(name)
        dtype = dataset.dtype
        # bfloat16 is void of two bytes, as in an .npz file.
        plain = dtype.kind in "fiu" or dtype == "V2"
        if dataset.chunks or not plain or dataset.shape is None:
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
        # Some releases of HDF5 take a negative offset for a place far away.
        elif offset + dataset.nbytes > os.fstat(self._file.fileno()).st_size:
            raise ValueError(f"{name} lies beyond the end of the file")
        else:
            self._arrays[name] = StoredArray(self, offset, dtype, dataset.shape)

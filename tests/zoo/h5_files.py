"""`.h5` files: right ones, as keras-hub writes, and those that are made to do harm."""

import functools
import io
import struct

import h5py
import numpy as np
from safetensors_files import arrays

from zoo.libraries import array_names

SUFFIX = ".h5"
CLASS_TOKEN, KERNEL = (
    array_names.foreign_name("keras_hub", name) for name in ("cls", "head/kernel")
)
ONES = np.ones((1, 1, 48), "f4")


@functools.cache
def hub_arrays():
    """The golden's arrays as keras-hub calls them."""
    return {
        array_names.foreign_name("keras_hub", name): array
        for name, array in arrays().items()
    }


def h5(change=None, without=None, **arguments):
    """A right file, changed while it is open."""
    stream = io.BytesIO()
    with h5py.File(stream, "w", **arguments) as file:
        for name, array in hub_arrays().items():
            if name != without:
                file[name] = array
        if change is not None:
            change(file)
    return stream.getvalue()


def dataset(shape=(1, 1, 48), dtype="f4", **arguments):
    """A right file but for the kind of the class token."""

    def change(file):
        file.create_dataset(CLASS_TOKEN, shape, dtype, **arguments)

    return h5(change, CLASS_TOKEN)


def placed(name, value):
    """A right file with something else at a name."""
    return h5(lambda file: file.__setitem__(name, value), name)


def virtual(file):
    layout = h5py.VirtualLayout((1, 1, 48), "f4")
    layout[:] = h5py.VirtualSource("outside.h5", "secret", (1, 1, 48))
    file.create_virtual_dataset(CLASS_TOKEN, layout)


def compact(file):
    space = h5py.h5s.create_simple((1, 1, 48))
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_layout(h5py.h5d.COMPACT)
    group, _, name = CLASS_TOKEN.rpartition("/")
    at, kind = file.require_group(group).id, h5py.h5t.IEEE_F32LE
    made = h5py.h5d.create(at, name.encode(), kind, space, create)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, ONES)


def nested(depth):
    return h5(lambda file: file.create_group("/".join("a" * depth)))


def cyclic(file):
    group = file.create_group("a/b")
    group["c"] = file["a"]
    group["d"] = file["/"]


def patched(old, new, form):
    """A right file with numbers in its bytes replaced."""
    old, new = (b"".join(struct.pack(form, n) for n in part) for part in (old, new))
    assert old in h5()
    return h5().replace(old, new)


def moved(offset=0):
    """A right file whose head is said to lie further on."""
    with h5py.File(io.BytesIO(h5())) as file:
        start, size = file[KERNEL].id.get_offset(), file[KERNEL].nbytes
    return patched((start, size), (start + offset, size), "<Q")


def value(number):
    """A right file but for one number of its head."""
    return patched(hub_arrays()[KERNEL][-1, -2:], (1, number), "<f")


FILE, INSIDE = h5py.ExternalLink("/etc/passwd", "/"), h5py.SoftLink("/" + KERNEL)
NOT_PLAIN = f"'{CLASS_TOKEN}', which is not a plain array"
NO_BYTES = "without its bytes"
ELSEWHERE = f"'{CLASS_TOKEN}', an array whose numbers lie in another file"
DEEP = "layers/dense_9/vars/0"
# Each row is a part of the message, and a function that makes the file.
FAULTS = [
    ("groups are more than 20 deep", lambda: nested(22)),
    ("damaged or cut short", lambda: h5()[:-1]),
    (NO_BYTES, lambda: dataset((1, 1, 10**12))),
    (NO_BYTES, lambda: dataset((10**12,), fillvalue=1.0)),
    (NO_BYTES, lambda: dataset((10**15, 0))),
    (NOT_PLAIN, lambda: dataset(data=ONES, compression="gzip")),
    (NOT_PLAIN, lambda: placed(CLASS_TOKEN, h5py.Empty("f4"))),
    (NOT_PLAIN, lambda: placed(CLASS_TOKEN, "text")),
    (NOT_PLAIN, lambda: dataset(dtype="S2")),
    (NOT_PLAIN, lambda: dataset(dtype=[("a", "f4"), ("b", "f4")])),
    (NOT_PLAIN, lambda: dataset(dtype=[("a", "i1"), ("b", "i1")])),
    (f"'{KERNEL}', a link to another", lambda: placed(KERNEL, FILE)),
    ("'link', a link to another", lambda: placed("link", INSIDE)),
    (f"'{DEEP}', a link to another", lambda: placed(DEEP, FILE)),
    (ELSEWHERE, lambda: dataset(external=[("/etc/passwd", 0, 192)])),
    (ELSEWHERE, lambda: h5(virtual, CLASS_TOKEN)),
    ("int32", lambda: placed(CLASS_TOKEN, ONES.astype("i4"))),
    ("damaged or cut short", lambda: moved(2**40)),
    (r"an array is called 'a\nb", lambda: placed("a\nb", ONES)),
    (f"NaN or infinity under '{KERNEL}'", lambda: value(np.nan)),
]


def right():
    """Files that are right, made as those that are not."""
    yield from (h5(), h5(libver="latest"), h5(compact, CLASS_TOKEN))
    yield from (h5(cyclic), nested(21), moved())
    yield placed(CLASS_TOKEN, hub_arrays()[CLASS_TOKEN].astype(">f2"))


def structure():
    """The bytes of a file, and where those are that say what the others mean."""
    data = h5()
    with h5py.File(io.BytesIO(data)) as file:
        found = [file[name] for name in hub_arrays()]
        spans = sorted((item.id.get_offset(), item.nbytes) for item in found)
    starts = [8, *(start + size for start, size in spans)]
    stops = [*(start for start, _ in spans), len(data)]
    pairs = zip(starts, stops, strict=True)
    return data, [offset for pair in pairs for offset in range(*pair)]


STRUCTURES = {"as Keras writes": structure}

"""`.h5` files: right ones, as keras-hub writes, and those that are made to do harm."""

import functools
import io
import struct

import h5py
import numpy as np
from safetensors_files import arrays

from zoo.libraries import names

SUFFIX = ".h5"


def theirs(name):
    return names.foreign_name("keras_hub", name)


@functools.cache
def hub_arrays():
    """The golden's arrays as keras-hub calls them."""
    return {theirs(name): array for name, array in arrays().items()}


CLASS_TOKEN, KERNEL = theirs("cls"), theirs("head/kernel")
BLOCK_NORM = theirs("Transformer/encoderblock_0/LayerNorm_0/bias")
GROUP, LEAF = CLASS_TOKEN.rsplit("/", 1)


@functools.cache
def right_h5(**arguments):
    stream = io.BytesIO()
    with h5py.File(stream, "w", **arguments) as file:
        for name, array in hub_arrays().items():
            file[name] = array
    return stream.getvalue()


def h5(change=None, without=(), **arguments):
    """A right file, changed while it is open."""
    stream = io.BytesIO(right_h5(**arguments))
    with h5py.File(stream, "r+", **arguments) as file:
        for name in hub_arrays().keys() & set(without):
            del file[name]
            while (name := name.rpartition("/")[0]) and len(file[name]) == 0:
                del file[name]
        if change is not None:
            change(file)
    return stream.getvalue()


def dataset(shape=(1, 1, 48), dtype="f4", **arguments):
    """A right file but for the kind of the class token."""

    def change(file):
        file.create_dataset(CLASS_TOKEN, shape, dtype, **arguments)

    return h5(change, without=[CLASS_TOKEN])


def placed(name, value, without=()):
    """A right file with something else at a name."""
    return h5(lambda file: file.__setitem__(name, value), without or [name])


def virtual(file):
    layout = h5py.VirtualLayout((1, 1, 48), "f4")
    layout[:] = h5py.VirtualSource("outside.h5", "secret", (1, 1, 48))
    file.create_virtual_dataset(CLASS_TOKEN, layout)


def compact(file):
    space = h5py.h5s.create_simple((1, 1, 48))
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_layout(h5py.h5d.COMPACT)
    group = file.require_group(GROUP)
    kind = h5py.h5t.IEEE_F32LE
    made = h5py.h5d.create(group.id, LEAF.encode(), kind, space, create)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ones((1, 1, 48), "f4"))


def nested(depth):
    return h5(lambda file: file.create_group("/".join("a" * depth)))


def cyclic(file):
    group = file.create_group("a/b")
    group["c"] = file["a"]
    group["d"] = file["/"]


def patched(data, old, new, form="<Q"):
    """Numbers in the bytes that say what the others mean, replaced."""
    old, new = (b"".join(struct.pack(form, n) for n in part) for part in (old, new))
    assert data.count(old) >= 1
    return data.replace(old, new)


@functools.cache
def kernel_place():
    with h5py.File(io.BytesIO(h5())) as file:
        return file[KERNEL].id.get_offset(), file[KERNEL].nbytes


def beyond():
    start, size = kernel_place()
    return patched(h5(), (start, size), (2**40, size))


def linked(target, name=KERNEL):
    return placed(name, target)


FILE, INSIDE = h5py.ExternalLink("/etc/passwd", "/"), h5py.SoftLink("/" + KERNEL)
# Parts of what is said.
NOT_PLAIN = f"'{CLASS_TOKEN}', which is not a plain array"
NO_BYTES = "without its bytes"
ELSEWHERE = f"'{CLASS_TOKEN}', an array whose numbers lie in another file"
# A part of what is told of each, and how it is made.
FAULTS = [
    ("groups are more than 20 deep", lambda: nested(22)),
    ("damaged or cut short", lambda: h5()[:-1]),
    (NO_BYTES, lambda: dataset((1, 1, 10**12))),
    (NO_BYTES, lambda: dataset((10**12,), fillvalue=1.0)),
    (NO_BYTES, lambda: dataset((10**15, 0))),
    (NOT_PLAIN, lambda: dataset(data=np.ones((1, 1, 48), "f4"), compression="gzip")),
    (NOT_PLAIN, lambda: placed(CLASS_TOKEN, h5py.Empty("f4"))),
    (NOT_PLAIN, lambda: placed(CLASS_TOKEN, "text")),
    (NOT_PLAIN, lambda: dataset(dtype="S2")),
    (NOT_PLAIN, lambda: dataset(dtype=[("a", "f4"), ("b", "f4")])),
    (f"'{KERNEL}', a link to another", lambda: linked(FILE)),
    ("'link', a link to", lambda: linked(INSIDE, "link")),
    (
        "'layers/dense_9/vars/0', a link to another",
        lambda: linked(FILE, "layers/dense_9/vars/0"),
    ),
    (ELSEWHERE, lambda: dataset(external=[("/etc/passwd", 0, 192)])),
    (ELSEWHERE, lambda: h5(virtual, without=[CLASS_TOKEN])),
    ("int32", lambda: placed(CLASS_TOKEN, np.ones((1, 1, 48), "i4"))),
    (
        "unknown layers/vi_t_patch",
        lambda: placed(
            GROUP,
            np.ones(3),
            [name for name in hub_arrays() if name.startswith("layers/vi_t_patch")],
        ),
    ),
    ("damaged or cut short", beyond),
    (
        "an array is called",
        lambda: placed(BLOCK_NORM.replace("_0/", f"_{'1' * 990}/"), np.ones(48, "f4")),
    ),
    (
        f"NaN or infinity under '{KERNEL}'",
        lambda: patched(h5(), hub_arrays()[KERNEL][-1, -2:], (1, np.nan), "<f"),
    ),
]


def right():
    """Files that are right, made as those that are not."""
    yield from (h5(), h5(libver="latest"), h5(compact, without=[CLASS_TOKEN]))
    yield from (h5(cyclic), nested(21))
    yield placed(CLASS_TOKEN, hub_arrays()[CLASS_TOKEN].astype(">f2"))
    yield patched(h5(), kernel_place(), kernel_place())


@functools.cache
def structure(libver):
    """The bytes of a file, and where those are that say what the others mean."""
    data = h5(libver=libver)
    with h5py.File(io.BytesIO(data)) as file:
        found = [file[name] for name in hub_arrays()]
        spans = sorted((item.id.get_offset(), item.nbytes) for item in found)
    starts = [8, *(start + size for start, size in spans)]
    stops = [*(start for start, _ in spans), len(data)]
    pairs = zip(starts, stops, strict=True)
    return data, [offset for pair in pairs for offset in range(*pair)]


STRUCTURES = {
    libver: functools.partial(structure, libver) for libver in ("earliest", "latest")
}

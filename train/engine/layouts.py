"""Which part of each variable every device of a mesh holds: model parallelism."""

import math
from collections.abc import Iterator

import keras

from train.common.errors import RunError

DATA, MODEL = "data", "model"
# The axis of an array that is cut along `model`, by the ends of paths. Attention is cut
# by heads, and an MLP by its hidden numbers: first columns, then rows.
LAYOUTS = {
    "(.*/)?(query|key|value|expand)/kernel": (None, MODEL),
    "(.*/)?(query|key|value|expand)/bias": (MODEL,),
    "(.*/)?(out|project)/kernel": (MODEL, None),
}


class ModelParallel(keras.distribution.ModelParallel):
    """Cuts batches along the mesh axis `data`, and variables along both axes.

    `LAYOUTS` name the axis of an array that is cut along `model`. Of other arrays, and
    where the devices do not divide that axis, it is the last axis that they divide. The
    last of the other axes that the devices of `data` divide is cut among these, which
    send each other their parts where they compute (ZeRO, FSDP). Vectors, such as those
    of norms, and arrays of which no axis can be cut are whole on every device. What an
    optimizer keeps of a variable is cut as the variable.

    Source:
        Attention and MLP along `model`: Megatron-LM, arXiv 1909.08053, section 3.
        Along `data`: ZeRO, arXiv 1910.02054, section 5.3.
    """

    def __init__(self, mesh: keras.distribution.DeviceMesh):
        layout_map = keras.distribution.LayoutMap(mesh)
        layout_map.update(LAYOUTS)
        super().__init__(layout_map=layout_map, batch_dim_name=DATA)

    def get_variable_layout(
        self, variable: keras.Variable
    ) -> keras.distribution.TensorLayout:
        shape = variable.shape
        asked = super().get_variable_layout(variable).axes
        axes: list[str | None] = [None] * len(shape)
        for name, count in zip(
            (MODEL, DATA), self.device_mesh.shape[::-1], strict=True
        ):
            candidates = [asked.index(name)] if name in asked else []
            if len(shape) > 1:
                candidates += reversed(range(len(shape)))
            for axis in candidates:
                if count > 1 and axes[axis] is None and shape[axis] % count == 0:
                    axes[axis] = name
                    break
        return keras.distribution.TensorLayout(axes, self.device_mesh)


def mesh_of(text: str | None, devices: list[str]) -> keras.distribution.DeviceMesh:
    """Returns the mesh that `--mesh` describes, such as `data:2,model:4`.

    An axis that is left out takes the other devices; None puts all on `model`. Raises
    a `RunError` where the sizes do not give all devices.
    """
    count = len(devices)
    pairs = (part.split(":") for part in (text or f"{DATA}:1").split(","))
    sizes = {name: int(size) for name, size in pairs}
    rest = count // math.prod(sizes.values())
    sizes = {DATA: rest, MODEL: rest} | sizes
    if math.prod(sizes.values()) != count:
        raise RunError(
            f"--mesh={text} is not a mesh of the {count} devices that JAX sees: pass "
            f"sizes whose product is {count}, such as --mesh={DATA}:{count},{MODEL}:1."
        )
    return keras.distribution.DeviceMesh(
        (sizes[DATA], sizes[MODEL]), [DATA, MODEL], devices
    )


def check(model: keras.Model, mesh: keras.distribution.DeviceMesh) -> None:
    """Raises a `RunError` where devices cannot share heads or MLPs equally."""
    data, parts = mesh.shape
    for layer in _layers(model):
        for name, what in (("num_heads", "heads"), ("mlp_dim", "hidden numbers")):
            count = getattr(layer, name, parts)
            if count % parts:
                fewer = math.gcd(count, parts)
                raise RunError(
                    f"--mesh with {MODEL}:{parts} cannot share the {count:,} {what} of "
                    f"{layer.path} equally: pass "
                    f"--mesh={DATA}:{data * parts // fewer},{MODEL}:{fewer}."
                )


def _layers(model: keras.Model) -> Iterator[keras.Layer]:
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
        else:
            yield layer

"""Which part of each variable every device of a mesh holds: model parallelism."""

import math
from collections.abc import Iterator

import keras

from train.common.errors import RunError

DATA, MODEL = "data", "model"
# The mesh axis along which each array of a layer is cut, by the ends of paths.
# Attention is cut by heads and an MLP by its hidden numbers: first columns, then rows.
LAYOUTS = {
    "(.*/)?(query|key|value|expand)/kernel": (None, MODEL),
    "(.*/)?(query|key|value|expand)/bias": (MODEL,),
    "(.*/)?(out|project)/kernel": (MODEL, None),
}


class ModelParallel(keras.distribution.ModelParallel):
    """Cuts variables along the mesh axis `model`, and batches along `data`.

    `LAYOUTS` name the axis of an array that is cut. Of other arrays, and where the
    devices do not divide that axis, the last axis that they divide is cut. Vectors,
    such as those of norms, are whole on every device, as are arrays that no axis of
    which can be cut. What an optimizer keeps of a variable is cut as the variable.

    Source:
        Attention and MLP: Megatron-LM, arXiv 1909.08053, section 3.
    """

    def __init__(self, mesh: keras.distribution.DeviceMesh):
        layout_map = keras.distribution.LayoutMap(mesh)
        layout_map.update(LAYOUTS)
        super().__init__(layout_map=layout_map, batch_dim_name=DATA)

    def get_variable_layout(
        self, variable: keras.Variable
    ) -> keras.distribution.TensorLayout:
        shape, parts = variable.shape, self.device_mesh.shape[1]
        axes = super().get_variable_layout(variable).axes
        candidates = [axes.index(MODEL)] if MODEL in axes else []
        if len(shape) > 1:
            candidates += reversed(range(len(shape)))
        cut = next((axis for axis in candidates if shape[axis] % parts == 0), None)
        axes = [MODEL if axis == cut else None for axis in range(len(shape))]
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
            f"sizes whose product is {count}, such as --mesh={DATA}:1,{MODEL}:{count}."
        )
    return keras.distribution.DeviceMesh(
        (sizes[DATA], sizes[MODEL]), [DATA, MODEL], devices
    )


def check(model: keras.Model, parts: int) -> None:
    """Raises a `RunError` where `parts` devices cannot share heads or MLPs equally."""
    for layer in _layers(model):
        for name, what in (("num_heads", "heads"), ("mlp_dim", "hidden numbers")):
            count = getattr(layer, name, parts)
            if count % parts:
                raise RunError(
                    f"--mesh with {MODEL}:{parts} cannot share the {count:,} {what} of "
                    f"{layer.path} equally: pass a --mesh whose {MODEL} divides "
                    f"{count}."
                )


def _layers(model: keras.Model) -> Iterator[keras.Layer]:
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
        else:
            yield layer

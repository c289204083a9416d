"""Computes what each mesh of --strategy=sharded holds and sends: no measuring.

  python -m benchmarks.meshes

A device of a mesh data:D,model:M holds 1 / (D M) of weights, gradients and momentum, 12
bytes a parameter. In a step it gathers weights along `data` twice, forward and
backward, and sums gradients once: of D devices each sends (D - 1) / D of what M
devices have, each time. Along `model` it sums tokens after attention and after the MLP
of every block, forward and backward: each sends 2 (M - 1) / M of the tokens of its
part of the batch, four times a block. All in float32, as `jax_backend` keeps them.
Computing and sending do not overlap, and latency is left out.
"""

from typing import NamedTuple

import zoo
from benchmarks import report
from benchmarks.clusters import CLUSTERS, IMAGE_SIZE, UTILIZATION
from benchmarks.model_flags import CLASSES, multiply_adds

# ViT-g/14: arXiv 2106.04560, table 2.
GIANT = zoo.ViTConfig(
    hidden_size=1408, num_layers=40, num_heads=16, mlp_dim=6144, patch_size=14
)
MODELS = {"ViT-H_14": zoo.VARIANTS["ViT-H_14"], "giant, ViT-g/14": GIANT}
MESHES = ((8, 1), (4, 2), (2, 4), (1, 8))
BATCHES = (64, 1024)
HEADER = [
    *("model", "batch", "`--mesh`", "holds MB", "sends MB along data"),
    *("along model", "sending ms", "computing ms"),
]


class Step(NamedTuple):
    """What one device of a mesh holds, and sends in a step, in bytes; and seconds."""

    held: float
    along_data: float
    along_model: float
    sending: float
    computing: float


def step(config, batch, data, model, cluster=CLUSTERS[0]):
    """Returns the `Step` of a device of a mesh of so many on `data` and on `model`."""
    parameters = config.count_parameters(IMAGE_SIZE, CLASSES)
    along_data = 3 * (data - 1) / data * 4 * parameters / model
    rows, columns = config.grid_size(IMAGE_SIZE)
    tokens = batch / data * (rows * columns + 1) * config.hidden_size * 4
    along_model = 4 * config.num_layers * 2 * (model - 1) / model * tokens
    operations = 6 * multiply_adds(config, IMAGE_SIZE, CLASSES) * batch
    devices = data * model
    return Step(
        12 * parameters / devices,
        along_data,
        along_model,
        (along_data + along_model) / cluster.inner,
        operations / (UTILIZATION * cluster.operations * devices),
    )


def rows() -> list[list[str]]:
    """Returns the cells of all models, batches and meshes."""
    return [
        _row(name, batch, *mesh)
        for name in MODELS
        for batch in BATCHES
        for mesh in MESHES
    ]


def _row(name, batch, data, model):
    found = step(MODELS[name], batch, data, model)
    cells = [name, str(batch), f"data:{data},model:{model}"]
    cells += [f"{size / 1e6:,.0f}" for size in found[:3]]
    return cells + [f"{seconds * 1e3:,.1f}" for seconds in found[3:]]


def main():
    """Prints the table as docs/scaling.md has it."""
    report.print_markdown(HEADER, rows(), words=("model", "`--mesh`"))


if __name__ == "__main__":
    main()

"""Computes from published speeds what more devices would do for training: no measuring.

  python -m benchmarks.clusters

A step computes 3 x 2 floating-point operations per multiply-add of an image (forward,
and twice that backward), at UTILIZATION of the devices' peak, then sums float32
gradients, 4 bytes a parameter, by rings: of n devices each sends 2 (n - 1) / n of the
bytes. Of several machines each device sends its part of them to the other machines.
Computing and sending do not overlap, and latency is left out. The batch is BATCH
images on however many devices.
"""

from typing import NamedTuple

import zoo
from benchmarks import report
from benchmarks.model_flags import CLASSES, multiply_adds

MODELS = ("ViT-Ti_16", "ViT-B_16", "ViT-L_16", "ViT-H_14")
BATCH, IMAGE_SIZE = 4096, 224
UTILIZATION = 0.4
# Photos a second that a core prepares, docs/performance.md: 2,326 on two.
_PHOTOS_A_CORE = 1163


class Cluster(NamedTuple):
    """Equal devices: bfloat16 operations a second, bytes a second in one direction.

    `inner` is the link of the devices of one machine, of which there are `machine`;
    `outer` that of each device to other machines.
    """

    name: str
    devices: int
    operations: float
    machine: int
    inner: float
    outer: float = 0.0

    def reduce_seconds(self, size):
        """Returns the seconds in which all devices sum so many bytes."""
        machines = self.devices // self.machine
        inside = 2 * (self.machine - 1) / self.machine * size / self.inner
        if machines == 1:
            return inside
        part = size / self.machine
        return inside + 2 * (machines - 1) / machines * part / self.outer


# H100 SXM: 989 TFLOP/s dense; NVLink 4: 900 GB/s in both directions together; an
# adapter of InfiniBand NDR, 400 Gb/s, for each GPU. TPU v5e: 197 TFLOP/s, 400 GB/s
# between chips in both directions together.
CLUSTERS = (
    Cluster("8 H100", 8, 989e12, 8, 450e9),
    Cluster("64 H100", 64, 989e12, 8, 450e9, 50e9),
    Cluster("TPU v5e-256", 256, 197e12, 256, 200e9),
)
HEADER = [
    *("model", "cluster", "gradient MB", "compute ms", "sum ms", "images/s"),
    *("efficiency", "cores to decode", "sum takes half at"),
]


def row(model, cluster):
    """Returns what a cluster does for a model, as the cells of a row."""
    config = zoo.VARIANTS[model]
    size = 4 * config.count_parameters(IMAGE_SIZE, CLASSES)
    operations = 6 * multiply_adds(config, IMAGE_SIZE, CLASSES) * BATCH
    alone = operations / (UTILIZATION * cluster.operations)
    compute, total = alone / cluster.devices, cluster.reduce_seconds(size)
    photos = BATCH / (compute + total)
    return [
        model,
        cluster.name,
        f"{size / 1e6:,.1f}",
        f"{compute * 1e3:,.2f}",
        f"{total * 1e3:,.2f}",
        f"{photos:,.0f}",
        f"{compute / (compute + total):.0%}",
        f"{photos / _PHOTOS_A_CORE:,.0f}",
        f"{alone / total:,.0f} devices",
    ]


def table():
    """Returns the rows of all models on all clusters."""
    return [row(model, cluster) for model in MODELS for cluster in CLUSTERS]


def main():
    """Prints the table as docs/scaling.md has it."""
    report.print_markdown(HEADER, table(), words=("model", "cluster"))


if __name__ == "__main__":
    main()

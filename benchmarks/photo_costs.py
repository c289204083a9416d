"""Computes from measured speeds and published prices what many photos cost to answer.

  python -m benchmarks.photo_costs

A processor's core reads and prepares a photo, then computes the model: the two take
turns. On an accelerator the machine's cores prepare photos while it computes, at
UTILIZATION of its peak, and the slower of the two decides. What a machine reads are
PHOTO_BYTES per photo, the mean of ImageNet.
"""

from typing import NamedTuple

import zoo
from benchmarks import report
from benchmarks.clusters import IMAGE_SIZE, UTILIZATION
from benchmarks.model_flags import CLASSES, multiply_adds

PHOTO_BYTES = 110_000
# Evaluation batches on two cores, docs/performance.md.
_PREPARED_BY_CORE = 1612 / 2
# Photos per second of two cores, batches of 8, by model and precision: the fastest
# engine in docs/performance.md, engines and precisions, on Zen 4.
_OF_TWO_CORES = {
    ("ViT-Ti_16", "float32"): 82.0,
    ("ViT-Ti_16", "bfloat16"): 139.0,
    ("ViT-Ti_16", "int8"): 172.0,
    ("ViT-S_16", "float32"): 22.2,
    ("ViT-S_16", "bfloat16"): 42.1,
    ("ViT-S_16", "int8"): 57.1,
    ("ViT-B_16", "float32"): 6.22,
    ("ViT-B_16", "bfloat16"): 12.2,
    ("ViT-B_16", "int8"): 19.1,
}
MODELS = ("ViT-Ti_16", "ViT-S_16", "ViT-B_16")


class Machine(NamedTuple):
    """A machine to rent: its price in USD per hour, cores, and network in bytes/s.

    `operations` are those of its accelerator per second in bfloat16, 0 without one.
    """

    name: str
    price: float
    cores: int
    network: float
    operations: float = 0.0

    def photos_per_second(self, model: str, precision: str) -> float:
        """Returns how many photos are answered, wherever they come from."""
        prepared = self.cores * _PREPARED_BY_CORE
        if not self.operations:
            computed = self.cores * _OF_TWO_CORES[model, precision] / 2
            return 1.0 / (1.0 / computed + 1.0 / prepared)
        of_photo = 2 * multiply_adds(zoo.VARIANTS[model], IMAGE_SIZE, CLASSES)
        return min(prepared, UTILIZATION * self.operations / of_photo)


# On demand, us-east-1 and us-central1. EC2 c7a: Zen 4, a vCPU is a core. g5: 4 vCPU
# are two cores; A10G, 125 TFLOP/s dense in bfloat16. v5e: 24 vCPU are twelve cores.
MACHINES = (
    Machine("EC2 c7a.xlarge", 0.2053, 4, 12.5e9 / 8),
    Machine("EC2 g5.xlarge, A10G", 1.006, 2, 10e9 / 8, 125e12),
    Machine("Cloud TPU v5e, 1 chip", 1.20, 12, 25e9 / 8, 197e12),
)
HEADER = [
    *("model", "machine", "precision", "photos/s", "USD per million"),
    *("machine days per billion", "read MB/s", "of its network", "decided by"),
]


def rows() -> list[list[str]]:
    """Returns the cells of all models on all machines."""
    return [
        _row(model, machine, precision)
        for model in MODELS
        for machine in MACHINES
        for precision in (
            ["bfloat16"] if machine.operations else ["float32", "bfloat16", "int8"]
        )
    ]


def _row(model, machine, precision):
    photos = machine.photos_per_second(model, precision)
    read = photos * PHOTO_BYTES
    is_prepared = photos > 0.99 * machine.cores * _PREPARED_BY_CORE
    return [
        model,
        machine.name,
        precision,
        f"{photos:,.0f}",
        f"{1e6 / photos / 3600 * machine.price:.2f}",
        f"{1e9 / photos / 86400:,.0f}",
        f"{read / 1e6:,.1f}",
        f"{read / machine.network:.1%}",
        "preparing photos" if is_prepared else "the model",
    ]


def main():
    """Prints the table as docs/scaling.md has it."""
    words = ("model", "machine", "precision", "decided by")
    report.print_markdown(HEADER, rows(), words)


if __name__ == "__main__":
    main()

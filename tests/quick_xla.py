"""What XLA is told where JAX runs each program a few times: to compile quickly."""

import importlib.metadata
import importlib.util

from packaging.version import Version

_FLAGS = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
]
# The emitters of fusions take two thirds of the time that XLA compiles for a CPU.
# A JAX that does not know the flag would end at once.
_WITHOUT_EMITTERS = "--xla_cpu_use_fusion_emitters=false"
_KNOWS_EMITTERS = Version("0.10")


def flags(*more):
    """Returns the value of XLA_FLAGS, with `more` flags first."""
    known = []
    is_there = importlib.util.find_spec("jaxlib") is not None
    if is_there and Version(importlib.metadata.version("jaxlib")) >= _KNOWS_EMITTERS:
        known = [_WITHOUT_EMITTERS]
    return " ".join([*more, *_FLAGS, *known])

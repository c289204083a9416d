"""Whether devices multiply faster in bfloat16 than in float32."""

import time
from collections.abc import Sequence

import tensorflow as tf

from zoo.common import machine

# Products must be faster by this factor, as a step has casts too.
_GAIN = 1.2


def of_processor() -> tuple:
    """Returns whether this processor is faster in bfloat16, and why, in words."""
    name = machine.cpu_name()
    if not machine.computes_bfloat16():
        return False, f"as this {name} has no instructions for bfloat16"
    # Some processors have the instructions and are slower than in float32.
    gain = bfloat16_gain()
    return gain >= _GAIN, (
        f"as this {name} multiplies in bfloat16 at {gain:.2f} times the speed "
        f"of float32 (bfloat16 from {_GAIN} on)"
    )


def bfloat16_gain() -> float:
    """Returns how much faster a product is in bfloat16, in half a second."""
    times = {tf.float32: [], tf.bfloat16: []}
    multiply = tf.function(tf.matmul, autograph=False)
    # Multiply as the first product of a ViT-B/16 MLP does, for five images.
    factors = tf.ones((985, 768)), tf.ones((768, 3072))
    for turn in range(6):
        for dtype, seconds in times.items():
            left, right = (tf.cast(factor, dtype) for factor in factors)
            started = time.perf_counter()
            # Fetch a value, so that it has been computed.
            multiply(left, right)[0, 0].numpy()
            if turn:
                seconds.append(time.perf_counter() - started)
    return min(times[tf.float32]) / min(times[tf.bfloat16])


def of_accelerators(capabilities: Sequence[tuple[int, int] | None]) -> tuple:
    """Returns whether GPUs or TPUs multiply in bfloat16, and why, in words.

    `capabilities` are those of GPUs, (major, minor) or None of other makers' GPUs; of
    TPUs there are none.

    Source: NVIDIA, CUDA C++ Programming Guide, compute capabilities.
    """
    if not capabilities:
        return True, "as TPUs multiply in it"
    if None in capabilities:
        return False, "as it is not known whether these GPUs multiply in bfloat16"
    major, minor = min(capabilities)
    reason = f"as GPUs of compute capability {major}.{minor}"
    if major >= 8:
        return True, f"{reason} multiply in it"
    return False, f"{reason} do not multiply in bfloat16, which 8.0 does"

"""What the processor of this machine is, and what it computes."""

import pathlib
import platform

_INFO = pathlib.Path("/proc/cpuinfo")
# Flags of processors that multiply matrices of bfloat16.
_BFLOAT16 = {"avx512_bf16", "amx_bf16"}


def cpu_name() -> str:
    """Returns the name of this machine's processor."""
    name = _value("model name")
    return name or platform.processor() or platform.machine()


def computes_bfloat16() -> bool:
    """Returns whether this machine's processor has instructions for bfloat16.

    It is known of processors of the x86 family under Linux; others have none.

    Source:
        Intel, Architecture Instruction Set Extensions Programming Reference,
        AVX512_BF16 and AMX-BF16; the names are those of Linux.
    """
    return not _BFLOAT16.isdisjoint(_value("flags").split())


def _value(key):
    for line in _INFO.read_text().splitlines() if _INFO.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""

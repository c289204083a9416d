"""This machine: what its processor is and computes, and its memory."""

import contextlib
import os
import pathlib
import platform
import sys

_INFO = pathlib.Path("/proc/cpuinfo")
# Flags of processors that multiply matrices of bfloat16.
_BFLOAT16 = {"avx512_bf16", "amx_bf16"}


def cpu_name() -> str:
    """Returns the name of this machine's processor."""
    name = _value(_INFO, "model name")
    return name or platform.processor() or platform.machine()


def computes_bfloat16() -> bool:
    """Returns whether this machine's processor has instructions for bfloat16.

    It is known of processors of the x86 family under Linux; others have none.

    Source:
        Intel, Architecture Instruction Set Extensions Programming Reference,
        AVX512_BF16 and AMX-BF16; the names are those of Linux.
    """
    return not _BFLOAT16.isdisjoint(_value(_INFO, "flags").split())


def threads() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def peak_bytes() -> int:
    """Returns the largest memory that this process ever had, in bytes."""
    # On Linux ru_maxrss starts at what the parent held when it forked.
    if peak := _kilobytes("/proc/self/status", "VmHWM"):
        return peak
    import resource  # which Windows lacks

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident_bytes() -> int:
    """Returns the memory that this process has now, in bytes; 0 but on Linux."""
    return _kilobytes("/proc/self/status", "VmRSS")


def forget_peak() -> None:
    """Lets `peak_bytes` begin anew, where the system allows it."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5")


def available_bytes(root: str = "/") -> int:
    """Returns the memory that this process can still take, in bytes; 0 but on Linux.

    That is what the machine has left, or the limit of a control group, such as a
    container's, if that is less. `root` is where the system's files are.

    Source:
        https://docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/memory.html.
    """
    root = pathlib.Path(root)
    left = [_kilobytes(root / "proc/meminfo", "MemAvailable")]
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup"
        names = ("memory.max", "memory.current", "inactive_file ")
        if "memory" in controllers.split(","):
            top /= "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            names += ("total_inactive_file ",)
        elif controllers:
            continue
        # A container sees its own group at the top, whatever its path outside is.
        group = top / path.lstrip("/")
        while group.is_relative_to(top):
            left += _left_of_group(group, *names)
            group = group.parent
    # A full one has 1 left, as 0 means that it is not known.
    return max(1, min(left)) if left[0] else 0


def _left_of_group(group, limit, used, unused_files):
    """Returns what is left of a control group's limit, a list; empty without one."""
    try:
        most = int((group / limit).read_text())
        taken = int((group / used).read_text())
    except (OSError, ValueError):
        return []
    files = [
        int(line.removeprefix(unused_files))
        for line in (group / "memory.stat").read_text().splitlines()
        if line.startswith(unused_files)
    ]
    # The system drops files that it keeps in memory before it kills.
    return [most - taken + sum(files)]


def _kilobytes(path, key):
    """Returns the kilobytes that a file of the system states, in bytes, or 0."""
    return 1024 * int((_value(path, key) or "0").split()[0])


def _value(path, key):
    """Returns what a file of lines "key: value" states first, or an empty string."""
    path = pathlib.Path(path)
    for line in path.read_text().splitlines() if path.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""

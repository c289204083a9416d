"""The name of the processor and the memory of this process."""

import pathlib
import platform
import resource
import sys


def cpu_name():
    """Returns the name of this machine's processor."""
    name = _proc_value("/proc/cpuinfo", "model name")
    return name or platform.processor() or platform.machine()


def peak_bytes():
    """Returns the largest memory that this process ever had, in bytes."""
    # On Linux ru_maxrss starts at what the parent held when it forked.
    if kilobytes := _proc_value("/proc/self/status", "VmHWM"):
        return int(kilobytes.split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _proc_value(path, key):
    path = pathlib.Path(path)
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith(key):
            return line.partition(":")[2].strip()
    return ""

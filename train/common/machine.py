"""The machine, and what a process takes of it."""

import pathlib
import platform
import resource
import sys


def cpu_name():
    """Returns the name of this machine's processor."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def peak_bytes():
    """Returns the most memory that this process ever held."""
    status = pathlib.Path("/proc/self/status")
    # On Linux ru_maxrss starts at what the parent held when it forked.
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

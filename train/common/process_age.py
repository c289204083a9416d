"""How long this process has been running, with the start of Python."""

import os
import pathlib
import time

# The place of the start time among the fields of /proc/self/stat, behind the name,
# which may hold spaces (proc_pid_stat(5): field 22, in clock ticks after boot).
_START = 19


def seconds() -> float:
    """Returns for how many seconds this process has been running.

    Where the system does not say, they are those that it computed, which are no more.

    >>> 0 < seconds() < 1e7
    True
    """
    try:
        stat = pathlib.Path("/proc/self/stat").read_text()
        ticks = int(stat.rpartition(")")[2].split()[_START])
        began = ticks / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, LookupError, AttributeError):
        return time.process_time()

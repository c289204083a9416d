"""Where and with what a benchmark ran."""

import importlib.metadata
import os
import platform
import subprocess

from benchmarks.process import ROOT
from train.common.hardware import cpu_name


def machine():
    """Returns a dict of the processor, its cores and the system."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def versions(packages):
    """Returns the versions of those packages that are installed.

    Args:
        packages: iterable of str, as imported.

    Returns:
        Dict from name to version.
    """
    found = {}
    for package in sorted(set(packages)):
        name = package.replace("_", "-")
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit():
    """Returns the git commit, with "-dirty" if files were changed, or None."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    except OSError:
        return None
    return done.stdout.strip() or None

"""Modules of data, each of which can be the first that is imported."""

import subprocess
import sys

SCRIPT = """
import importlib, pkgutil, sys
import train.data
found = pkgutil.walk_packages(train.data.__path__, "train.data.")
for name in [one.name for one in found]:
    for other in [one for one in sys.modules if one.startswith("train.")]:
        del sys.modules[other]
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, error)
print("done")
"""


def test_data_are_imported_in_any_order():
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True
    )
    assert found.stdout == "done\n", found.stdout + found.stderr

"""Freed memory that a process keeps."""

import os
import platform
import subprocess
import sys

import pytest
from absl import flags

from train.common import command_line, freed_memory

PROGRAM = """
import resource
import numpy as np
from train.common import freed_memory

kept = freed_memory.keep()
np.ones(2**26, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(2**26, np.uint8)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(**variables):
    """Returns whether memory is kept, and how many pages of 64 MB came anew."""
    words = [sys.executable, "-c", PROGRAM]
    set_by_user = ("MALLOC_", "GLIBC_TUNABLES")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(set_by_user)}
    done = subprocess.run(
        words, env=clean | variables, capture_output=True, text=True, check=True
    )
    kept, pages = done.stdout.split()
    return kept == "True", int(pages)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its options are glibc's")
def test_memory_that_was_freed_is_taken_again_without_new_pages():
    kept, pages = run()
    assert kept and pages < 20
    # Settings of a user stay: 64 MB are 32 huge pages at least.
    kept, pages = run(MALLOC_TRIM_THRESHOLD_="131072")
    assert not kept and pages >= 32
    assert not run(GLIBC_TUNABLES="glibc.malloc.arena_max=2")[0]
    assert run(GLIBC_TUNABLES="glibc.rtld.optional_static_tls=512")[0]


def test_every_command_keeps_it(monkeypatch):
    calls = []
    monkeypatch.setattr(freed_memory, "keep", lambda: calls.append("keep"))
    monkeypatch.setattr(command_line, "_OWN_LOG_LEVEL", False)
    monkeypatch.setattr(flags.FLAGS["verbose"], "value", True)
    command_line._perform(calls.extend, ["main"])
    assert calls == ["keep", "main"]

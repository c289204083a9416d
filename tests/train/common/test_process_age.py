"""How long a process has been running, with the start of Python."""

import os
import pathlib
import time

from train.common import process_age


def test_the_start_of_a_process_counts(monkeypatch):
    # A name may have spaces and parentheses.
    fields = ["S", *map(str, range(1, 19)), "500", "0", "0"]
    text = " ".join(["7 (of) a user)", *fields])
    monkeypatch.setattr(pathlib.Path, "read_text", lambda path: text)
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 12.5)
    assert process_age.seconds() == 7.5


def test_other_systems_give_the_seconds_of_computing(monkeypatch):
    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr(pathlib.Path, "read_text", missing)
    monkeypatch.setattr(time, "process_time", lambda: 2.5)
    assert process_age.seconds() == 2.5

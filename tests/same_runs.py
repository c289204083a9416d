"""Compares what runs left, to the last bit."""

import json

import numpy as np


def arrays(run, step=None):
    """Returns the arrays of a checkpoint by name, of the last one by default."""
    name = "*" if step is None else f"{step:08d}"
    path = max(run.glob(f"checkpoints/step-{name}.npz"))
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


def trained(run):
    """Returns the arrays of the last checkpoint by the paths of their variables."""
    return {key.partition("/")[2]: array for key, array in arrays(run).items()}


def records(run):
    """Returns the lines of the log, without times."""
    timed = ("seconds", "images_per_second")
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{key: line[key] for key in line if key not in timed} for line in lines]


def report(run):
    """Returns the numbers of the report."""
    return json.loads((run / "report.json").read_text())


def assert_same_bits(one, other):
    """Two runs have the same last checkpoint and metrics."""
    last = [max(run.glob("checkpoints/step-*.npz")).name for run in (one, other)]
    assert last[0] == last[1]
    ours, theirs = arrays(one), arrays(other)
    assert list(ours) == list(theirs) and len(ours) > 20
    for key, array in ours.items():
        np.testing.assert_array_equal(array, theirs[key], key, strict=True)
    assert records(one) == records(other)

"""Compares the resizing of position embeddings with other libraries.

  python -m benchmarks.resize
  python -m benchmarks.resize --grids=14x14-24x24,24x24-64x64 --hidden_size=1024

Each library resizes the same random table, from a NumPy array to a NumPy array, in a
process of its own; they take turns. Beside the milliseconds stands the largest
difference from the numbers of `zoo.resize`. The released method is that of
`scipy.ndimage.zoom`, the others are those of `tf.image.resize` with antialias.

--peers   scipy, tensorflow, jax, timm (PyTorch), or all; --peers= for none
"""

import dataclasses
import pathlib
import re
import statistics
import tempfile

import numpy as np
from absl import flags

from benchmarks import command
from benchmarks.contest import Contender, choose, contest
from benchmarks.resize_libraries import PEERS

flags.DEFINE_list(
    "grids",
    "14x14-24x24,14x14-32x32,24x24-64x64,14x14-20x36,24x24-14x14",
    "Old and new grids, rows x columns.",
)
flags.DEFINE_integer("hidden_size", 768, "Numbers a position.", lower_bound=1)
flags.DEFINE_list("peers", "all", "What to compare with, or all.")
flags.DEFINE_integer("rounds", 15, "Turns of every library.", lower_bound=1)
command.define_out_dir()

_JOBS = "benchmarks.resize_libraries"
OURS = Contender("keras_vit", f"{_JOBS}:keras_vit", ("zoo",))
# method -> the libraries that have it.
METHODS = {
    "released": ("keras_vit", "scipy"),
    "bilinear": ("keras_vit", "tensorflow", "jax", "timm"),
    "bicubic": ("keras_vit", "tensorflow", "jax", "timm"),
    "lanczos3": ("keras_vit", "tensorflow", "jax"),
}


def main():
    """Runs the contest that the flags describe."""
    given = flags.FLAGS
    grids = [parse(text) for text in given.grids]
    choices = [OURS, *choose(PEERS, given.peers, "peers")]
    folder = pathlib.Path(given.out_dir)
    stem = f"resize-{given.hidden_size}"
    records = measure(choices, grids, folder / stem)
    result = {
        **command.provenance({name for choice in choices for name in choice.imports}),
        "rounds": given.rounds,
        "contenders": records,
    }
    command.publish(
        folder / f"{stem}.json", result, table(records, grids), notes(records)
    )
    problem = command.failure(result)
    if problem:
        raise ValueError(problem)


def parse(text):
    """Returns "14x14-20x36" as ((14, 14), (20, 36))."""
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)-([1-9]\d*)x([1-9]\d*)", text)
    if not match:
        raise ValueError(f"--grids has {text!r}: write 14x14-20x36, rows x columns.")
    sides = tuple(map(int, match.groups()))
    return sides[:2], sides[2:]


def measure(choices, grids, log_dir):
    """Resizes with each library in turn."""
    given = flags.FLAGS
    with tempfile.TemporaryDirectory(prefix="keras_vit-resize-") as temporary:
        contenders = [
            dataclasses.replace(
                choice,
                settings={
                    "tasks": tasks_of(choice.name, grids),
                    "hidden_size": given.hidden_size,
                    "results": f"{temporary}/{choice.name}.npz",
                },
                ours=choice is OURS,
                warm_up=0,
            )
            for choice in choices
        ]
        result = contest(
            contenders,
            rounds=given.rounds,
            repeats=len(tasks_of(OURS.name, grids)),
            log_dir=log_dir,
            calibrate=False,
        )
        return [
            _record(record, grids, pathlib.Path(temporary))
            for record in result["contenders"]
        ]


def tasks_of(library, grids):
    """Returns what a library resizes: a list of (old grid, new grid, method)."""
    return [
        (old, new, method)
        for old, new in grids
        for method, libraries in METHODS.items()
        if library in libraries
    ]


def _record(record, grids, folder):
    tasks = tasks_of(record["name"], grids)
    ours = tasks_of(OURS.name, grids)
    summary = {name: record[name] for name in ("name", "ours", "error")}
    summary |= {"tasks": tasks, "median": [], "difference": []}
    if record["error"] is None:
        # The steps go through the tasks, over and over.
        seconds = [second for turn in record["seconds"] for second in turn]
        own = np.load(folder / f"{OURS.name}.npz")
        other = np.load(folder / f"{record['name']}.npz")
        for index, task in enumerate(tasks):
            summary["median"].append(statistics.median(seconds[index :: len(tasks)]))
            difference = own[str(ours.index(task))] - other[str(index)]
            summary["difference"].append(float(np.abs(difference).max()))
    return summary


def table(records, grids):
    """Returns the table: its header and its rows, one a grid and method."""
    header = ["ms (largest difference)", *(record["name"] for record in records)]
    rows = []
    for old, new in grids:
        for method in METHODS:
            row = [f"{old[0]}x{old[1]} to {new[0]}x{new[1]} {method}"]
            row += [_cell(record, (old, new, method)) for record in records]
            rows.append(row)
    return header, rows


def _cell(record, task):
    if record["error"]:
        return "failed"
    if task not in record["tasks"]:
        return ""
    index = record["tasks"].index(task)
    cell = f"{record['median'][index] * 1e3:.2f}"
    if record["ours"]:
        return cell
    return f"{cell} ({record['difference'][index]:.0e})"


def notes(records):
    """Returns what to know beside the table, as lines."""
    [ours] = [record for record in records if record["ours"]]
    lines = []
    for record in records:
        if record["error"]:
            lines.append(f"{record['name']} failed: {record['error']}")
        elif record is not ours and not ours["error"]:
            times = [
                median / ours["median"][ours["tasks"].index(task)]
                for task, median in zip(record["tasks"], record["median"], strict=True)
            ]
            lines.append(
                f"{record['name']} takes {min(times):.1f} to {max(times):.1f} times as "
                "long as keras_vit."
            )
    return lines


if __name__ == "__main__":
    command.run(main)

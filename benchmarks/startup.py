"""Compares the way from an import to the first prediction with other libraries.

  python -m benchmarks.startup --model=ViT-B_16
  python -m benchmarks.startup --model=ViT-Ti_16 --peers=all --rounds=7
  python -m benchmarks.startup --commands

Every start is a fresh process; the contenders take turns. Files of weights, of random
models, are written once, and are in the system's cache when they are read.

framework      import keras, or torch
library        import the library itself
build          a model of random weights
load           a file of weights into that model; where the library does both in one
               call, all of it
predict        logits of one image, with all that is compiled for it
load peak MB   the most memory of `load` above what the process held before it
peak MB        the most memory of the process in `load` and `predict`

--peers   keras-hub (load_weights of .h5), keras-hub-preset (from_preset),
          keras-hub-model (load_model of .keras), vit-keras (its reader of .npz), timm
          (safetensors), transformers (from_pretrained), or all; --peers= for none
--commands  times `zoo list` and the --help of each command, as `keras-vit X` and as
          `python -m train.X`, instead
"""

import dataclasses
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from absl import flags

import keras_vit_start
from benchmarks import command, model_flags, report
from benchmarks.contest import Contender, choose, rotated, tell
from benchmarks.process import ROOT, Worker, WorkerError
from benchmarks.startup_libraries import PEERS, PHASES

flags.DEFINE_string("model", "ViT-B_16", "A variant such as ViT-B_16, no hybrid.")
flags.DEFINE_integer("image_size", 224, "Pixels a side.", lower_bound=1)
flags.DEFINE_list(
    "peers", "keras-hub,keras-hub-model,vit-keras,timm,transformers", "Or all."
)
flags.DEFINE_bool("commands", False, "Measure how commands start, instead.")
flags.DEFINE_integer("rounds", 5, "Starts of every contender.", lower_bound=1)
command.define_out_dir()

_ROUTES = "benchmarks.startup_libraries"
OURS = (
    Contender("keras_vit", f"{_ROUTES}:KerasVit", ("keras",)),
    Contender("keras_vit weights=", f"{_ROUTES}:KerasVitWeights", ("keras",)),
)
# figure -> the phases that it adds up.
FIGURES = {
    "framework": ("framework",),
    "library": ("library",),
    "build": ("build",),
    "load": ("load",),
    "build + load": ("build", "load"),
    "predict": ("predict",),
    "total": ("framework", *PHASES),
}
RATIOS = ("build + load", "total")


def main():
    """Runs the starts that the flags describe."""
    given = flags.FLAGS
    if given.commands:
        _commands()
        return
    setting = model_flags.describe(given.model, given.image_size, batch=1)
    if setting.parameters is None:
        raise ValueError(f"--model={given.model}: this benchmark takes no hybrid.")
    choices = [*OURS, *choose(PEERS, given.peers, "peers")]
    folder = pathlib.Path(given.out_dir)
    stem = f"startup-{given.model}"
    if given.image_size != 224:
        stem += f"-{given.image_size}"
    with tempfile.TemporaryDirectory(prefix="keras_vit-startup-") as temporary:
        settings = {
            "folder": temporary,
            "sizes": setting.ours["sizes"],
            "image_size": given.image_size,
            "parameters": setting.parameters,
        }
        records = starts(choices, settings, given.rounds, folder / stem)
    reference = next(
        (record for record in records if not record["ours"] and not record["error"]),
        records[0],
    )
    for record in records:
        if not record["error"]:
            record.update(summary(record, reference))
    packages = {"keras_hub", "tensorflow", "timm", "torch", "transformers", "vit_keras"}
    result = {
        **command.provenance(packages),
        "rounds": given.rounds,
        "reference": reference["name"],
        "contenders": records,
    }
    notes = report.failures(records)
    command.publish(folder / f"{stem}.json", result, table(result), notes)
    problem = command.failure(result)
    if problem:
        raise ValueError(problem)


def _commands():
    """Starts every command in turn, and shows the medians."""
    given, python = flags.FLAGS, sys.executable
    words = {
        name: (
            ["-m", f"train.{name}", "--help"],
            ["keras_vit_start.py", name, "--help"],
        )
        for name in keras_vit_start.COMMANDS
        if name != "zoo"
    }
    listing = ["zoo", "list"]
    words["zoo list"] = (["-m", *listing], ["keras_vit_start.py", *listing])
    found = {name: ([], []) for name in words}
    for index in range(given.rounds):
        tell(f"round {index + 1} of {given.rounds}")
        for name, both in words.items():
            for seconds, arguments in zip(found[name], both, strict=True):
                started = time.perf_counter()
                # absl ends with 1 after --help.
                subprocess.run([python, *arguments], cwd=ROOT, capture_output=True)
                seconds.append(time.perf_counter() - started)
    header = ["s p50 (worst)", "python -m", "keras-vit"]
    rows = [
        [name, *(f"{statistics.median(one):.3f} ({max(one):.3f})" for one in both)]
        for name, both in found.items()
    ]
    path = pathlib.Path(given.out_dir) / "startup-commands.json"
    result = {**command.provenance(()), "seconds": found}
    command.publish(path, result, (header, rows))


def starts(choices, settings, rounds, log_dir):
    """Writes the files of weights, then starts each library in turn."""
    records = [_record(choice) for choice in choices]
    for choice, record in zip(choices, records, strict=True):
        tell(f"writing weights for {choice.name}")
        _attempt(record, _write, choice, settings, log_dir)
    for index in range(rounds):
        tell(f"round {index + 1} of {rounds}")
        for choice, record in rotated(list(zip(choices, records, strict=True)), index):
            if not record["error"]:
                _attempt(record, _start, choice, settings, log_dir, record)
    return records


def _record(choice):
    return {
        "name": choice.name,
        "ours": choice in OURS,
        "error": None,
        "seconds": {phase: [] for phase in ("framework", *PHASES)},
        "cpu_seconds": {phase: [] for phase in PHASES},
        "load_bytes": [],
        "peak_bytes": [],
    }


def _attempt(record, action, *arguments):
    try:
        action(*arguments)
    except WorkerError as error:
        record["error"] = str(error)


def _write(choice, settings, log_dir):
    route = choice.job.partition(":")[2]
    writer = Contender(
        name=choice.name,
        job=f"{_ROUTES}:write",
        settings={"route": route, **settings},
        backend=choice.backend,
        warm_up=0,
    )
    with Worker(writer, log_dir / f"{route}-write.log") as worker:
        worker.ready()


def _start(choice, settings, log_dir, record):
    route = choice.job.partition(":")[2]
    memory_file = pathlib.Path(settings["folder"]) / f"{route}.memory"
    starter = dataclasses.replace(
        choice, settings={**settings, "memory_file": str(memory_file)}, warm_up=0
    )
    with Worker(starter, log_dir / f"{route}.log") as worker:
        record["seconds"]["framework"].append(worker.ready()["import_seconds"])
        wall, cpu = worker.run(len(PHASES))
        record["peak_bytes"].append(worker.close())
    for phase, seconds, cpu_seconds in zip(PHASES, wall, cpu, strict=True):
        record["seconds"][phase].append(seconds)
        record["cpu_seconds"][phase].append(cpu_seconds)
    if memory_file.exists():
        before, peak = map(int, memory_file.read_text().split())
        record["load_bytes"].append(peak - before)


def summary(record, reference):
    """Returns medians of a contender's figures, and their ratios to a reference's."""
    median, ratio = {}, {}
    for figure, phases in FIGURES.items():
        own, others = _rounds(record, phases), _rounds(reference, phases)
        median[figure] = statistics.median(own)
        ratio[figure] = statistics.median(
            mine / other for mine, other in zip(own, others, strict=True)
        )
    peaks = record["load_bytes"]
    return {
        "median": median,
        "ratio": ratio,
        "load_peak_bytes": max(peaks) if peaks else None,
        "all_peak_bytes": max(record["peak_bytes"]),
    }


def _rounds(record, phases):
    """The seconds of some phases together, a list of rounds."""
    lists = [record["seconds"][phase] for phase in phases]
    return [sum(turn) for turn in zip(*lists, strict=True)]


def table(result):
    """Returns the table of a result: its header and its rows."""
    of_reference = [f"{figure} of {result['reference']}'s" for figure in RATIOS]
    header = ["s", *FIGURES, *of_reference, "load peak MB", "peak MB"]
    rows = []
    for record in result["contenders"]:
        if record["error"]:
            cells = ["failed", *[""] * (len(header) - 2)]
        else:
            cells = [f"{record['median'][figure]:.3f}" for figure in FIGURES]
            cells += [f"{record['ratio'][figure]:.2f}" for figure in RATIOS]
            peak = record["load_peak_bytes"]
            cells.append("" if peak is None else f"{peak / 1e6:,.0f}")
            cells.append(f"{record['all_peak_bytes'] / 1e6:,.0f}")
        rows.append([record["name"], *cells])
    return header, rows


if __name__ == "__main__":
    command.run(main)

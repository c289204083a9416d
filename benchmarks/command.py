"""What the commands share: their flags, their environment, their ending."""

import datetime
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import shlex
import subprocess
import sys

from absl import app, flags

from benchmarks import report
from benchmarks.contest import contest
from benchmarks.process import ROOT
from benchmarks.worker import INSTALL
from zoo.common.machine import cpu_name

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()


def define_flags(rounds=9):
    """Defines the flags of a contest."""
    flags.DEFINE_integer("rounds", rounds, "Turns of every contender.", lower_bound=1)
    flags.DEFINE_integer(
        "repeats",
        None,
        "Steps a turn; by default as many as take the fastest half a second.",
        lower_bound=1,
    )
    define_out_dir()


def define_out_dir():
    """Defines the flag of the folder for results."""
    flags.DEFINE_string(
        "out_dir", "benchmarks/results", "Folder for the JSON file and the logs."
    )


def run(main):
    """Runs a command."""
    if importlib.util.find_spec("rich") is None:
        sys.exit(f"error: rich is not installed: {INSTALL}")
    os.environ["KERAS_BACKEND"] = _lightest_backend()

    def checked(argv):
        if len(argv) > 1:
            raise app.UsageError(f"Unknown argument {argv[1]!r}: flags start with --.")
        try:
            main()
        except (ValueError, OSError) as error:
            sys.exit(f"error: {error}")
        except KeyboardInterrupt:
            sys.exit("error: Interrupted; no result was written.")

    app.run(checked)


def _lightest_backend():
    """The parent only looks sizes up in keras_vit: what takes least to import."""
    for backend in ("jax", "torch", "tensorflow"):
        if importlib.util.find_spec(backend) is not None:
            return backend
    return sys.exit(f"error: Keras has no backend: {INSTALL}")


def compare(stem, contenders, *, reference=None, calibrate=True):
    """Runs a contest as the flags say, prints it and writes it.

    Exits with an error, once all is written, if one of ours failed or nothing was left
    to compare it with.
    """
    given = flags.FLAGS
    folder = pathlib.Path(given.out_dir)
    result = contest(
        contenders,
        rounds=given.rounds,
        repeats=given.repeats,
        log_dir=folder / stem,
        reference=reference,
        calibrate=calibrate,
    )
    packages = {name for contender in contenders for name in contender.imports}
    result = {**provenance(packages), **result}
    publish(folder / f"{stem}.json", result, report.table(result), report.notes(result))
    problem = failure(result)
    if problem:
        sys.exit(f"error: {problem}")
    return result


def publish(path, result, table, notes=()):
    """Prints a result and writes it, its table included."""
    report.print_table(path.stem, *table)
    for line in notes:
        print(line)
    report.write_json(path, {**result, "table": table, "notes": list(notes)})
    print(f"results {path}")


def provenance(packages):
    """Returns a dict of the command, the date, the machine and the versions."""
    module = sys.modules["__main__"].__spec__
    name = module.name if module else sys.argv[0]
    return {
        "command": shlex.join(["python", "-m", name, *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "commit": commit(),
        "versions": versions({"keras", "numpy", *packages}),
    }


def failure(result):
    """Returns why a contest failed, or None."""
    failed = [record for record in result["contenders"] if record["error"] is not None]
    ours = [record["name"] for record in failed if record["ours"]]
    if ours:
        return f"{', '.join(ours)} failed, see above."
    peers = [record for record in result["contenders"] if not record["ours"]]
    if peers and all(record in failed for record in peers):
        return "Every peer failed, see above: nothing is left to compare."
    return None


def versions(packages):
    """Returns the versions of those packages that are installed."""
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

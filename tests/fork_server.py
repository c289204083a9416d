"""Runs commands in forks of a process that has imported what they need.

A command that is started anew spends most of its time on importing TensorFlow. Nothing
is computed before the fork, so each command has a TensorFlow of its own.

A line of standard input is a JSON object: `argv`, the module and its arguments; `cwd`;
`environment`; `output`, the file for both streams; `until`, "the end" or where else to
end: "the flags", when they are read, or "the work", when model and data are there and
what takes long would begin. The answer is a line with the exit status, negative for a
signal.
"""

import contextlib
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import traceback

LIMIT = 300
# What takes long, by module.
WORK = {
    "train.inference.loaded_model": "predict",
    "train.explain.report": "FigureWriter",
    "train.export.parity": "run",
}
GIVEN_MODEL = [
    f"train.{name}"
    for name in ("compare", "evaluate", "explain", "export", "few_shot", "publish")
]


def answer(request):
    """Forks, runs the module as a command in the child, and waits for it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = perform(**request)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def perform(argv, cwd, environment, output, until):
    """Runs a module as `python -m` does, in the child."""
    signal.alarm(LIMIT)
    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    os.chdir(cwd)
    os.environ.update(environment)
    sys.argv = argv
    if until == "the flags":
        return read_flags(argv)
    if until == "the work":
        leave_out_the_work()
    try:
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


def leave_out_the_work():
    """Makes the commands end where it would begin."""
    from train.engine.loop import TrainingLoop

    def train(loop):
        loop.run.announce()
        sys.exit(0)

    def end(*args, **kwargs):
        sys.exit(0)

    TrainingLoop.train = train
    for module, name in WORK.items():
        with contextlib.suppress(ModuleNotFoundError):  # the feature was removed
            setattr(importlib.import_module(module), name, end)


def read_flags(argv):
    """Reads the flags of a module, all of which it must know.

    The commands of a given model take words as well.
    """
    from absl import flags

    module = importlib.import_module(argv[0])
    if hasattr(module, "__path__"):
        importlib.import_module(f"{argv[0]}.__main__")
    words = flags.FLAGS(argv)[1:]
    if words and argv[0] not in GIVEN_MODEL:
        print(f"no flags: {words}")
        return 1
    return 0


class ForkServer:
    """Starts this file, and asks it.

    Args:
        folder: `pathlib.Path`, of the file that takes what a command prints.
        environment: dict, of the commands.
    """

    def __init__(self, folder, environment):
        self.folder = folder
        self.environment = environment
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def run(self, argv, cwd, environment, until="the end"):
        """Runs a module; returns its exit status and what it printed."""
        output = self.folder / "output.txt"
        request = {
            "argv": argv,
            "cwd": str(cwd),
            "environment": environment,
            "output": str(output),
            "until": until,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the fork server is gone: start fork_server.py by hand")
        code = json.loads(answer)
        return code, output.read_text(errors="replace")

    def close(self):
        """Ends it."""
        self.process.stdin.close()
        self.process.wait()


def serve():
    """Imports, then answers until its input ends."""
    import matplotlib.pyplot
    import sklearn.datasets  # noqa: F401
    import tensorflow_datasets  # noqa: F401

    import keras_vit  # noqa: F401
    from train.run import training  # noqa: F401

    matplotlib.use("agg")
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()

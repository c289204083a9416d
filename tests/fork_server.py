"""Runs commands in forks of a process that has imported what they need.

A command that is started anew spends most of its time on importing TensorFlow. Nothing
is computed before the fork, so each command has a TensorFlow of its own.

A line of standard input is a JSON object: `argv`, the module and its arguments, or as
after `python -c`; `cwd`; `environment`; `output` and `errors`, the files for the
streams; `until`, "the end" or where else to end: "the flags", when they are read, or
"the work", when model and data are there and what takes long would begin. The exit
status, negative for a signal, is written to the pipe `status`; meanwhile other
commands may run.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback

import small_variants

LIMIT = 900
# A test may put another in its place.
PYTHON = sys.executable
# The pipes of the commands that run, by process.
RUNNING = {}
# What takes long, by module.
WORK = {
    "train.models.loaded_model": "predict",
    "train.explain.report": "predict",
    "train.export.parity": "run",
}
GIVEN_MODEL = [
    f"train.{name}"
    for name in (
        *("compare", "evaluate", "explain", "export", "few_shot", "predict"),
        "publish",
    )
]


def answer(status, **request):
    """Forks, and runs the module as a command in the child.

    Args:
        status: path of the named pipe for the exit status.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    child = os.fork()
    if child:
        RUNNING[child] = status
        # First, for whoever asked opens the pipe only then.
        print("forked", flush=True)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    code = 1
    try:
        code = perform(**request)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def say_which_ended(*_):
    """Writes the exit statuses of the children that have ended."""
    while RUNNING:
        child, state = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with open(RUNNING.pop(child), "w") as pipe:
            pipe.write(str(os.waitstatus_to_exitcode(state)))


def perform(argv, cwd, environment, output, errors, until):
    """Runs a module as `python -m` does, or a program as `python -c`, in the child."""
    signal.alarm(LIMIT)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.dup2(os.open(output, flags), 1)
    os.dup2(os.open(errors, flags), 2)
    os.chdir(cwd)
    os.environ.update(environment)
    tempfile.tempdir = None  # of the server's TMPDIR
    # That of `ForkedCommands`, if there is one: what a command starts is a fork too.
    sys.executable = os.environ.get("FORKED_PYTHON", sys.executable)
    small_variants.shrink_if_asked()
    leave_out_the_drawing()
    sys.argv = argv
    if until == "the flags":
        return read_flags(argv)
    if until == "the work":
        leave_out_the_work()
    try:
        if argv[0] == "-c":
            sys.argv = ["-c", *argv[2:]]
            exec(argv[1], {"__name__": "__main__"})
        else:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


def leave_out_the_drawing():
    """Lets every file of a figure hold an empty one; they have tests of their own."""
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    print_figure = FigureCanvasBase.print_figure

    def print_empty(canvas, filename, *, format=None, **_):
        return print_figure(FigureCanvasAgg(Figure((1, 1))), filename, format=format)

    FigureCanvasBase.print_figure = print_empty


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
    """Starts this file, and asks it; threads may ask at the same time.

    Args:
        folder: `pathlib.Path`, of the files that take what commands print.
        environment: dict, of the commands.
    """

    def __init__(self, folder, environment):
        self.folder = folder
        self.environment = environment
        self._lock = threading.Lock()
        self.process = subprocess.Popen(
            [PYTHON, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def run(self, argv, cwd, environment, until="the end"):
        """Runs a module; returns its exit status and what it printed."""
        code, printed, _ = self.streams(argv, cwd, environment, until, together=True)
        return code, printed

    def streams(self, argv, cwd, environment, until="the end", together=False):
        """Returns exit status, standard output and errors, empty if `together`."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            output, errors, status = (
                os.path.join(name, word) for word in ("output", "errors", "status")
            )
            os.mkfifo(status)
            request = {
                "argv": [str(word) for word in argv],
                "cwd": str(cwd),
                "environment": environment,
                "output": output,
                "errors": output if together else errors,
                "until": until,
                "status": status,
            }
            with self._lock:
                self.process.stdin.write(json.dumps(request) + "\n")
                self.process.stdin.flush()
                if not self.process.stdout.readline():
                    raise RuntimeError(
                        "the fork server is gone: start fork_server.py by hand"
                    )
            code = int(_text(status))
            return code, _text(output), "" if together else _text(errors)

    def close(self):
        """Ends it."""
        self.process.stdin.close()
        self.process.wait()


def _text(path):
    with open(path, errors="replace") as file:
        return file.read()


def serve():
    """Imports, then answers until its input ends."""
    import matplotlib.pyplot
    import sklearn.datasets  # noqa: F401
    import tensorflow_datasets  # noqa: F401

    import keras_vit  # noqa: F401
    from train.run import training  # noqa: F401

    matplotlib.use("agg")
    # Collections of the children would copy all of these objects.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    signal.signal(signal.SIGCHLD, say_which_ended)
    for line in sys.stdin:
        answer(**json.loads(line))


if __name__ == "__main__":
    serve()

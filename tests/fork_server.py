"""Runs commands in forks of a process that has imported what they need.

A command that is started anew spends most of its time on importing TensorFlow. Nothing
is computed before the fork, so each command has a TensorFlow of its own.

The server has a folder with `keras-vit` and `python`, which hand it their words, their
environment and their open streams. Several commands run at the same time.
"""

import contextlib
import gc
import importlib
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback

import small_variants

import keras_vit_start

LIMIT = 900
# A test may put another in its place.
PYTHON = sys.executable
# These functions take long, by module.
WORK = {
    "train.models.loaded_model": "predict",
    "train.explain.report": "predict",
    "train.export.parity": "run",
}
# The command that asks a server.
SCRIPT = """#!{python} -S
import json, os, signal, socket, sys

# A notebook interrupts its kernel before it ends it by a message.
signal.signal(signal.SIGINT, signal.SIG_IGN)
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    socket.send_fds(asked, [b"-"], [1, 2])
    asked.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
    asked.shutdown(socket.SHUT_WR)
    code = asked.recv(9)
sys.exit(int(code) if code else "ended by a signal")
"""


def answer(asked):
    """Runs a command in this process, and ends it with the answer, the exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.alarm(LIMIT)
    _, streams, *_ = socket.recv_fds(asked, 1, 2)
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    code = 1
    try:
        code = perform(*json.load(asked.makefile()))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        asked.sendall(str(code).encode())
        os._exit(0)


def perform(argv, cwd, environment):
    """Runs a command, and returns its exit status.

    Args:
        argv: `python` or `keras-vit` in any folder, and the words after it.
        cwd: str, the folder.
        environment: dict; if UNTIL is in it, the command ends when its model and data
            are there and what takes long would begin.
    """
    os.chdir(cwd)
    os.environ.update(environment)
    tempfile.tempdir = None  # of the server's TMPDIR
    # Commands that a command starts are forks too.
    sys.executable = os.environ.get("FORKED_PYTHON", sys.executable)
    small_variants.shrink_if_asked()
    leave_out_the_drawing()
    if os.environ.pop("UNTIL", None):
        leave_out_the_work()
    script, *sys.argv = argv
    if script.endswith("keras-vit"):
        sys.argv[0] = keras_vit_start.module(sys.argv[0])
    elif sys.argv[0] == "-m":
        del sys.argv[0]
    try:
        if sys.argv[0] == "-c":
            exec(sys.argv.pop(1), {"__name__": "__main__"})
        else:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
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


class ForkServer:
    """Starts this file, and has it run commands; threads may ask at the same time.

    Args:
        environment: dict, of the server and its commands.

    Attributes:
        python: path of a `python` whose commands are forks; `keras-vit` is beside it.
    """

    def __init__(self, environment):
        self.environment = environment
        # A socket needs a short path.
        self._folder = tempfile.TemporaryDirectory()
        self.python = pathlib.Path(self._folder.name, "python")
        address = f"{self._folder.name}/socket"
        for path in (self.python, self.python.with_name("keras-vit")):
            path.write_text(SCRIPT.format(python=PYTHON, address=address))
            path.chmod(0o755)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(64)
            self.process = subprocess.Popen(
                [PYTHON, __file__, str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                # Python asks once whether it can seek in them, which forks cannot.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
            )

    def run(self, argv, cwd, environment):
        """Runs a module, or `-c` and code; returns its exit status and what it said."""
        done = subprocess.run(
            [self.python, *argv],
            cwd=cwd,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        return done.returncode, done.stdout

    def output(self, cwd, *argv, status=0):
        """Returns what a module, or `-c` and code, says that ends with a status."""
        code, said = self.run(argv, cwd, {})
        assert code == status and "Traceback" not in said, said
        return said

    def close(self):
        """Ends it."""
        with self.process:
            self.process.terminate()
        self._folder.cleanup()


def serve(listener):
    """Imports, then answers on a socket until the process that started it ends.

    Args:
        listener: int, its file descriptor.
    """
    parent = os.getppid()
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
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listening = socket.socket(fileno=listener)
    listening.settimeout(1)
    while os.getppid() == parent:
        with contextlib.suppress(TimeoutError):
            asked, _ = listening.accept()
            if not os.fork():
                answer(asked)
            asked.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))

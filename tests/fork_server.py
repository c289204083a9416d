"""Runs commands in forks of a process that has imported what they need.

A command that is started anew spends most of its time on importing TensorFlow. Nothing
is computed before the fork, so each command has a TensorFlow of its own.

A request is a line of JSON on a socket, the arguments of `perform`; its answer is
another, of the exit status, negative for a signal, the output and the errors. Several
requests run at the same time.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import traceback

import small_variants

import keras_vit_start

LIMIT = 900
# A test may put another in its place.
PYTHON = sys.executable
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
# `keras-vit` and `python` as commands that ask a server.
SCRIPT = """#!{python} -S
import json, os, signal, socket, sys

# A notebook interrupts its kernel before it ends it by a message.
signal.signal(signal.SIGINT, signal.SIG_IGN)
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    lines = asked.makefile("rw")
    request = dict(argv=sys.argv, cwd=os.getcwd(), environment=dict(os.environ))
    print(json.dumps(request), file=lines, flush=True)
    code, output, errors = json.loads(lines.readline())
sys.stdout.write(output)
sys.stderr.write(errors)
sys.exit(code)
"""


class Handler(socketserver.StreamRequestHandler):
    """Watches a fork that runs a command."""

    def handle(self):
        request = json.loads(self.rfile.readline())
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            if request.pop("together", False):
                errors = output
            child = os.fork()
            if not child:
                end_with(lambda: perform(output, errors, **request))
            _, state = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(state)
            together = errors is output
            texts = [text_of(output), "" if together else text_of(errors)]
            answer = json.dumps([code, *texts])
        self.wfile.write(answer.encode() + b"\n")


def text_of(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def end_with(function):
    """Ends the process with the exit status that a function returns."""
    code = 1
    try:
        code = function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def perform(output, errors, argv, cwd, environment, until="the end"):
    """Runs a command, and returns its exit status.

    Args:
        output: file of the standard output.
        errors: file of the standard error.
        argv: a module and its arguments, as after `python -m`; `-c` and the words after
            it; or the words of a script of `ForkServer.write_scripts`.
        cwd: str, the folder.
        environment: dict, added to that of the server.
        until: "the end" or where else to end: "the flags", when they are read, or "the
            work", when model and data are there and what takes long would begin.
    """
    signal.alarm(LIMIT)
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    os.chdir(cwd)
    os.environ.update(environment)
    tempfile.tempdir = None  # of the server's TMPDIR
    # Commands that a command starts are forks too, where `write_scripts` was called.
    sys.executable = os.environ.get("FORKED_PYTHON", sys.executable)
    small_variants.shrink_if_asked()
    leave_out_the_drawing()
    sys.argv = argv = argv_of(*argv)
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


def argv_of(first, *words):
    """Returns a module and its arguments, or `-c` and what follows."""
    if first.endswith("/keras-vit"):
        return [keras_vit_start.module(words[0]), *words[1:]]
    if first.endswith("/python"):
        return [*words[words[0] == "-m" :]]
    return [first, *words]


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
        environment: dict, of the commands.
    """

    def __init__(self, environment):
        self.environment = environment
        # A socket needs a short path.
        self._folder = tempfile.TemporaryDirectory()
        self.address = os.path.join(self._folder.name, "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(64)
            self.process = subprocess.Popen(
                [PYTHON, __file__, str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )

    def run(self, argv, cwd, environment, until="the end"):
        """Runs a module; returns its exit status and what it printed."""
        code, printed, _ = self.streams(argv, cwd, environment, until, together=True)
        return code, printed

    def streams(self, argv, cwd, environment, until="the end", together=False):
        """Returns exit status, standard output and errors, empty if `together`."""
        request = {
            "argv": [str(word) for word in argv],
            "cwd": str(cwd),
            "environment": environment,
            "until": until,
            "together": together,
        }
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(self.address)
            lines = asked.makefile("rw")
            print(json.dumps(request), file=lines, flush=True)
            answer = lines.readline()
        if not answer:
            raise RuntimeError("the fork server is gone: start fork_server.py by hand")
        return json.loads(answer)

    def write_scripts(self, folder):
        """Writes `keras-vit` and `python`, which run in forks, into a new folder."""
        folder.mkdir()
        text = SCRIPT.format(python=sys.executable, address=self.address)
        for name in ("keras-vit", "python"):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def close(self):
        """Ends it."""
        self.process.terminate()
        self.process.wait()
        self._folder.cleanup()


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    def service_actions(self):
        """Ends with the process that started it."""
        super().service_actions()
        if os.getppid() != self.parent:
            sys.exit()


def serve(listener):
    """Imports, then answers on a socket.

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
    server = Server("", Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=listener)
    server.parent = parent
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))

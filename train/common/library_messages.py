"""Hides what libraries print as they start; errors and what is unknown stay.

TensorFlow's C++ writes its notices to file descriptor 2, past `sys.stderr`, whatever
TF_CPP_MIN_LOG_LEVEL says. The descriptor therefore becomes a pipe to a small process,
which passes on all lines but those of `NOISE`, and shows these too if the command dies.
"""

import atexit
import collections
import contextlib
import logging
import os
import re
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator

from keras_vit_start import BACKENDS, styled
from train.common import flag_help
from zoo.common.safe_text import counted

# Hide lines that start so: notices and warnings of C++ and of absl,
# and errors that only say that the machine has no GPU, or no such instructions, or that
# a graph with dropout keeps the layout of its tensors (tensorflow issue 98985).
NOISE = re.compile(
    rb"""
    [IW]\d{4}\ \d\d:\d\d:\d+\.\d+\ +\d+\ \S+:\d+\]          # absl
    | \d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d\.\d+:\ [IW]\ \S+:\d+\]  # TensorFlow before it
    | INFO:\                                                # TFLite, also JAX's Python
    | WARNING:\ All\ log\ messages\ before\ absl::InitializeLog
    | WARNING:\ Attempting\ to\ use\ a\ delegate\ that\ only\ supports
    | To\ enable\ the\ following\ instructions:
    | .*\bE\d{0,4}\ .*\bfailed\ call\ to\ cuInit:\ .*(\(303\)|CUDA_ERROR_NO_DEVICE)
    | .*\bE\d{0,4}\ .*Unable\ to\ register\ cu(DNN|FFT|BLAS)\ factory
    | .*\bE\d{0,4}\ .*\boneDNN\ supports\ DT_\w+\ only\ on\ .*\ Falling\ back
    | .*\bE\d{0,4}\ .*meta_optimizer\.cc:\d+\]\ layout\ failed:\ INVALID_ARGUMENT:
      \ Size\ of\ values\ 0\ does\ not\ match\ size\ of\ permutation  # dropout
    | .*\bE\d{0,4}\ .*computation_placer.*\ already\ registered
    """,
    re.VERBOSE,
)
# Warnings at lines of these modules are ours, or are about a call of ours.
_OURS = r"(keras_vit|keras_vit_start|train|zoo|__main__|absl|runpy)\b"
# They log a traceback of each error, which our messages name anyway.
_OF_STORAGE = ("fsspec", "gcsfs")
TITLE = b"libraries had printed, which is hidden otherwise:\n"
# Keep this many hidden lines, to show them if the command dies.
_KEPT = 50
# Show at most this many different warnings from one place in the code.
_WARNINGS = 10
_shown = collections.defaultdict(set)
# Of a warning about photos the first text is shown, the others are counted.
_first: dict[type[Warning], str] = {}
_more: collections.Counter = collections.Counter()
_reported: set[type[Warning]] = set()
_PATIENCE_SECONDS = 0.2
_FAREWELL_SECONDS = 2.0


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Hides messages of libraries until the process ends; an error shows them.

    Nothing is hidden from the C++ of a process that has imported a backend before, on
    Windows, or where the standard error is closed.
    """
    _hide_those_of_python()
    watcher = Watcher() if _can_watch() else None
    if watcher is not None:
        atexit.register(watcher.end)
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        if watcher is not None:
            watcher.end(well=False)
        raise
    finally:
        _show_counts()


def no_more_of(kind: type[Warning]) -> None:
    """Hides warnings of a kind: the command has said for which photos they are true."""
    _reported.add(kind)


@contextlib.contextmanager
def hidden_errors() -> Iterator[None]:
    """Hides errors of libraries too, for a while, where messages are hidden.

    For a library whose processes and threads print where the command itself says what
    has failed.
    """
    if logging.getLogger().isEnabledFor(logging.WARNING):
        yield
        return
    level, hook = logging.root.manager.disable, threading.excepthook
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, level)
        logging.disable(logging.CRITICAL)
        stack.callback(setattr, threading, "excepthook", hook)
        threading.excepthook = lambda failed: None
        if _stderr_number() not in (None, 2):
            before = os.dup(2)
            stack.callback(os.close, before)
            stack.callback(os.dup2, before, 2)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 2)
            os.close(nothing)
        yield


class Watcher:
    """A process that reads what is written to file descriptor 2, and passes it on.

    A process rather than a thread, as it outlives a crash in C++. Python's own
    `sys.stderr` goes directly to where the descriptor led before.
    """

    def __init__(self):
        self.before = os.dup(2)
        self._pid = 0
        source, sink = os.pipe()
        # The pipe receives one byte if the command ends well.
        told, self._tell = os.pipe()
        sys.stderr.flush()
        try:
            self._pid = _fork()
        except OSError:  # no more processes: everything is shown
            for descriptor in (source, sink, told, self._tell, self.before):
                os.close(descriptor)
            return
        if not self._pid:
            _watch(source, told, self.before, not_mine=(sink, self._tell))
        self._owner = os.getpid()
        os.close(source)
        os.close(told)
        os.dup2(sink, 2)
        os.close(sink)
        _lead_python_to(self.before)

    def end(self, well: bool = True) -> None:
        """Gives the descriptor back; shows what was hidden unless all went `well`."""
        if not self._pid or os.getpid() != self._owner:
            return
        if well:
            with contextlib.suppress(OSError):
                os.write(self._tell, b".")
        os.close(self._tell)
        os.dup2(self.before, 2)
        # Processes that the command has left may hold the pipe open.
        deadline = time.monotonic() + _FAREWELL_SECONDS
        with contextlib.suppress(ChildProcessError):
            while not os.waitpid(self._pid, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.001)
        self._pid = 0


def _can_watch():
    if not hasattr(os, "fork") or {*BACKENDS} & sys.modules.keys():
        return False
    try:
        os.fstat(2)
    except OSError:
        return False
    return sys.stderr is not None


def _fork():
    with warnings.catch_warnings():
        # The warning is about NumPy's threads, which the child does not need.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _stderr_number():
    """Returns the descriptor of Python's messages, None in a notebook or a test."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _lead_python_to(descriptor):
    if _stderr_number() != 2:
        return
    sys.stderr = sys.__stderr__ = os.fdopen(  # type: ignore[misc]
        descriptor,
        "w",
        buffering=1,
        encoding=sys.stderr.encoding,
        errors=sys.stderr.errors,
        closefd=False,
    )


def _watch(source, told, sink, not_mine):
    """Runs the watcher; never returns."""
    status = 1
    try:
        # The watcher ends with the last writer; Ctrl-C reaches the whole group.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        for descriptor in not_mine:
            os.close(descriptor)
        hidden_lines = _pass_on(source, sink)
        if hidden_lines and not os.read(told, 1):
            _write(sink, TITLE + b"".join(hidden_lines))
        status = 0
    finally:
        os._exit(status)


def _pass_on(source, sink):
    """Copies all lines but noise until the source ends; returns the last of these."""
    hidden_lines = collections.deque(maxlen=_KEPT)

    def show(line: bytes) -> None:
        if NOISE.match(line):
            hidden_lines.append(line)
        else:
            _write(sink, line)

    partial = b""
    while True:
        # Show an unfinished line, such as a progress bar, after a moment.
        waits = _PATIENCE_SECONDS if partial else None
        if not select.select([source], [], [], waits)[0]:
            show(partial)
            partial = b""
            continue
        block = os.read(source, 1 << 16)
        if not block:
            break
        *lines, partial = (partial + block).split(b"\n")
        for line in lines:
            show(line + b"\n")
    if partial:
        show(partial + b"\n")
    return hidden_lines


def _write(sink, content):
    while content:
        try:
            content = content[os.write(sink, content) :]
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return  # nobody reads it any more


def _hide_those_of_python():
    """Hides log records up to warnings; Python's warnings of libraries; ours are plain.

    The user's `-W` or PYTHONWARNINGS comes first.
    """
    # Our own messages are not log records.
    logging.disable(logging.WARNING)
    for name in _OF_STORAGE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if sys.warnoptions:
        return
    warnings.filterwarnings("ignore", module=rf"(?!{_OURS})")
    warnings.showwarning = _show_warning


def _show_warning(message, category, filename, lineno, file=None, line=None):
    stream, text = file or sys.stderr, flag_help.in_flags(str(message))
    shown = _shown[filename, lineno]
    # Data may be read more than once, with the same warning each time.
    if stream is None or category in _reported or hash(text) in shown:
        return
    shown.add(hash(text))
    if getattr(category, "is_of_photo", False):
        if _first.setdefault(category, text) != text:
            _more[category] += 1
            return
    elif len(shown) > _WARNINGS:
        return
    more = " (more of these are not shown)" * (len(shown) == _WARNINGS)
    print(f"{styled('warning:', 'warning', stream)} {text}{more}", file=stream)


def _show_counts():
    """Says for how many further photos a warning is true that was shown for one."""
    for kind, count in _more.items():
        if sys.stderr is not None and kind not in _reported:
            title = styled("warning:", "warning", sys.stderr)
            text = f"{counted(count, 'more photo')} like this one: {_first[kind]}"
            print(title, text, file=sys.stderr)

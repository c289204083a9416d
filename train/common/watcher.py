"""A process that reads file descriptor 2 of a command, and hides what is no error.

TensorFlow's C++ writes its notices to the descriptor, past `sys.stderr`, whatever
TF_CPP_MIN_LOG_LEVEL says. It therefore becomes a pipe to this process, which passes on
all lines but those of `NOISE`, and shows what it has hidden if the command dies.
"""

import collections
import contextlib
import os
import re
import select
import signal
import sys
import time
import warnings

from keras_vit_start import BACKENDS

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
# A warning of these may come for each photo, and in each epoch again.
_OF_PHOTOS = re.compile(rb"Corrupt JPEG data|libpng warning|TIFF\w+: Warning")
TITLE = b"libraries had printed, which is hidden otherwise:\n"
# Keep this many hidden lines, to show them if the command dies.
_KEPT = 50
_PATIENCE_SECONDS = 0.2
_FAREWELL_SECONDS = 2.0
# The command writes these once it ends well, and to have errors shown.
_WELL, _SHOW = b".", b"!"


class Watcher:
    """A process that reads what is written to file descriptor 2, and passes it on.

    A process rather than a thread, as it outlives a crash in C++. Python's own
    `sys.stderr` goes directly to where the descriptor led before. What is written to
    `errors`, another descriptor, is kept back like notices.
    """

    def __init__(self):
        self.before = os.dup(2)
        self._pid = 0
        source, sink = os.pipe()
        hidden, self.errors = os.pipe()
        # The pipe receives what the command has to say, one byte each time.
        told, self._tell = os.pipe()
        sys.stderr.flush()
        mine, not_mine = (source, hidden, told), (sink, self.errors, self._tell)
        try:
            self._pid = _fork()
        except OSError:  # no more processes: everything is shown
            for descriptor in (*mine, *not_mine, self.before):
                os.close(descriptor)
            return
        if not self._pid:
            _watch(mine, self.before, not_mine)
        self._owner = os.getpid()
        for descriptor in mine:
            os.close(descriptor)
        os.dup2(sink, 2)
        os.close(sink)
        _lead_python_to(self.before)

    @property
    def is_watching(self) -> bool:
        """Whether the descriptor leads to the process, which is this one's."""
        return bool(self._pid) and os.getpid() == self._owner

    def show_errors(self) -> None:
        """Shows what was written to `errors` so far."""
        with contextlib.suppress(OSError):
            os.write(self._tell, _SHOW)

    def end(self, well: bool = True) -> None:
        """Gives the descriptor back; shows what was hidden unless all went `well`."""
        if not self.is_watching:
            return
        if well:
            with contextlib.suppress(OSError):
                os.write(self._tell, _WELL)
        os.close(self._tell)
        os.close(self.errors)
        os.dup2(self.before, 2)
        # Processes that the command has left may hold the pipe open.
        deadline = time.monotonic() + _FAREWELL_SECONDS
        with contextlib.suppress(ChildProcessError):
            while not os.waitpid(self._pid, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.001)
        self._pid = 0


def can_watch() -> bool:
    """Returns whether there is a descriptor to read, and no backend before it."""
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


def _watch(mine, sink, not_mine):
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
        _pass_on(*mine, sink)
        status = 0
    finally:
        os._exit(status)


def _pass_on(source, hidden, told, sink):
    """Copies all lines but noise until the command and its processes have ended.

    Lines that are hidden are shown if it asks for them, or has not ended well.
    """
    lines_of = _Lines(sink)
    is_well, waiting = False, {source, hidden, told}
    partial = {source: b"", hidden: b""}
    while waiting & partial.keys():
        # Show an unfinished line, such as a progress bar, after a moment.
        waits = _PATIENCE_SECONDS if partial[source] else None
        ready = select.select(waiting, [], [], waits)[0]
        if not ready:
            lines_of.take(partial[source], is_error=False)
            partial[source] = b""
        elif ready == [told]:
            word = os.read(told, 1)
            is_well |= word == _WELL
            waiting -= {told} if not word else set()
            if word == _SHOW:
                lines_of.show_errors()
        for one in partial.keys() & {*ready}:
            waiting -= _ended(one, partial, lines_of, is_error=one == hidden)
    words = os.read(told, 16) if told in waiting else b""
    if not (is_well or _WELL in words):
        lines_of.show_all()
    elif _SHOW in words:
        lines_of.show_errors()
    lines_of.show_counts()


def _ended(one, partial, lines_of, is_error):
    """Takes the lines that can be read; returns a set of the source if it has ended."""
    block = os.read(one, 1 << 16)
    *lines, partial[one] = (partial[one] + block).split(b"\n")
    if partial[one] and not block:
        lines, partial[one] = [partial[one]], b""
    for line in lines:
        lines_of.take(line + b"\n", is_error=is_error)
    return set() if block else {one}


class _Lines:
    """The lines that a command has written: those that are hidden, and how many."""

    def __init__(self, sink):
        self._sink = sink
        self._notices, self._errors = (
            collections.deque(maxlen=_KEPT) for _ in range(2)
        )
        self._of_photos = collections.Counter()

    def take(self, line: bytes, is_error: bool) -> None:
        """Shows a line or keeps it back."""
        if NOISE.match(line):
            self._notices.append(line)
        elif is_error:
            self._errors.append(line)
        elif warned := _OF_PHOTOS.match(line):
            self._of_photos[warned[0]] += 1
            if self._of_photos[warned[0]] == 1:
                _write(self._sink, line)
        else:
            _write(self._sink, line)

    def show_errors(self) -> None:
        """Shows the last errors that were hidden, once."""
        self._show(self._errors)
        self._errors.clear()

    def show_all(self) -> None:
        """Shows the last lines that were hidden."""
        self._show([*self._notices, *self._errors])

    def show_counts(self) -> None:
        """Says how many lines about photos there were besides those shown."""
        for start, count in self._of_photos.items():
            if count > 1:
                text = b"%d more lines begin with %s: libraries read such photos"
                text += b" as far as they can\n"
                _write(self._sink, text % (count - 1, start))

    def _show(self, lines):
        if lines:
            _write(self._sink, TITLE + b"".join(lines))


def _write(sink, content):
    while content:
        try:
            content = content[os.write(sink, content) :]
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return  # nobody reads it any more

"""Hides what libraries print as they start; errors and what is unknown stay.

Those of C++ go through the process of `train.common.watcher`; those of Python are
hidden in this one.
"""

import atexit
import collections
import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator

from keras_vit_start import styled
from train.common import flag_help
from train.common.errors import LibraryError
from train.common.watcher import Watcher, can_watch
from zoo.common.safe_text import counted

# Warnings at lines of these modules are ours, or are about a call of ours.
_OURS = r"(keras_vit|keras_vit_start|train|zoo|__main__|absl|runpy)\b"
# They log a traceback of each error, which our messages name anyway.
_OF_STORAGE = ("fsspec", "gcsfs")
# Show at most this many different warnings from one place in the code.
_WARNINGS = 10
_shown = collections.defaultdict(set)
# The first text of a warning about photos is shown, the others are counted.
_first: dict[type[Warning], str] = {}
_more: collections.Counter = collections.Counter()
_reported: set[type[Warning]] = set()
# The one of this process, if there is one.
_watchers: list[Watcher] = []


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Hides messages of libraries until the process ends; an error shows them.

    Nothing is hidden from the C++ of a process that has imported a backend before, on
    Windows, or where the standard error is closed.
    """
    _hide_those_of_python()
    if can_watch():
        _watchers.append(Watcher())
        atexit.register(_watchers[-1].end)
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        for watcher in _watchers:
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
    has failed. The last lines of those of C++ are shown after a `LibraryError`, or if
    the process dies.
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
        for watcher in _watchers:
            if watcher.is_watching:
                before = os.dup(2)
                stack.callback(os.close, before)
                stack.callback(os.dup2, before, 2)
                os.dup2(watcher.errors, 2)
        try:
            yield
        except LibraryError:
            for watcher in _watchers:
                watcher.show_errors()
            raise


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

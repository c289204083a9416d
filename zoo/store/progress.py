"""Progress bars: on a terminal one line that changes, elsewhere a line now and then."""

import sys
import threading
import time
from typing import Any

from tqdm import tqdm

_TICK_SECONDS = 0.5
# Between lines of a log file: the least, the most, and the share of the time so far.
_LOG_SECONDS, _MOST_LOG_SECONDS, _LOG_SHARE = 20.0, 600.0, 0.1
_LOG_FORMAT = (
    "{desc}: {percentage:.0f}% {n_fmt}/{total_fmt} "
    "[{elapsed}<{remaining}, {rate_fmt}{postfix}]"
)


def progress_bar(first: str = "", **settings: Any) -> tqdm:
    """Returns a `tqdm.tqdm` with rate and time left, which does not flood a log file.

    `settings` are those of `tqdm.tqdm`. `first` is what takes long before the first
    `update`, such as "compiling": it is shown until then, with its seconds, which time
    left and rate leave out.
    """
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return (_TerminalBar if is_terminal else _LogBar)(first=first, **settings)


class _Bar(tqdm):
    """A bar that says what it waits for until the first update."""

    def __init__(self, *, first="", **settings):
        self.first = first
        super().__init__(**settings)

    def waiting(self) -> str:
        """Returns what is shown before the first update."""
        return f"{self.desc}: {self.n}/{self.total}, {self.first}"

    def end_waiting(self) -> None:
        """Ends what is shown before the first update."""
        self.first = ""

    def update(self, n: float | None = 1) -> bool | None:
        """Adds to the count; the clock begins with the first."""
        if self.first and not self.disable:
            self.end_waiting()
            self.unpause()
            # The rate leaves out the first update, which nothing timed.
            self.initial = self.last_print_n = self.n + (n or 0)
        return super().update(n)

    def close(self) -> None:
        """Ends the bar, and leaves its last state."""
        # Without the attribute where tqdm refused the settings.
        if not getattr(self, "disable", True):
            self.end_waiting()
        super().close()


class _TerminalBar(_Bar):
    """One line that changes, also while nothing but the clock goes on."""

    def __init__(self, **settings):
        self._over, self._thread = threading.Event(), None
        super().__init__(dynamic_ncols=True, mininterval=0.5, **settings)
        if self.first and not self.disable:
            self._thread = threading.Thread(target=self._tick, daemon=True)
            self._thread.start()

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Shows the state, or what the bar waits for."""
        if self.first and msg is None:
            shown = self.format_dict
            msg = f"{self.waiting()} [{self.format_interval(shown['elapsed'])}]"
            msg = msg[: (shown["ncols"] or 80) - 1]
        return super().display(msg, pos)

    def end_waiting(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        super().end_waiting()

    def _tick(self):
        while not self._over.wait(_TICK_SECONDS):
            self.refresh()


class _LogBar(_Bar):
    """Lines of their own: of the beginning if it takes long, some, and of the end."""

    def __init__(self, **settings):
        self._begun = time.monotonic()
        self._next = self._begun + _LOG_SECONDS
        super().__init__(**{"mininterval": 1.0} | settings)
        if self.disable:
            return
        if self.total:
            self.bar_format = _LOG_FORMAT
        if self.first:
            self._write(self.waiting())

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Writes a line, if the one before was long ago."""
        now = time.monotonic()
        if msg is None and now >= self._next:
            passed = _LOG_SHARE * (now - self._begun)
            wait = min(max(passed, _LOG_SECONDS), _MOST_LOG_SECONDS)
            self._next = now + wait
            self._write(str(self))
        return False

    def clear(self, nolock: bool = False) -> None:
        """Leaves the lines where they are."""

    def close(self) -> None:
        if not getattr(self, "disable", True):
            self.end_waiting()
            if self.last_print_t >= self.start_t + self.delay:
                self._write(str(self))
            self.leave = False
        super().close()

    def _write(self, line):
        self.fp.write(f"{line}\n")
        self.fp.flush()

"""Progress bars on a terminal and in a log file."""

import io
import re
import sys
import time
import types

import pytest

from zoo.store import progress
from zoo.store.progress import progress_bar


class Terminal(io.StringIO):
    """What `tqdm` needs of one."""

    encoding = "utf-8"

    def isatty(self):
        return True


def test_a_terminal_shows_what_is_waited_for_until_the_first_update(monkeypatch):
    monkeypatch.setattr(progress, "_TICK_SECONDS", 0.001)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress_bar("compiling", total=4, disable=True) as bar:
        bar.update(4)
    assert terminal.getvalue() == ""
    with progress_bar("compiling", total=4, desc="testing", unit="image") as bar:
        for _ in range(60_000):
            if terminal.getvalue().count("testing: 0/4, compiling [") >= 3:
                break
            time.sleep(0.01)
        else:
            pytest.fail(terminal.getvalue())
        bar.start_t = bar.last_print_t = bar.start_t - 3600
        bar.update()
        # The wait is no part of the time left.
        assert bar.format_dict["elapsed"] < 3600
        before = terminal.getvalue()
        bar.update(3)
    after = terminal.getvalue()[len(before) :]
    assert "compiling" not in after
    assert "testing: 100%" in after and "4/4" in after and "image/s" in after
    with pytest.raises(KeyError), progress_bar("compiling", total=4, desc="a") as bar:
        thread = bar._thread
        raise KeyError
    assert not thread.is_alive()


def test_what_comes_before_the_clock_begins_is_no_part_of_the_rate(capsys):
    with progress_bar("compiling", total=192, unit="image", mininterval=1) as bar:
        now = [time.time()]
        bar._time = lambda: now[0]
        bar.update(64)
        for _ in range(2):
            now[0] += 2.0
            bar.update(64)
    assert "192/192 [00:04<00:00, 32.00image/s]" in capsys.readouterr().err
    with progress_bar("compiling", total=64, unit="image") as bar:
        bar.update(64)
    # All came before the clock began.
    assert "64/64" in str(bar) and "?image/s" in str(bar)


def test_a_log_file_gets_few_lines(monkeypatch, capsys):
    now = [1000.0]
    clock = types.SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(progress, "time", clock)
    # One update per second for a day.
    with progress_bar("compiling", total=86400, desc="training", mininterval=0) as bar:
        for _ in range(86400):
            now[0] += 1.0
            bar.update()
            bar.set_postfix(loss="0.1", refresh=False)
        bar.write("a line between")
    out, err = capsys.readouterr()
    assert out == "a line between\n"
    assert "\r" not in err and err.endswith("loss=0.1]\n")
    first, *lines = err.splitlines()
    assert first == "training: 0/86400, compiling"
    assert lines[-1].startswith("training: 100% 86400/86400 [")
    counts = [int(line.split()[2].partition("/")[0]) for line in lines]
    assert counts[:3] == [20, 40, 60]
    gaps = [two - one for one, two in zip(counts, counts[1:-1], strict=False)]
    assert min(gaps) >= 20 and 500 < max(gaps) <= 601 and len(counts) < 250


def test_a_short_bar_of_a_log_file_is_one_line(capsys):
    assert list(progress_bar(iterable=range(3), desc="int8")) == [0, 1, 2]
    line = r"int8: 100% 3/3 \[\d\d:\d\d<00:00, .*\n"
    assert re.fullmatch(line, capsys.readouterr().err)
    with progress_bar(desc="a.npz", unit="B", unit_scale=True) as bar:
        bar.update(2000)
    assert re.match(r"a\.npz: 2\.00kB \[\d\d:\d\d", capsys.readouterr().err)

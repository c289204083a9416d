"""Contests between real worker processes, with jobs that need no library."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import time
import types

import pytest

from benchmarks import contest as contests
from benchmarks.contest import Contender, contest
from benchmarks.process import Worker, WorkerError

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(autouse=True)
def jobs_that_workers_find(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def contender(name, job=None, *, warm_up=0, ours=False, **settings):
    return Contender(
        name=name,
        job=f"contest_jobs:{job or name}",
        settings=settings,
        warm_up=warm_up,
        ours=ours,
    )


def run(contenders, tmp_path, *, rounds=2, repeats=2, **settings):
    return contest(
        contenders,
        rounds=rounds,
        repeats=repeats,
        log_dir=tmp_path / "logs",
        calibrate=False,
        **settings,
    )


def by_name(result):
    return {record["name"]: record for record in result["contenders"]}


def test_contenders_take_turns_and_warming_up_is_not_measured(tmp_path):
    steps = tmp_path / "steps"
    contenders = [
        contender(name, "write_name", warm_up=warm_up, path=str(steps), text=name)
        for name, warm_up in {"a": 0, "b": 0, "c": 3}.items()
    ]
    result = run(contenders, tmp_path, rounds=4)
    # The order rotates; one more warms up in each turn.
    turns = ["ccc", "aabbccc", "bbcccaa", "cccaabb", "aabbccc"]
    assert steps.read_text().split() == [*"".join(turns)]
    for record in result["contenders"]:
        assert [len(turn) for turn in record["seconds"]] == [2] * 4
        assert [len(turn) for turn in record["cpu_seconds"]] == [2] * 4
        assert record["peak_bytes"] >= record["import_bytes"] > 1e6
        assert record["error"] is None
    assert result["reference"] == "a"
    json.dumps(result)


def test_repeats_fill_a_turn_unless_given(tmp_path, monkeypatch):
    def entry(*seconds):
        turn = (seconds, seconds)
        return types.SimpleNamespace(error=None, contender=None, try_to=lambda *_: turn)

    assert contests._repeats([entry(0.3), entry(contests.TURN_SECONDS / 20)]) == 20
    assert contests._repeats([entry(2 * contests.TURN_SECONDS)]) == 1
    # However busy the machine is.
    monkeypatch.setattr(contests, "TURN_SECONDS", 1e9)
    monkeypatch.setattr(contests, "MOST_REPEATS", 12)
    result = run([contender("short", "nothing")], tmp_path, rounds=1, repeats=None)
    assert result["repeats"] == len(by_name(result)["short"]["seconds"][0]) == 12


def test_contenders_that_fail_leave_the_others_alone(tmp_path):
    failing = {
        "set_up_fails": "RuntimeError: no such model with a second line",
        "second_step_fails": "ValueError: the second step",
        "killed": "signal 9, perhaps for want of memory",
        "leaves": "status 3: last words",
        "no_such_job": "has no attribute 'no_such_job'",
        "nothing": 'no-such is not installed: pip install -e ".[benchmarks]"',
    }
    steps = {"path": str(tmp_path / "steps"), "text": "fine"}
    contenders = [contender(name) for name in failing]
    contenders[-1] = dataclasses.replace(contenders[-1], imports=("no_such",))
    contenders.insert(2, contender("fine", "write_name", **steps))
    result = run(contenders, tmp_path, rounds=3, repeats=1, reference="killed")
    records = by_name(result)
    for name, message in failing.items():
        assert message in records[name]["error"]
        log = tmp_path / "logs" / f"{name}.log"
        assert str(log) in records[name]["error"]
        assert log.exists()
        assert "ratio" not in records[name]
    assert len(records["fine"]["seconds"]) == 3
    assert result["reference"] == "fine"
    assert records["fine"]["ratio"] == 1
    with Worker(contender("leaves"), tmp_path / "log") as worker:
        for _ in range(2):
            with pytest.raises(WorkerError, match="status 3: last words"):
                worker.ready()


def test_what_libraries_print_stays_out_of_the_protocol(tmp_path):
    # Its backend is set before any import.
    one = dataclasses.replace(contender("chatter", warm_up=1), backend="jax")
    result = run([one], tmp_path)
    assert by_name(result)["chatter"]["error"] is None
    said = (tmp_path / "logs" / "chatter.log").read_text()
    for text in ("setting up jax", "by the protocol", "from C", "a child", "on stderr"):
        assert text in said


PARENT = """
import signal, sys
from benchmarks.contest import Contender
from benchmarks.process import Worker
job = Contender("one", "contest_jobs:write_pid", settings={"path": sys.argv[1]})
Worker(job, sys.argv[2]).ready()
print("ready", flush=True)
signal.pause()
"""


def test_worker_ends_with_a_parent_that_is_killed(tmp_path):
    pid = tmp_path / "pid"
    command = [sys.executable, "-c", PARENT, str(pid), str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"ready\n"
        listed = ["ps", "-o", "stat=", "-p", pid.read_text()]
        assert subprocess.run(listed, capture_output=True).stdout
        parent.kill()
    for _ in range(6_000):
        # One that is over may wait for its parent.
        state = subprocess.run(listed, capture_output=True).stdout.strip()[:1]
        if state in (b"", b"Z"):
            return
        time.sleep(0.1)
    pytest.fail("the worker goes on")

"""Time: what is used of a budget, and a schedule that follows the clock."""

import json
import types

import keras
import numpy as np
import pytest

from train import recipes
from train.common.errors import RunError
from train.engine.pace import Pace
from train.models.run_directory import RunDirectory
from train.search.budget import FILE, Budget
from train.search.options import Options
from train.search.task import Found


@pytest.fixture
def clock():
    """A clock that is turned by hand."""
    return types.SimpleNamespace(now=100.0)


def test_what_is_used_outlives_a_kill(tmp_path, clock):
    path = tmp_path / "search.json"
    # The command began ten seconds before its budget was known.
    budget = Budget(60.0, path, started=90.0, clock=lambda: clock.now)
    assert (budget.used, budget.left) == (10.0, 50.0)
    clock.now = 115.0
    budget.keep(training={"steps": 3})
    clock.now = 130.0
    # The seconds after the last note are lost, and so is the time until the next start.
    clock.now = 1000.0
    again = Budget(60.0, path, clock=lambda: clock.now)
    assert (again.used, again.facts) == (25.0, {"training": {"steps": 3}})
    clock.now = 1050.0
    again.keep(report={})
    assert again.left == -15.0
    kept = json.loads(path.read_text())
    assert kept == {
        "used_seconds": 75.0,
        "facts": {"training": {"steps": 3}, "report": {}},
    }
    path.write_text("{}")
    with pytest.raises(RunError, match="search.json is damaged .*whole budget is used"):
        Budget(60.0, path)


def test_a_search_with_a_first_answer_is_not_finished(tmp_path):
    directory = RunDirectory(tmp_path)
    found = Found(recipes.for_dataset("photos/"), Options(1.0))
    for file in (directory.results, directory.model):
        assert not found.is_finished(directory)
        file.touch()
    budget = Budget(60.0, tmp_path / FILE)
    budget.keep(report_seconds=3.0)
    assert not found.is_finished(directory)
    budget.keep(seconds=50.0)
    assert found.is_finished(directory)


def test_what_decides_a_search_is_known_by_the_same_names_as_ever():
    recipe, plain = recipes.for_dataset("photos/"), {"minutes": 1.0, "crop": None}
    plain |= {"models": (), "single": False}
    for given, more in (
        ((), {}),
        (("crop",), {"crop": "inception"}),
        (("momentum",), {"keeps_optimizer": True}),
    ):
        decided = Found(recipe, Options(1.0, given=given)).deciding
        named = {*plain, "given", "keeps_optimizer"} & decided.keys()
        assert {name: decided[name] for name in named} == plain | more


def taken_in(seconds, seconds_of_step, steps, every=1):
    """Returns how many steps a schedule of `steps` takes, and its last places."""
    now, places = [0.0], []
    optimizer = types.SimpleNamespace(iterations=keras.Variable(0, dtype="int32"))
    pace = Pace(lambda: seconds - now[0], steps, every)
    taken, is_over, fitting = 0, False, seconds / seconds_of_step
    while not is_over:
        for _ in range(every):
            optimizer.iterations.assign(optimizer.iterations + 1)
        taken += every
        now[0] += every * seconds_of_step
        is_over = pace.keep(optimizer)
        assert is_over == pace.is_over(optimizer)
        places.append(int(optimizer.iterations))
        if pace.steps_left:
            assert taken + pace.steps_left == pytest.approx(fitting, abs=every + 1)
    assert pace.steps_left == 0
    return taken, places


def test_a_schedule_ends_with_its_time():
    # As many as fit.
    assert taken_in(100.0, 1.0, steps=100)[0] == 100
    # On a machine of a quarter of the speed the schedule takes four steps at a time.
    taken, places = taken_in(100.0, 4.0, steps=100)
    assert taken == 25
    assert {*np.diff(places[2:])} <= {4, 5, 6}
    # On one of four times the speed it goes back, and has its steps four times.
    taken, places = taken_in(100.0, 0.25, steps=100)
    assert taken == 400
    assert places == sorted(places) and places.count(50) == pytest.approx(4, abs=1)
    # Between two looks nothing is known of the time.
    assert taken_in(10.0, 4.0, steps=100, every=5)[0] == 5


def test_a_machine_that_becomes_slower_is_noticed():
    now = [0.0]
    optimizer = types.SimpleNamespace(iterations=keras.Variable(0, dtype="int32"))
    pace = Pace(lambda: 100.0 - now[0], 200, 1)
    for step in range(200):
        optimizer.iterations.assign(optimizer.iterations + 1)
        now[0] += 0.5 if step < 100 else 10.0
        if pace.keep(optimizer):
            break
    # Half of the schedule in half of the time, and five steps for the rest.
    assert (step + 1, now[0]) == (105, 100.0)


def test_a_schedule_goes_on_where_it_was():
    optimizer = types.SimpleNamespace(iterations=keras.Variable(60, dtype="int32"))
    left = [10.0]
    pace = Pace(lambda: left[0], 100, 1)
    assert not pace.keep(optimizer) and int(optimizer.iterations) == 60
    left[0] = 5.0
    assert not pace.keep(optimizer) and int(optimizer.iterations) == 80
    # More time than it began with is no way back to before that.
    left[0] = 12.0
    assert not pace.keep(optimizer) and int(optimizer.iterations) == 60
    left[0] = 0.0
    assert pace.keep(optimizer) and int(optimizer.iterations) == 100


def test_a_schedule_without_time_is_over_at_once():
    optimizer = types.SimpleNamespace(iterations=keras.Variable(3, dtype="int32"))
    left = [0.0]
    pace = Pace(lambda: left[0], 10, 1)
    assert pace.keep(optimizer) and int(optimizer.iterations) == 10
    left[0] = 5.0
    assert pace.keep(optimizer)


@pytest.mark.parametrize(
    ("photos", "minutes"), [(100, 2.2), (1_000, 4.0), (50_000, 10.0)]
)
def test_the_default_budget_suits_the_photos(photos, minutes):
    assert Options().settled(photos).minutes == minutes
    assert Options(minutes=1.0).settled(photos).minutes == 1.0

"""The learning rate range test."""

import numpy as np
import pytest
import same_runs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from train import recipes
from train.engine.schedules import ExponentialRise
from train.run import learning_rate, training
from train.run.classification import FineTuning
from train.run.learning_rate import suggest

RATES = np.geomspace(1e-4, 1e2, 100)
STEP = RATES[1] / RATES[0]
DIGITS = recipes.for_dataset("digits").smoke()


def fall(at, width=0.3):
    """Losses that fall from 2.3 to 1.3, fastest at a rate, by a logistic curve."""
    return 2.3 - 1.0 / (1.0 + np.exp(-(np.log10(RATES) - np.log10(at)) / width))


@pytest.mark.parametrize("at", [1e-3, 0.03, 0.5])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_steepest_fall_is_found(at, noise):
    losses = fall(at) + np.random.default_rng(0).normal(0, noise, len(RATES))
    found = suggest(RATES, losses, diverged=False)
    # Within a step; noise moves the steepest point within the flank.
    off = STEP * 1.01 if not noise else 3.0
    assert at / off <= found["suggested"] <= at * off
    assert found["diverged"] is None
    assert len(found["smoothed"]) == len(RATES)


def test_a_tenth_of_where_it_diverges_is_the_most():
    losses = fall(0.5)
    end = int(np.searchsorted(RATES, 2.0))
    losses[end] = np.inf
    found = suggest(RATES[: end + 1], losses[: end + 1], diverged=True)
    assert found["diverged"] == RATES[end]
    assert found["suggested"] == pytest.approx(RATES[end] / 10, rel=0.05)
    assert len(found["smoothed"]) == end


@pytest.mark.parametrize(
    ("rates", "losses"),
    [
        (RATES, np.full(100, 2.3)),
        (RATES, 2.3 + np.random.default_rng(1).normal(0, 0.1, 100)),
        (RATES, np.linspace(2.3, 4.0, 100)),
        ([], []),
        (RATES[:6], [2.3] * 6),
        (np.full(50, 1e-3), np.linspace(2.3, 1.3, 50)),
    ],
)
def test_no_fall_and_too_few_rates_are_no_suggestion(rates, losses):
    found = suggest(rates, losses, diverged=len(losses) < 7)
    assert found["suggested"] is None
    assert len(found["smoothed"]) == len(losses)
    assert len(losses) >= 7 or found["smoothed"] == [*losses]


def test_rates_that_are_repeated_are_one():
    # Rounded, those below the smallest number of float32 are zero.
    rates = np.append(np.zeros(3), np.repeat(RATES, 2))
    losses = np.append([2.3] * 3, np.repeat(fall(0.03), 2))
    assert suggest(rates, losses, diverged=False)["suggested"] == pytest.approx(
        0.03, rel=0.2
    )


def test_rates_rise_by_the_same_factor():
    rise = ExponentialRise(1e-4, 1e2, steps=100)
    got = [float(rise(step)) for step in range(100)]
    np.testing.assert_allclose(got, RATES, rtol=2e-5)


def test_only_our_logs_of_an_earlier_test_are_removed(tmp_path):
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    own, kept = folder / "events.out.tfevents.1.host.2.0.v2", folder / "notes.txt"
    own.touch()
    kept.touch()
    link = folder / "events.out.tfevents.2.host"
    link.symlink_to(kept)
    (tmp_path / "link").symlink_to(folder)
    learning_rate._forget_events(tmp_path / "link")
    assert own.is_file()
    learning_rate._forget_events(folder)
    assert not own.exists() and link.is_symlink() and kept.is_file()


def test_a_later_run_is_as_without_it(short_recipe, short_run, monkeypatch, tmp_path):
    monkeypatch.setattr(learning_rate, "STEPS", 12)

    def find(**values):
        task = FineTuning(short_recipe.override(**values))
        return learning_rate.find(task, run_dir=tmp_path)

    # Up to 300,000: it diverges in time.
    found = find(learning_rate=300.0)
    folder = tmp_path / "learning_rate"
    assert found["learning_rates"][0] == pytest.approx(0.3)
    assert len(found["losses"]) < 12
    assert found["diverged"] == found["learning_rates"][-1]
    assert {path.name for path in folder.iterdir()} == {
        *("report.md", "report.json", "loss.png", "metrics.jsonl"),
        *("tensorboard", "training_batch.png"),
    }
    written = same_runs.report(folder)
    assert written["suggested"] == found["suggested"]
    assert written["sentence"] in (folder / "report.md").read_text()
    events = EventAccumulator(str(folder / "tensorboard")).Reload().Tags()
    assert "loss over learning rate" in events["tensors"]

    training.run(short_recipe, run_dir=tmp_path)
    same_runs.assert_same_bits(tmp_path, short_run)

    # Beside a finished run of other settings, too.
    found = find(learning_rate=0.05, lora_rank=2)
    assert len(same_runs.records(folder)) == len(found["losses"]) <= 12


def test_the_command_to_go_on():
    typed = "keras-vit finetune '--dataset=my photos/' --learning_rate=3 "
    for flag in ("--find_learning_rate", "-find_learning_rate=true"):
        assert learning_rate._command(typed + flag, 0.061) == (
            "keras-vit finetune '--dataset=my photos/' --learning_rate=0.061"
        )
    assert learning_rate._command(typed, None) == ""
    assert learning_rate._command("", 0.1) == ""

    found = {"suggested": None, "diverged": None}
    text = learning_rate._sentence(found, recipes.for_dataset("digits"))
    assert "any rate from 0.0001 to 100 " in text and "another --learning_rate" in text

"""Runs with several seeds, made up: what is made, chosen, told and refused."""

import json
import random

import chromium
import keras
import pytest

from train import recipes
from train.common.errors import RunError, Stopped
from train.models.run_directory import RunDirectory
from train.run import training
from train.series import page, seeds
from train.series.spread import spread

DIGITS = recipes.for_dataset("digits").override(seed=4)
NOT_HELD_OUT = DIGITS.override(validation_fraction=0.0)
REPORT = {
    "config": {"dataset": "digits", "model": "ViT-Ti_16", "seed": 4, "steps": 9},
    **{"leading_accuracy": "accuracy", "test_examples": 50, "parameters": 5},
    **{"per_class": [], "seconds": 1.5, "steps": 9},
}
HELD_OUT = {"validation_accuracy": 0.7, "validation_loss": 0.9}


class Made:
    """Stands in for `training.run`; `outcome` of a seed is an error or results."""

    def __init__(self):
        self.seeds = []
        self.outcome = lambda seed: {"test_accuracy": 0.1 * seed}

    def __call__(self, recipe, *, run_dir, **_):
        random.random()
        keras.config.set_dtype_policy("mixed_bfloat16")
        self.seeds.append(recipe.seed)
        found = self.outcome(recipe.seed)
        if isinstance(found, Exception):
            raise found
        own = {"test_balanced_accuracy": found["test_accuracy"] / 2}
        own |= HELD_OUT if recipe.validation_fraction else {}
        (run_dir / "model.keras").touch()
        (run_dir / "report.json").write_text(json.dumps(REPORT | own | found))


@pytest.fixture
def made(monkeypatch):
    found = Made()
    monkeypatch.setattr(training, "run", found)
    monkeypatch.setattr(keras.utils, "clear_session", lambda: None)
    return found


@pytest.fixture
def series(tmp_path):
    """Makes runs with so many seeds in a folder."""

    def run(count, recipe=DIGITS, **settings):
        before = random.getstate(), keras.config.dtype_policy()
        try:
            return seeds.run(recipe, count, run_dir=tmp_path, **settings)
        finally:
            # Random numbers and precision are left as they were found.
            assert (random.getstate(), keras.config.dtype_policy()) == before

    return run


def test_the_spread_of_shares():
    found = spread([0.4, 0.5, 0.6])
    assert found["values"] == [0.4, 0.5, 0.6]
    assert (found["mean"], found["deviation"]) == pytest.approx((0.5, 0.1))
    # 4.302653 deviations of the mean, from a table of Student's t.
    half = 4.302653 * 0.1 / 3**0.5
    assert (found["low"], found["high"]) == pytest.approx((0.5 - half, 0.5 + half))
    assert (spread([0.1, 0.9])["low"], spread([0.1, 0.9])["high"]) == (0, 1)
    one = spread([0.7])
    assert one["mean"] == 0.7 and one["deviation"] is one["low"] is one["high"] is None


def test_held_out_photos_choose_and_not_the_test(made, series, tmp_path):
    held_out = {4: 0.7, 5: 0.9, 6: 0.9, 7: 0.1}
    losses = {4: 0.1, 5: 0.5, 6: 0.4, 7: 0.1}
    made.outcome = lambda seed: {
        "test_accuracy": {4: 0.8, 5: 0.7, 6: 0.6, 7: 0.9}[seed],
        "validation_accuracy": held_out[seed],
        "validation_loss": losses[seed],
    }
    found = series(3, command="keras-vit finetune --seeds=3")
    assert made.seeds == [4, 5, 6]
    assert found["test_accuracy"]["mean"] == pytest.approx(0.7)
    # Among equally good runs, the one of the lower loss is used.
    assert found["use"] == "seed-6"
    assert found["model"] == str(tmp_path / "seed-6" / "model.keras")
    assert "seed" not in found["config"]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report == {key: found[key] for key in found.keys() - {"page", "model"}}
    assert [run["run"] for run in report["runs"]] == ["seed-4", "seed-5", "seed-6"]
    pages = [(tmp_path / f"report.{kind}").read_text() for kind in ("md", "html")]
    for text in (*pages, page.summary(found)):
        assert "the mean of 3 seeds (95% interval" in text
        best = "Use seed-6, which answers held-out photos best by log loss, 90.00%"
        assert best in text
        assert "fits the minutes" not in text
        assert "the seed alone" in text and "than these 50 to test on" in text
    assert "| seed-5 | 70.00% | 90.00% |" in pages[0]

    # The same command reads what is finished, and a larger number makes the rest.
    assert series(3, command="keras-vit finetune --seeds=3") == found
    assert len(made.seeds) == 3
    series(4)
    assert made.seeds == [4, 5, 6, 7]
    with pytest.raises(RunError, match="seed-4 holds a run with other settings: steps"):
        series(4, recipe=DIGITS.override(steps=7))


def test_held_out_photos_choose_by_the_accuracy_that_leads(made, series, tmp_path):
    made.outcome = lambda seed: {
        **{"test_accuracy": 0.8, "leading_accuracy": "balanced_accuracy"},
        "validation_accuracy": 1 - 0.1 * seed,
        "validation_balanced_accuracy": 0.1 * seed,
    }
    found = series(2)
    assert found["use"] == "seed-5"
    told = "Use seed-5, which answers held-out photos best, with a balanced accuracy of"
    assert f"{told} 50.00%." in page.sentences(found)[-1]
    text = (tmp_path / "report.md").read_text()
    assert "| Held-out balanced accuracy | Held-out accuracy |" in text
    assert "| 50.00% | 50.00% | 0.9 |" in text


@pytest.mark.parametrize(
    "missing", ["validation_accuracy", "leading_accuracy", "test_balanced_accuracy"]
)
def test_a_run_without_what_is_needed_is_refused(missing, made, series, tmp_path):
    made.outcome = lambda seed: {"test_accuracy": 0.1 * seed}
    series(2)
    report = tmp_path / "seed-5" / "report.json"
    results = json.loads(report.read_text())
    del results[missing]
    report.write_text(json.dumps(results))
    told = f"seed-5/report.json has no {missing}, so it was changed or is of an earlier"
    with pytest.raises(RunError, match=f"{told} version: remove it and give the"):
        series(2)


@pytest.mark.usefixtures("made")
def test_what_is_not_known_is_told(series):
    told = page.sentences(series(2, recipe=NOT_HELD_OUT))
    assert (
        "No photos were held out" in told[-1] and "use any, such as seed-4" in told[-1]
    )
    assert not any("same accuracy" in one for one in told)


def test_equal_runs_have_no_interval_of_seeds(made, series):
    made.outcome = lambda seed: {"test_accuracy": 0.5}
    first, second, last = page.sentences(series(2))
    assert first == "Test accuracy 50.00% with each of 2 seeds."
    assert "the seeds show no difference" in second and "50 test photos" in second
    assert "Use seed-4, which answers held-out photos as well as any other, 70" in last


def test_runs_with_other_test_photos_are_named(made, series):
    made.outcome = lambda seed: {"test_accuracy": 0.1 * seed, "test_examples": 10**seed}
    told = "The runs were tested on 10,000 to 100,000 photos, so their accuracies are"
    assert any(told in one for one in page.sentences(series(2)))


def test_searches_differ_by_the_clock_too(made, series):
    config = REPORT["config"]
    made.outcome = lambda seed: {
        **{"test_accuracy": 0.1 * seed, "config": config | {"minutes": 2.0}}
    }
    assert any("fits the minutes" in one for one in page.sentences(series(2)))


def test_uneven_classes_have_the_balanced_accuracy_first(made, series):
    made.outcome = lambda seed: {
        **{"test_accuracy": 0.1 * seed, "leading_accuracy": "balanced_accuracy"},
    }
    found = series(2)
    first, second, *_ = page.sentences(found)
    assert first.startswith("Test balanced accuracy 22.50%, the mean of 2 seeds")
    assert second.startswith("Test accuracy 45.00%")
    assert page.contents(found)["accuracy"] == "22.50% balanced accuracy"


def test_a_failed_run_loses_no_other(made, series, tmp_path):
    def outcome(seed):
        return RunError("no more disk") if seed == 5 else {"test_accuracy": 0.1 * seed}

    made.outcome = outcome
    with pytest.raises(RunError, match="1 of 2 runs failed; .* seed-5: no more disk"):
        series(2)
    assert (
        "how much a seed changes is not known" in (tmp_path / "report.md").read_text()
    )
    assert "| seed-5 | no more disk |" in (tmp_path / "report.md").read_text()
    made.outcome = lambda seed: {"test_accuracy": 0.1 * seed}
    assert series(2)["failed"] == {} and made.seeds == [4, 5, 5]


def test_a_signal_ends_the_series(made, series, tmp_path):
    made.outcome = lambda seed: Stopped("Stopped by a signal after step 3")
    with pytest.raises(Stopped):
        series(2)
    assert made.seeds == [4] and not (tmp_path / "report.json").exists()


def test_a_run_does_not_become_the_folder_of_others(made, series, tmp_path):
    RunDirectory(tmp_path).model.touch()
    with pytest.raises(RunError, match="is a run itself, and --seeds=2 .* --run_dir"):
        series(2)


@pytest.mark.slow
def test_the_page_fits_a_phone(made, series, tmp_path):
    series(2, command="keras-vit finetune --dataset=digits --seeds=2")
    assert chromium.cut_off(tmp_path / "report.html", tmp_path) == []

"""Studies: several runs, and what is concluded from them."""

import dataclasses
import json
import os
import random
import types

import keras
import pytest
import same_runs

from train.common.errors import Preempted, RunError, Stopped
from train.data.sources import DataError, vtab
from train.engine.metric_log import MetricLog
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.run import settings, training
from train.series.validation import best_validated
from train.study import kinds, studies
from train.study.kinds import compute, examples, positions
from train.study.options import Options

DIGITS = kinds.recipe_for("learning_rates", "digits")
VTAB = kinds.recipe_for("vtab", "vtab")


pytestmark = pytest.mark.usefixtures("empty_figures")


def read(folder):
    return json.loads((folder / "study.json").read_text())


REPORT = {"config": {"dataset": "digits", "model": "ViT-Ti_16"}, "parameters": 5}
REPORT |= {"per_class": [], "test_examples": 9}


class Trainings:
    """Stands in for `training.run`: leaves what a run leaves, made up.

    `outcome` of a recipe is an error, or the accuracies of test and validation, and
    the loss of validation.
    """

    def __init__(self):
        self.recipes = []
        self.outcome = lambda recipe: (0.5, 0.5, 1.0)
        self.more = lambda recipe: {}

    def __call__(self, recipe, *, run_dir, **_):
        keras.config.set_dtype_policy("mixed_bfloat16")
        random.random()
        self.recipes.append(recipe)
        found = self.outcome(recipe)
        if isinstance(found, Exception):
            raise found
        test, validation, loss = found
        log = MetricLog(run_dir / "metrics.jsonl")
        log.append(1, loss=1.0)
        log.append(recipe.steps, loss=1.0)
        report = REPORT | {"test_accuracy": test}
        if validation is not None:
            report |= {"validation_accuracy": validation, "validation_loss": loss}
            report |= self.more(recipe)
        (run_dir / "model.keras").touch()
        (run_dir / "report.json").write_text(json.dumps(report))


@pytest.fixture
def trainings(monkeypatch):
    found = Trainings()
    monkeypatch.setattr(training, "run", found)
    monkeypatch.setattr(keras.utils, "clear_session", lambda: None)
    return found


@pytest.fixture
def study(tmp_path):
    """Runs a study of learning rates, or another one, in a folder."""

    def run(*rates, name="learning_rates", recipe=DIGITS, folder=tmp_path, **options):
        if rates:
            recipe = dataclasses.replace(recipe, learning_rates=rates)
        before = random.getstate(), keras.config.dtype_policy()
        try:
            return studies.run(name, recipe, Options(**options), run_dir=folder)
        finally:
            # Random numbers and precision are left as they were found.
            assert (random.getstate(), keras.config.dtype_policy()) == before

    return run


def test_of_equal_rates_the_smallest_is_chosen():
    names = ("learning_rate", "validation_accuracy", "validation_loss")
    rows = [(0.001, 0.9, 0.5), (0.01, 0.9, 0.5), (0.1, 0.8, 0.4)]
    table = [dict(zip(names, row, strict=True)) for row in rows]
    assert best_validated(table)["learning_rate"] == 0.001


def test_learning_rates_are_chosen_on_held_out_images(trainings, study, tmp_path):
    # The best rate in validation is the worst in the test.
    validation = {0.01: (0.6, 1.0), 0.03: (0.8, 0.9), 0.1: (0.8, 0.7), 0.3: (0.7, 0.1)}

    def outcome(recipe):
        test = {0.1: 0.5 + recipe.seed / 10}.get(recipe.learning_rate, 0.9)
        if not recipe.validation_fraction:
            return test, None, None
        return test, *validation[recipe.learning_rate]

    trainings.outcome = outcome
    found = study(*validation)
    assert found["learning_rate"] == 0.1
    assert [row["validation_accuracy"] for row in found["rows"]] == [0.6, 0.8, 0.8, 0.7]
    accuracy = found["chosen"][0]["test_accuracy"]
    assert accuracy["values"] == pytest.approx([0.5, 0.6, 0.7])
    assert accuracy["mean"] == pytest.approx(0.6)
    assert accuracy["deviation"] == pytest.approx(0.1)
    # The final runs learn from all of train, as the paper's do.
    final = trainings.recipes[4:]
    settings = [(one.seed, one.validation_fraction, one.learning_rate) for one in final]
    assert settings == [(0, 0.0, 0.1), (1, 0.0, 0.1), (2, 0.0, 0.1)]
    page = (tmp_path / "study.md").read_text()
    assert "| 0.1 | 80.00% | 0.7000 | chosen |" in page and "at the end" not in page
    assert "| 0.1 | 60.00% ± 10.00% | 50.00%, 60.00%, 70.00% |" in page

    # Once more, nothing is run again; with another seed only what is new.
    count = len(trainings.recipes)
    assert study(*validation) == found
    assert len(trainings.recipes) == count
    study(*validation, seeds=4)
    assert [one.seed for one in trainings.recipes[count:]] == [3]
    with pytest.raises(RunError, match=r"rate-0.01 holds a run with other settings"):
        study(*validation, recipe=DIGITS.override(steps=7))


def test_runs_that_stop_early_hold_images_out_to_the_end(trainings, study):
    recipe = dataclasses.replace(DIGITS, early_stopping=2)
    study(0.01, 0.03, recipe=recipe)
    # Without images held out nothing could stop the final runs.
    assert trainings.recipes[-1].validation_fraction == DIGITS.validation_fraction


def test_rates_are_chosen_by_the_accuracy_that_leads(trainings, study, tmp_path):
    trainings.outcome = lambda recipe: (0.5, 1 - recipe.learning_rate, 1.0)
    trainings.more = lambda recipe: {
        "validation_balanced_accuracy": recipe.learning_rate
    }
    assert study(0.1, 0.3)["learning_rate"] == 0.3
    page = (tmp_path / "study.md").read_text()
    assert "| 0.3 | 30.00% | 1.0000 | chosen |" in page
    assert "Chosen by the validation balanced accuracy" in page


def test_a_run_without_its_validation_is_refused(trainings, study, tmp_path):
    study(0.1, 0.2, 0.3)
    report = tmp_path / "rate-0.3" / "report.json"
    results = json.loads(report.read_text())
    del results["validation_accuracy"]
    report.write_text(json.dumps(results))
    told = "rate-0.3/report.json has no validation_accuracy, so it was changed or is of"
    with pytest.raises(RunError, match=f"{told} an earlier version: remove it and"):
        study(0.1, 0.2, 0.3)


def test_a_failed_run_loses_no_other(trainings, study, tmp_path, capsys):
    def outcome(recipe):
        if recipe.learning_rate == 0.03:
            return RunError("The loss of step 3 is nan: lower --learning_rate.")
        return 0.5, 0.5, 1 / recipe.learning_rate

    trainings.outcome = outcome
    told = "1 of 6 runs failed.* rate-0.03: The loss of step 3 is nan"
    with pytest.raises(RunError, match=told):
        study(0.01, 0.03, 0.02)
    found = read(tmp_path)
    assert found["learning_rate"] == 0.02 and list(found["failed"]) == ["rate-0.03"]
    assert "| rate-0.03 | The loss of step 3" in (tmp_path / "study.md").read_text()
    assert "run 6 of 6: chosen-0.02-seed2" in capsys.readouterr().out
    # The same command tries it again, and nothing else.
    count = len(trainings.recipes)
    trainings.outcome = lambda recipe: (0.5, 0.5, 1 / recipe.learning_rate)
    found = study(0.01, 0.03, 0.02, seeds=1)
    assert found["chosen"][0]["test_accuracy"]["deviation"] is None
    assert [one.learning_rate for one in trainings.recipes[count:]] == [0.03, 0.03]


@pytest.mark.parametrize("error", [Preempted, Stopped])
def test_a_signal_ends_the_study(trainings, study, tmp_path, error):
    stop = error("Stopped by a signal after step 3, which is saved")
    trainings.outcome = lambda one: stop if one.learning_rate == 0.03 else (0.5, 0.5, 1)
    with pytest.raises(error, match="Stopped by"):
        study(0.01, 0.03, 0.1)
    assert len(trainings.recipes) == 2 and not (tmp_path / "study.json").exists()


def test_the_first_run_fails_for_all(trainings, study):
    trainings.outcome = lambda recipe: DataError("no such data")
    with pytest.raises(RunError, match="no such data"):
        study()
    assert len(trainings.recipes) == 1


def test_vtab(trainings, study, tmp_path):
    accuracies = {f"vtab/{task}": n / 20 for n, task in enumerate(vtab.TASKS)}
    trainings.outcome = lambda recipe: (accuracies[recipe.dataset], None, None)
    found = study(name="vtab", recipe=VTAB)
    # 0 to 6 natural, 7 to 10 specialized, 11 to 18 structured.
    means = {"natural": 3, "specialized": 8.5, "structured": 14.5, "mean": 9}
    means = {group: mean / 20 for group, mean in means.items()}
    assert found["means"] == pytest.approx(means)
    counts = {"natural": 7, "specialized": 4, "structured": 8, "mean": 19}
    assert found["tasks"] == counts
    assert found["is_benchmark"]
    assert {one.steps for one in trainings.recipes} == {2500}
    page = (tmp_path / "study.md").read_text()
    assert "| all tasks | 19 | 45.00% |" in page and "not the benchmark" not in page
    # On images held out it is another number, and without all data.
    trainings.outcome = lambda recipe: (accuracies[recipe.dataset], 0.5, 1.0)
    held_out = VTAB.override(validation_fraction=0.2)
    found = study(name="vtab", recipe=held_out, folder=tmp_path / "b")
    assert not found["is_benchmark"]
    trainings.recipes.clear()
    known = {"vtab/dtd": (0.25, None, None), "vtab/resisc45": (0.75, None, None)}
    trainings.outcome = lambda recipe: known.get(
        recipe.dataset, DataError(f"{recipe.dataset} is not prepared")
    )
    with pytest.raises(RunError, match="34 of 38 runs failed"):
        study(name="vtab", recipe=VTAB, seeds=2, folder=tmp_path / "c")
    # Data that are missing are looked for once.
    assert len(trainings.recipes) == 17 + 2 * 2
    found = read(tmp_path / "c")
    assert found["means"] == {"natural": 0.25, "specialized": 0.75, "mean": 0.5}
    assert found["tasks"]["mean"] == 2 and not found["is_benchmark"]
    assert "This is not the benchmark's mean" in (tmp_path / "c/study.md").read_text()
    with pytest.raises(RunError, match="No task of VTAB has its data here. vtab/dmlab"):
        study(name="vtab", recipe=VTAB, tasks=("dmlab",), folder=tmp_path / "none")


def test_recipes():
    assert kinds.recipe_for("examples", "digits") == DIGITS
    assert kinds.recipe_for("positions", "photos").model == "ViT-Ti_16"
    own = kinds.recipe_for("compute", "photos", "augreg_imagenet2012_strong2")
    assert own.optimizer == "adam" and own.dataset == "photos"
    assert kinds.recipe_for("learning_rates", "x", "imagenet2012").weights
    assert kinds.recipe_for("compute", "x", "imagenet2012").weights is None
    given = {"learning_rates": ["0.1", "3e-3", "0.1"]}
    rates = DIGITS.override(**settings.overrides(given, Recipe)).learning_rates
    assert rates == (0.1, 0.003)


def test_points():
    points = positions.points_of(DIGITS, Options(positions=kinds.POSITIONS))
    embeddings = [point.recipe.model.position_embedding for point in points]
    learned = ["learned", "learned"]
    assert embeddings == ["none", "learned", "2d", "relative", *learned, "2d", "2d"]
    # The released dropout of a model goes with its name, which is lost.
    large = DIGITS.override(model="ViT-L_16", image_size=64)
    assert positions.points_of(large, Options())[0].recipe.dropout == 0.1

    # The few-shot accuracy is that of the paper's figures.
    assert Options().shots == 5
    points = examples.points_of(DIGITS, Options(), 1293)
    assert [point.recipe.train_examples for point in points] == [129, 388, 1293]
    options = Options(models=("ViT-B_16", "ViT-B_32"), subsets=("7",))
    points = examples.points_of(DIGITS, options, 1293)
    assert [point.recipe.model for point in points] == ["ViT-B_16", "ViT-B_32"]

    points = compute.points_of(DIGITS, Options(step_counts=("20", "10")))
    assert [point.label for point in points] == [
        f"width-{width}-{steps}-steps" for width in (24, 48, 96) for steps in (10, 20)
    ]
    assert [point.recipe.model.mlp_dim for point in points[::2]] == [48, 96, 192]
    options = Options(models=("R50+ViT-B_16", "ViT-B_32"), smoke=True)
    small = compute.points_of(DIGITS.smoke(), options)
    sizes = [(one.recipe.image_size, one.recipe.model.hidden_size) for one in small]
    assert sizes == [(32, 32), (64, 32)]


BIT = DIGITS.override(model="BiT-R50x1")
RELEASED = DIGITS.override(weights="imagenet21k")


# The others are in tests/train/common/test_wrong_values.py.
@pytest.mark.parametrize(
    ("name", "recipe", "options", "message"),
    [
        ("examples", DIGITS, {"subsets": ("1294",)}, "no part of the 1,293 training"),
        ("positions", BIT, {}, "BiT-R50x1 is not a Vision Transformer"),
        ("positions", RELEASED, {}, "the weights imagenet21k: pass --weights=none"),
        ("vtab", DIGITS, {}, "--dataset=digits: pass --dataset=vtab"),
        ("learning_rates", VTAB, {}, "pass a --validation_fraction"),
    ],
)
def test_what_cannot_be_studied(study, tmp_path, name, recipe, options, message):
    with pytest.raises(RunError) as raised:
        study(name=name, recipe=recipe, folder=tmp_path / "run", **options)
    assert message in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_a_study_is_alone_in_its_directory_and_of_one_machine(study, tmp_path):
    directory = RunDirectory(tmp_path)
    # Every host is told, even while the first of them holds the directory.
    hosts = types.SimpleNamespace(has_hosts=True)
    for machines, told in (
        (None, f"process {os.getpid()} .*another --run_dir"),
        (hosts, "A study is made by one process"),
    ):
        with directory.locked(), pytest.raises(RunError, match=told):
            studies.run("positions", DIGITS, run_dir=directory.path, devices=machines)
    for text, told in (
        ('{"study": "other"}', "holds the study other: pass another"),
        ("{}", "study.json is damaged .*'study'.* remove it"),
    ):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(RunError, match=told):
            study()


def test_arithmetic_of_training():
    # Two operations for a product, and as much as two passes backward.
    assert compute.training_flops(5, 7) == 2 * 3 * 5 * 7
    assert compute.unit_of([10**17, 2235 * 10**17]) == (10**18, "exaFLOPs")
    assert compute.unit_of([5]) == (10**9, "gigaFLOPs")


@pytest.mark.soak
def test_studies_as_a_user(forks, tmp_path):
    """Runs with others before them are to the bit as those alone."""
    # These would differ if anything of one run came into the next.
    random = ("--dropout_rate=0.1", "--mixup=0.2")

    def run(*words):
        return forks.output(tmp_path, *words, "--dataset=digits", "--smoke")

    def study(name, *flags):
        return run("train.study", f"--study={name}", f"--run_dir={name}", *flags)

    run("train.finetune", *random, "--run_dir=alone")
    alone = tmp_path / "alone"
    rates = ("--learning_rates=0.01,0.1", "--seeds=1", *random)
    output = study("learning_rates", *rates)
    assert "run 3 of 3: chosen-" in output and "page " in output
    same_runs.assert_same_bits(alone, tmp_path / "learning_rates/rate-0.1")
    assert "--learning_rates=0.01,0.1" in read(tmp_path / "learning_rates")["command"]
    assert "| 5-shot accuracy |" in study("examples", "--subsets=50,100%", *random)
    folder = tmp_path / "examples"
    rows = read(folder)["rows"]
    assert [row["examples"] for row in rows] == [50, 256]
    # Before it were another run and a few-shot probe.
    same_runs.assert_same_bits(alone, folder / rows[1]["runs"][0])
    probe = folder / rows[0]["runs"][0] / "few_shot-digits-5" / "few_shot.json"
    mean = json.loads(probe.read_text())["rows"][0]["mean"]
    assert rows[0]["few_shot_accuracy"]["mean"] == mean
    output = study("positions", "--positions=none,relative", "--shots=0")
    assert "| relative | 19,370 |" in output
    assert "gigaFLOPs" in study("compute", "--step_counts=5", "--shots=0")
    for row in read(tmp_path / "compute")["rows"]:
        assert row["flops"] == 6 * row["multiply_adds"] * 5 * 16

"""A whole search: a tiny network of random weights, digits, and a clock of its own."""

import itertools
import json

import keras
import numpy as np
import pytest

from keras_vit import ViTConfig
from train import recipes
from train.common.errors import RunError
from train.data import pipeline, run_data, sources
from train.data.options import DEFAULTS
from train.data.sources.subset import limited
from train.engine.metric_log import MetricLog
from train.models import loaded_model
from train.models.averaging import members
from train.models.run_directory import RunDirectory
from train.run import training
from train.scoring import held_out, kept_test
from train.search import (
    backbones,
    probing,
    searching,
    seeds,
    time_plan,
    training_stage,
)
from train.search.options import Options
from train.search.task import Found

TINY = ViTConfig(hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, patch_size=8)
RECIPE = (
    recipes.for_dataset("digits").smoke().override(model=TINY, image_size=32, seed=1)
)


@pytest.fixture
def searched(tmp_path, empty_figures):
    """Searches in so many minutes; between two looks at the clock some time passes."""

    def search(minutes, seconds=1.0, **options):
        clock = itertools.count(step=seconds).__next__
        options = Options(minutes, **options)
        return searching.run(RECIPE, options, run_dir=tmp_path / "run", clock=clock)

    return search


def accuracy_of(path):
    """Returns the share of the test's photos that a saved model answers correctly."""
    model = loaded_model.load(path).model
    source = training.load_source(RECIPE, DEFAULTS, lambda line: None)
    size = model.input_shape[1:3]
    batches = pipeline.evaluation_batches(source.test, image_size=size, batch_size=64)
    return np.mean(
        np.concatenate(
            [
                keras.ops.convert_to_numpy(model(images)).argmax(axis=1) == labels
                for images, labels in batches
            ]
        )
    )


def test_too_little_time_leaves_the_probes(searched, tmp_path, capsys):
    results = searched(0.5, seconds=0.1)
    run = RunDirectory(tmp_path / "run")
    assert "No training: " in capsys.readouterr().out
    assert "steps" not in results and results["operations_of_one_network"] == 1
    assert not MetricLog(run.metrics).records()
    report = json.loads(run.results.read_text())
    assert report["budget_seconds"] == 30.0 and report["config"]["minutes"] == 0.5
    # No training has settings.
    of_training = {"steps", "learning_rate", "epochs", "crop", "batch_size"}
    assert not of_training & (report["config"].keys() | report.keys())
    examples = [point["train_examples"] for point in report["learning_curve"]]
    assert examples == sorted(examples) and examples[-1] == report["train_examples"]
    assert any("training photos instead of" in told for told in report["verdict"])
    assert "test_probe_accuracy" not in report
    # One network of ours, whose head is the probes'.
    model = loaded_model.load(str(run.path)).model
    assert model.config == TINY or model.description is not None
    assert model.get_layer("head").class_names == tuple("0123456789")
    page = run.report.read_text()
    assert "## What was tried" in page and "LDA, class token and patches |" in page
    assert page.count("search.png") == 1
    # The same command tests and reports again what it found.
    again = searched(0.5, seconds=0.1)
    assert again["test_accuracy"] == results["test_accuracy"]
    with pytest.raises(RunError, match="other settings: minutes 0.5 .now 1"):
        searched(1)


@pytest.mark.usefixtures("empty_figures")
def test_searches_of_several_seeds_share_minutes_and_features(tmp_path, monkeypatch):
    monkeypatch.setattr(time_plan, "LEAST_SECONDS", 1e9)
    computed = []
    features_in = probing.features_in
    monkeypatch.setattr(
        probing,
        "features_in",
        lambda *args, **more: computed.append(1) or features_in(*args, **more),
    )
    clock = itertools.count().__next__
    with pytest.raises(RunError, match="--minutes=1 is too short for 2 .*--minutes=2"):
        seeds.run(RECIPE, 2, Options(1.0), run_dir=tmp_path, clock=clock)
    found = seeds.run(RECIPE, 2, Options(3.0), run_dir=tmp_path, clock=clock)
    first, second = (tmp_path / f"seed-{seed}" for seed in (1, 2))
    assert len(computed) == 1
    assert (first / "features").exists() and not (second / "features").exists()
    of_first, of_second = (
        json.loads((run / "search.json").read_text()) for run in (first, second)
    )
    measured = of_first["facts"]["features 0"]
    # All try the same, and are tested on the same photos.
    for name in ("features 0", "probes 0", "larger", "tested"):
        assert of_second["facts"][name] == of_first["facts"][name]
    # Their seconds count in both, so that a training has as many.
    assert of_second["used_seconds"] > measured["seconds"] > 0
    assert found["config"]["minutes"] == 1.5
    # The networks have random weights, and so other features.
    assert len([*(first / "features").iterdir()]) == 2
    report = json.loads((first / "report.json").read_text())
    assert found["is_chosen"]
    # One that was killed after its first answer goes on.
    del of_second["facts"]["seconds"]
    (second / "search.json").write_text(json.dumps(of_second))
    seeds.run(RECIPE, 2, Options(3.0), run_dir=tmp_path, clock=clock)
    again = json.loads((second / "search.json").read_text())["facts"]
    assert again["seconds"] > 0 and again["tested"] == of_first["facts"]["tested"]
    assert 0 <= report["validation_accuracy"] <= 1 and report["validation_loss"] > 0


def test_searches_of_several_seeds_share_the_start_and_the_data(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(searching, "run", lambda *_, **given: made.append(given))
    monkeypatch.setattr(
        seeds.series,
        "run",
        lambda recipe, count, *, make, **_: [make(recipe) for _ in range(count)],
    )
    clock = itertools.count(30.0).__next__
    seeds.run(RECIPE, 2, Options(), run_dir=tmp_path, started=10.0, clock=clock)
    first, second = made
    assert [one["started"] for one in made] == [31.0 - 10, 32.0 - 10]
    assert first["source"] is second["source"]
    assert first["features_of"] == second["features_of"] == tmp_path / "seed-1"


def test_a_training_that_is_left_out_is_not_what_the_report_is_of(tmp_path):
    log = MetricLog(tmp_path / "metrics.jsonl")
    log.append(9, loss=1.0)
    task, directory = Found(RECIPE, Options(2.0)), RunDirectory(tmp_path)
    task.source = sources.load("digits", log=lambda line: None)
    task.network = keras.Sequential([keras.Input((32, 48, 3)), keras.layers.Flatten()])
    settings = task.written_settings(directory)
    assert task.log_of_training(directory) is None
    results = task.training_results(directory)
    of_training = {"steps", "training_only", "trained_parameters"}
    assert not of_training & (results.keys() | settings.keys())
    assert results["loss_function"] == "softmax cross-entropy"
    assert settings["image_size"] == (32, 48) and settings["minutes"] == 2.0
    task.stage = RECIPE.override(batch_size=8, steps=30, learning_rate=0.5)
    settings = task.written_settings(directory)
    assert (settings["steps"], settings["learning_rate"]) == (9, 0.5)
    assert task.training_results(directory)["steps"] == 9
    assert task.log_of_training(directory).records()


@pytest.mark.slow
def test_training_joins_where_held_out_photos_say_so(
    searched, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(training_stage, "share_of", lambda *_, **__: 0.5)
    # Adam takes the steps, which fits neither the recipe of digits nor many epochs.
    monkeypatch.setattr(Options, "may_choose_optimizer", lambda self, recipe: True)
    monkeypatch.setattr(training_stage, "_FEW_EPOCHS", float("inf"))
    stopped = RunError("as if it had been killed")

    def stop(*_):
        raise stopped

    with monkeypatch.context() as patch:
        patch.setattr(training_stage, "_joined", stop)
        with pytest.raises(RunError, match="as if"):
            searched(3)
    printed = capsys.readouterr().out
    assert "first answer after" in printed
    taken = MetricLog(tmp_path / "run" / "metrics.jsonl").series("loss")[0][-1]
    used = json.loads((tmp_path / "run" / "search.json").read_text())["used_seconds"]

    built = []
    original = training.built
    monkeypatch.setattr(
        training,
        "built",
        lambda task, *args: built.append(task) or original(task, *args),
    )
    results = searched(3)
    printed = capsys.readouterr().out
    assert [type(task) for task in built] == [training_stage._FromProbe]
    assert "first answer after" not in printed
    assert f"the run has used its time, after step {taken}" in printed
    # The report of a run that goes on says what was trained, too.
    assert "All weights are trained at 32x32 for about" in printed
    assert "epochs by Adam, whose rate is times 0.75" in printed
    assert "with LDA as the head to begin with" in printed
    assert results["steps"] == taken > 20 and results["networks"] == 2
    # The first stopped as time was left for its test and report.
    assert 120 < used < 180 and used < results["seconds"]
    model = loaded_model.load(str(tmp_path / "run")).model
    assert len(members(model)) == 2 and model.input_shape == (None, 32, 32, 3)
    # The known features were handed over, and are those that the model computes.
    kept = held_out.read(tmp_path / "run" / "held_out.npz")
    assert kept.known.shape[1] == 20
    source = run_data.limit(sources.load("digits"), None, RECIPE.test_examples)
    tested = limited(limited(source.test, results["test_examples"]), held_out.KNOWN)
    features = kept_test.features_by(model, source)(tested)
    np.testing.assert_allclose(
        held_out.distances_to(kept.known, features), kept.distances, atol=1e-3
    )
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["operations_of_one_network"] == pytest.approx(2, abs=0.2)
    assert report["config"]["steps"] == taken and report["config"]["crop"] == "shift"
    assert "warmup_steps" not in report["config"]
    assert 0 < report["test_probe_accuracy"] <= 1
    assert any("A linear probe of the frozen model" in one for one in report["verdict"])


@pytest.mark.parametrize(
    ("share", "told"), [(0.0, "is left out"), (0.5, "gets 50% of the answer")]
)
def test_a_second_backbone_joins_or_is_left_out(
    share, told, searched, monkeypatch, capsys
):
    other = RECIPE.override(model=TINY, seed=2)
    monkeypatch.setattr(searching, "_recipes", lambda search: [RECIPE, other])
    monkeypatch.setattr(backbones, "share_of", lambda *logits: share)
    results = searched(0.5, seconds=0.1)
    assert f"{told}: on held-out photos its log loss is" in capsys.readouterr().out
    assert results["networks"] == (2 if share else 1)
    # Its networks have the random weights that the probes were fitted to.
    assert accuracy_of(results["model"]) == results["test_accuracy"]

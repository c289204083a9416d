"""The budget of a whole search on a clock that only what it does moves on."""

import contextlib
import dataclasses
import itertools
import math
import re
import types

import keras
import numpy as np
import pytest

from train import recipes
from train.data.sources import subset
from train.data.sources.splits import Source, in_memory
from train.scoring import probes
from train.scoring.features import Features
from train.search import (
    backbones,
    larger,
    options,
    probing,
    repeating,
    reporting,
    searching,
    training_stage,
)
from train.search.budget import FILE, Budget
from train.search.options import Options
from train.search.state import State
from zoo.network import pair

CLASSES = 5
RECIPE = recipes.for_dataset("photos/").override(model="ViT-Ti_16", image_size=224)


@dataclasses.dataclass
class Machine:
    """A machine on which everything takes a known time, in seconds.

    From `slower_from` on it takes twice as long. At `killed_at` the process ends.
    """

    start: float = 8.0
    build: float = 1.5
    compiling: float = 4.0
    converting: float = 0.0
    photo: float = 1 / 60
    probe: float = 0.5
    compiling_step: float = 12.0
    report: float = 10.0
    slower_from: float = np.inf
    killed_at: float = np.inf
    # The longer side of its photos, and the accuracy that leads.
    side: int = 224
    leading: str = "accuracy"
    now: float = 0.0
    # The name of the search on its disk.
    name: str = dataclasses.field(default_factory=map(str, itertools.count()).__next__)
    # The photos of each view.
    features: dict = dataclasses.field(default_factory=dict)
    logits: set = dataclasses.field(default_factory=set)
    schedule: int = 0
    steps: int = 0

    def clock(self):
        return self.now

    def spend(self, seconds):
        """Lets some time pass, in small parts."""
        parts = max(int(10 * seconds), 1)
        for _ in range(parts):
            self.now += seconds / parts * (2 if self.now >= self.slower_from else 1)
        if self.now >= self.killed_at:
            raise KeyboardInterrupt


def split_of(name, count, first=0):
    numbers = np.arange(first, first + count)
    return in_memory(name, numbers, numbers % CLASSES, None, str)


def source_of(photos, judges=50, tested=150):
    train, rest = split_of("train", photos), split_of("validation", judges, 10**6)
    names = tuple("abcde")
    return Source("photos/", names, train, rest, split_of("test", tested, 2 * 10**6))


class Known:
    """Numbers for photos, each of which takes its time once."""

    def __init__(self, machine, seconds, compiling, size, known):
        self.machine, self.seconds, self.compiling = machine, seconds, compiling
        self.size, self.known = size, known

    def rows(self, split):
        numbers, labels = split.arrays
        if new := len({*numbers.tolist()} - self.known):
            self.machine.spend(self.compiling)
            self.compiling = 0.0
            self.machine.spend(new * self.seconds)
            if new > 200:
                self.machine.spend(self.machine.converting)
            self.known |= {*numbers.tolist()}
        rng = np.random.default_rng(int(numbers[0]))
        return rng.normal(0, 1, (len(labels), self.size)) + np.eye(self.size)[labels]


@pytest.fixture
def searched(tmp_path, monkeypatch, capsys):
    """A function that searches on a machine; again on the same it goes on.

    `after` is the machine of a search with another seed.
    """

    def search(machine, minutes, source, after=None, seeds=1, **given):
        folder = tmp_path / machine.name
        folder.mkdir(exist_ok=True)

        def built(recipe, *_):
            machine.spend(machine.build)
            shape = (None, *pair(recipe.image_size, "image_size"), 3)
            return types.SimpleNamespace(input_shape=shape, name="ViT", layers=[])

        class Extractor:
            def __init__(self, network, **_):
                self.size = network.input_shape[1:3]
                self.seconds = math.prod(self.size) / 224**2 * machine.photo
                self.views = {}

            def __call__(self, split, cache, mirrored=False, through=None):
                view = self.size, mirrored, through or self.size
                if view not in self.views:
                    compiling = 0.0 if self.views else machine.compiling
                    known = machine.features.setdefault(view, set())
                    parts = (machine, self.seconds, compiling, 8, known)
                    self.views[view] = Known(*parts)
                rows = self.views[view].rows(split).astype("float32")
                return Features(split.labels(), rows, rows)

        class Loop:
            def __init__(self, run, pace):
                self.run, self.pace = run, pace

            def train(self):
                schedule = keras.Variable(machine.schedule, dtype="int32")
                optimizer = types.SimpleNamespace(iterations=schedule)
                machine.spend(machine.compiling_step)
                recipe = self.run.recipe
                area = recipe.image_size[0] * recipe.image_size[1] / 224**2
                seconds = 3.5 * area * machine.photo * recipe.batch_size
                for step in itertools.count(machine.steps + 1):
                    if self.pace.is_over(optimizer):
                        break
                    machine.spend(seconds)
                    machine.steps = step
                    schedule.assign_add(1)
                    if step % recipe.eval_every == 0:
                        judges = self.run.source.validation.num_examples
                        machine.spend(area * machine.photo * judges)
                    if step % self.pace.every == 0:
                        self.pace.keep(optimizer)
                    machine.schedule = int(schedule)

        def run_of(task, source, *_):
            machine.spend(machine.build)
            area = task.recipe.image_size[0] * task.recipe.image_size[1] / 224**2
            parts = (machine, area * machine.photo, machine.compiling, CLASSES)
            return types.SimpleNamespace(
                recipe=task.recipe,
                source=source,
                task=types.SimpleNamespace(network=None),
                image_size=task.recipe.image_size,
                trainer=types.SimpleNamespace(averaged=contextlib.nullcontext),
                known=Known(*parts, machine.logits),
            )

        def report(search, answer, count, best, _):
            tested = subset.limited(search.test, count)
            reporting.measured_logits(search, answer, tested)
            begun = machine.now
            # The known features are handed over, and those of photos of the training.
            assert answer.features(tested).shape[0] == count
            answer.features(subset.limited(best.photos, 250))
            machine.spend(len(answer.members) * machine.build + machine.report)
            search.budget.keep(report_seconds=machine.now - begun)
            rows = [one.name for one in search.tried]
            return {
                **{"test_accuracy": 0.9, "test_balanced_accuracy": 0.8},
                "leading_accuracy": machine.leading,
                **{"tested": count, "rows": rows},
            }

        def out_of_fold(kind, rows, labels, classes, groups=None):
            machine.spend(machine.probe)
            return 3 * np.eye(classes)[labels] + rows[:, :classes]

        def fitted(kind, rows, labels, classes, groups=None):
            return probes.Linear(np.eye(rows.shape[1], classes), np.zeros(classes))

        with monkeypatch.context() as patch:
            patch.setattr(backbones.building, "model", built)
            patch.setattr(backbones, "Extractor", Extractor)
            patch.setattr(backbones.copies, "groups", lambda split: split.arrays[0])
            patch.setattr(probing.probes, "out_of_fold_logits", out_of_fold)
            patch.setattr(probing.probes, "fit", fitted)
            patch.setattr(training_stage.training, "built", run_of)
            patch.setattr(training_stage.loop, "TrainingLoop", Loop)
            patch.setattr(
                training_stage,
                "logits_of",
                lambda run, split, cache, through: run.known.rows(split),
            )
            patch.setattr(searching, "report", report)
            patch.setattr(larger, "_longer_side", lambda photos: machine.side)
            began = machine.now
            budget = Budget(60 * minutes, folder / FILE, began, machine.clock)
            if after is not None:
                machine.features = after.features
                budget.take_over(tmp_path / after.name / FILE)
            machine.spend(machine.start)
            task = types.SimpleNamespace(
                recipe=RECIPE,
                options=Options(minutes, **given),
                steps=lambda directory: machine.steps,
            )
            strategy = types.SimpleNamespace(scope=contextlib.nullcontext)
            devices = types.SimpleNamespace(strategy=strategy)
            directory = types.SimpleNamespace(path=folder)
            shared = (task, source, directory, devices, budget, folder, "")
            state = State(*shared, seeds=seeds)
            results = searching.results(state)
        return types.SimpleNamespace(
            seconds=budget.used,
            facts=budget.facts,
            trained=machine.steps,
            tested=results["tested"],
            rows=results["rows"],
            told="\n".join(state.reasons),
            printed=capsys.readouterr().out,
        )

    return search


LIMIT = 1.1


@pytest.mark.parametrize("photos", [100, 1_000, 20_000])
@pytest.mark.parametrize("minutes", [1.0, 2.0, 5.0])
def test_a_budget_holds(minutes, photos, searched):
    found = searched(Machine(), minutes, source_of(photos, photos // 10))
    assert found.seconds <= LIMIT * 60 * minutes
    # Training is what there is time for, and it uses the time.
    assert (found.trained > 0) == (minutes >= (2.0 if photos < 10_000 else 5.0))
    if found.trained:
        assert found.seconds > 0.8 * 60 * minutes
    assert found.tested == 150


@pytest.mark.parametrize("photos", [25, 100, 450, 1_000])
@pytest.mark.parametrize("minutes", [0.8, 2.0, 5.0])
def test_it_holds_with_larger_images_and_mirrored_photos(minutes, photos, searched):
    found = searched(Machine(side=300), minutes, source_of(photos, photos // 10))
    assert found.seconds <= LIMIT * 60 * minutes
    facts = found.facts["features 0"]
    assert facts["mirrored"] == (1.1 * photos / 60 <= min(0.05 * 60 * minutes, 10))
    seconds = 1.5 + 4.0 + 1.1 * photos / 60 * (288 / 224) ** 2
    is_tried = "features 1" in found.facts
    # Where nothing is trained all the time that is left may be theirs.
    if seconds <= 0.1 * 60 * minutes or found.trained:
        assert is_tried == (seconds <= 0.1 * 60 * minutes)
    if is_tried:
        assert "ViT-Ti_16 at 288x288 gets 50% of the answer" in found.told
        # The first answer does not wait for it.
        before, _, after = found.printed.partition("first answer after")
        assert not after or ("288" in after and "288" not in before)
        assert found.told.count("The answers of these probes are averaged: ") == 2


@pytest.mark.parametrize(
    ("minutes", "photos", "judges"), [(1.0, 450, 45), (1.0, 300, 9), (5.0, 3_000, 9)]
)
def test_without_a_training_larger_images_have_the_time_that_is_left(
    minutes, photos, judges, searched
):
    machine = Machine(side=300, build=1.0, photo=1 / 100)
    found = searched(machine, minutes, source_of(photos, judges))
    assert "No training" in found.told
    assert "ViT-Ti_16 at 288x288 gets 50% of the answer" in found.told
    # They take more than a tenth.
    used = found.facts["features 1"]["seconds"]
    assert 0.1 * 60 * minutes < used and found.seconds <= LIMIT * 60 * minutes


@pytest.mark.parametrize(("start", "is_tried"), [(8.0, True), (30.0, False)])
def test_larger_images_leave_time_for_the_end(start, is_tried, searched):
    machine = Machine(side=300, build=1.0, start=start)
    found = searched(machine, 1.0, source_of(25, 2))
    assert ("features 1" in found.facts) == is_tried
    assert found.seconds <= LIMIT * 60


@pytest.mark.parametrize("share", [0.1, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("minutes", [2.0, 5.0])
def test_a_machine_that_becomes_half_as_fast_keeps_it(minutes, share, searched):
    machine = Machine(slower_from=share * 60 * minutes)
    assert searched(machine, minutes, source_of(450)).seconds <= LIMIT * 60 * minutes


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_a_training_that_is_left_out_is_in_the_report(share, searched, monkeypatch):
    monkeypatch.setattr(training_stage, "share_of", lambda *_, **__: 0.0)
    # At the end the time left is less than a report takes.
    machine = Machine(slower_from=share * 120, report=20.0)
    found = searched(machine, 2.0, source_of(100, tested=20_000))
    assert found.trained and found.rows[-1] == "All weights, trained at 160x160"
    assert found.seconds <= LIMIT * 120
    # The report has as many test photos as the first one.
    assert found.tested >= found.facts["first_tested"] >= 100


@pytest.mark.parametrize(
    "slow",
    [{"report": 30.0}, {"compiling": 15.0, "compiling_step": 45.0}, {"start": 40.0}],
)
@pytest.mark.parametrize("minutes", [3.0, 5.0])
def test_a_slow_part_is_made_up_for(minutes, slow, searched):
    found = searched(Machine(**slow), minutes, source_of(450))
    assert found.seconds <= LIMIT * 60 * minutes
    assert found.tested == 150 and (found.trained or minutes == 3)


@pytest.mark.parametrize("minutes", [1.0, 1.5, 2.0, 3.0])
def test_a_machine_of_half_the_speed_leaves_out_in_order(minutes, searched):
    """Another process computes on both cores."""
    slow = Machine(slower_from=0.0)
    found = searched(slow, minutes, source_of(450))
    plain = searched(Machine(), minutes, source_of(450))
    assert found.seconds <= LIMIT * 60 * minutes
    assert found.facts["features 0"]["photos"] <= plain.facts["features 0"]["photos"]
    assert found.trained <= plain.trained


def test_the_first_answer_shows_how_fast_photos_come_once_converted(searched):
    machine = Machine(photo=0.1, compiling=6.0, converting=40.0, report=16.0)
    found = searched(machine, 5.0, source_of(450))
    assert found.facts["features 0"]["speed"] < 6 and found.facts["photo_scale"] == 0.5
    assert found.trained and found.seconds <= LIMIT * 300


def test_a_first_answer_has_the_accuracy_that_leads(searched):
    for leading, told in (("accuracy", 90), ("balanced_accuracy", 80)):
        found = searched(Machine(leading=leading), 2.0, source_of(100))
        name = leading.replace("_", " ")
        assert f" s: test {name} {told}.00% on 100 images" in found.printed


def test_what_cannot_fit_is_said_and_the_least_is_done(searched):
    found = searched(Machine(), 0.1, source_of(450))
    assert found.facts["features 0"]["photos"] == 64 and found.facts["probes 0"] == 1
    assert (found.tested, found.trained) == (100, 0)
    assert "The time is short: 16 of 6 s have gone into the start" in found.told
    assert "This probe answers: Ridge" in found.told
    assert "No training: 0 s would be left" in found.told
    assert "--minutes=0.1 was too short: pass --minutes=0.5\n" in found.printed
    enough = searched(Machine(), 3.0, source_of(450))
    assert " short" not in enough.told + enough.printed
    assert "The answers of these probes are averaged: " in enough.told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "--minutes=2 was too short: pass --minutes=2.5"),
        (
            {"is_default": True},
            "The time chosen for 100 photos, 2 minutes, is too short on this machine: "
            "pass --minutes=2.5",
        ),
        ({"seeds": 2}, "That was too short: pass --minutes=5 for all 2 seeds"),
    ],
)
def test_what_was_too_short_is_named(more, told):
    search = types.SimpleNamespace(
        options=Options(2.0),
        budget=types.SimpleNamespace(used=149.0),
        source=source_of(100),
        **{"seeds": 1, "is_default": False, **more},
    )
    assert searching._too_short(search) == told


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_search_is_repeated_without_the_models_that_do_not_help(
    share, searched, monkeypatch
):
    monkeypatch.setattr(backbones, "share_of", lambda *logits: share)
    source = source_of(100, judges=5)
    found = searched(Machine(), 2.0, source, models=("ViT-S_16",))
    [again] = [line for line in found.told.split("\n") if "To repeat" in line]
    models = " --models=ViT-S_16" if share else ""
    assert f" --minutes=2{models} --run_dir=" in again
    assert "--model=ViT-Ti_16" in again
    short = searched(Machine(), 0.2, source, models=("ViT-S_16",))
    assert "was too short: pass" in short.printed and "To repeat" not in short.told


def backbone(recipe, share=1.0):
    tried = types.SimpleNamespace(share=share)
    return types.SimpleNamespace(
        recipe=recipe, probed=types.SimpleNamespace(tried=[tried])
    )


def repeated(recipe, command="", stage=None, trained=0.0, from_probe=False, **options):
    facts = {"training": {"from_probe": True}} if from_probe else {}
    search = types.SimpleNamespace(
        options=Options(2.0, **options),
        command=command,
        stage=stage,
        trained=trained,
        budget=types.SimpleNamespace(facts=facts),
        directory=types.SimpleNamespace(path="run"),
        task=types.SimpleNamespace(steps=lambda directory: 40),
    )
    best = backbone(recipe)
    return repeating.command(search, best, [best]).partition("finetune ")[2]


def test_what_repeats_a_search_has_all_flags_that_change_its_result():
    plain = "--dataset=photos/ --model=ViT-Ti_16 --weights=augreg-imagenet21k "
    assert repeated(RECIPE) == f"{plain}--minutes=2 --run_dir=run-again"
    given = ("crop", "layer_decay")
    again = repeated(RECIPE, given=given)
    assert "--crop=inception --layer_decay=1.0 --minutes=2" in again
    recipe = RECIPE.override(layer_decay=0.7)
    assert "net21k --layer_decay=0.7 --minutes=2" in repeated(recipe, given=given[1:])
    changed = {"flip": False, "seed": 3, "precision": "auto", "mixup": 0.2}
    recipe = RECIPE.override(image_size=(160, 224), eval_every=5, **changed)
    again = repeated(
        recipe,
        "keras-vit finetune photos/ --bits 12 --strategy=one --flip=no --single",
        single=True,
        given=("crop",),
    )
    assert {*again.split()} == {
        *plain.split(),
        *("--crop=inception", "--mixup=0.2", "--image_size=160,224", "--flip=no"),
        *("--seed=3", "--precision=auto", "--bits=12", "--strategy=one"),
        *("--minutes=2", "--single", "--run_dir=run-again"),
    }


def test_what_repeats_a_training_has_its_settings():
    recipe = RECIPE.override(flip=False, crop="gentle")
    stage = recipe.override(image_size=(128, 128), batch_size=32, steps=90)
    alone = {"stage": stage, "trained": 1.0, "single": True}
    again = repeated(recipe, **alone)
    assert again.split()[3:] == [
        *("--image_size=128,128", "--batch_size=32", "--steps=40", "--crop=gentle"),
        *("--flip=no", "--run_dir=run-again"),
    ]
    # A training alone has no probe that its head could begin as.
    again = repeated(recipe, **alone, from_probe=True)
    assert "--minutes=2 --single" in again and "--steps" not in again
    alone["single"] = False
    assert repeated(recipe, **alone, from_probe=True) == again
    # A paper's recipe is not what was trained.
    recipe = options.begins_with("cifar100")
    stage = recipe.override(image_size=(128, 128), batch_size=64, steps=90)
    words = repeated(recipe, stage=stage, trained=1.0).split()
    assert "--recipe=own_data" in words
    made = recipes.for_dataset("cifar100", "own_data").override(
        image_size=(128, 128), batch_size=64, steps=40, crop=stage.crop
    )
    assert made == stage.override(steps=40)
    brought = recipe.override(model="dinov2-s14/lvd142m")
    assert " --weights" not in repeated(brought)


def test_a_killed_search_goes_on_in_its_schedule(searched):
    whole = searched(Machine(), 5.0, source_of(450))
    for killed_at in (12.0, 30.0, 150.0, 280.0):
        machine = Machine(killed_at=killed_at)
        with pytest.raises(KeyboardInterrupt):
            searched(machine, 5.0, source_of(450))
        machine.killed_at = np.inf
        found = searched(machine, 5.0, source_of(450))
        # What came after the last note is lost.
        assert found.seconds <= LIMIT * 300 and machine.now <= LIMIT * 300 + 10
        assert found.facts["training"] == whole.facts["training"] or killed_at < 40
        assert found.trained and found.tested >= 100


SHARED = ("features 0", "features 1", "probes 0", "probes 1", "larger", "tested")


# The first is killed in its first report, in features of larger images, or not at all.
@pytest.mark.parametrize("killed_at", [45.0, 60.0, np.inf])
def test_another_seed_tries_and_tests_the_same(killed_at, searched):
    source = source_of(450, judges=45, tested=20_000)

    def found_by(machine: Machine, after: Machine | None = None):
        try:
            return searched(machine, 5.0, source, after, seeds=2)
        except KeyboardInterrupt:
            machine.killed_at = np.inf
            return searched(machine, 5.0, source, after, seeds=2)

    first = Machine(side=300, killed_at=killed_at)
    found = found_by(first)
    assert set(SHARED) <= found.facts.keys() and found.facts["features 0"]["mirrored"]
    slower = Machine(side=300, probe=3.0, killed_at=150.0)
    for other in (found_by(slower, first), found_by(Machine(side=300), first)):
        assert all(other.facts[name] == found.facts[name] for name in SHARED)
        assert other.tested == found.tested < 20_000
        assert other.seconds <= LIMIT * 300
    # These are no part of its start.
    assert re.search(r"start 1?\d s, features of another seed \d\d", other.printed)
    # On the same machine it trains as long.
    plans = [one.facts["training"] for one in (found, other)]
    assert plans[0]["image_size"] == plans[1]["image_size"]
    assert plans[0]["steps"] == pytest.approx(plans[1]["steps"], rel=0.15)


def test_a_finished_search_finds_the_same_again(searched):
    machine = Machine()
    first = searched(machine, 3.0, source_of(450))
    again = searched(machine, 3.0, source_of(450))
    assert again.tested == first.tested and again.trained == first.trained
    kept = ("probes 0", "features 0", "training", "tested", "seconds")
    assert all(again.facts[name] == first.facts[name] for name in kept)
    assert "too short" not in again.printed
    about = f"{machine.name} is finished: it is tested and reported again"
    assert about in again.printed and about not in first.printed

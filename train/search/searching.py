"""A search: probes on features first, then training, and what answers in the end."""

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import time
from collections.abc import Callable, Sequence

import keras
import numpy as np

from keras_vit_start import typed
from train.common.errors import RunError
from train.data import copies
from train.data.sources.splits import Source, Split
from train.data.sources.subset import limited
from train.engine import loop
from train.engine.devices import start
from train.engine.pace import Pace
from train.engine.step import Devices
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.run import building, training
from train.run.classification import FineTuning
from train.scoring import held_out
from train.scoring.features import Extractor
from train.scoring.learning_curve import Point, of_probe
from train.scoring.probed_network import probed_network
from train.scoring.ranked import ranked
from train.scoring.temperature import log_losses, temperature
from train.search import heads, probing
from train.search.budget import Budget
from train.search.choosing import FEWEST_JUDGES, share_of
from train.search.options import Options
from train.search.probing import Probed, judged
from train.search.table import Tried
from train.search.task import Found
from train.search.trained import logits_of
from zoo.network import pair
from zoo.network.head import softmax

# Photos that judge a trained network; more are no better than training on them.
_MOST_HELD_OUT = 1_000
# Shares of the budget: for features, probes, and testing the first answer and the last.
_FEATURES, _PROBES, _FIRST_TEST, _TEST = 0.4, 0.15, 0.02, 0.1
# A training of fewer seconds or steps teaches nothing.
_LEAST_SECONDS, _LEAST_STEPS = 25.0, 20
# A step computes as much as three forward passes, and waits for photos too.
_PASSES = 3.5
# Steps of the schedule, by those that seem to fit: a faster machine takes more.
_ROOM = 1.5
# All weights are trained at the size of the features where so many epochs fit.
_EPOCHS_AT_FULL_SIZE = 15
_SMALL_SIZE = 128
# From so many photos on the backbone is converted for another runtime.
_CONVERTED = 1_000
# So many photos compile the network, where none are held out.
_FEWEST = 32
# Images of networks without patches are multiples of this.
_STRIDE = 32
# At least so many seconds are for probes.
_LEAST_PROBES = 10.0
# How much longer than measured the end may take.
_CAUTION = 1.2
# Saving the model and drawing the report take this before it is measured.
_REPORT_SECONDS = 15.0


def run(
    recipe: Recipe,
    options: Options,
    *,
    run_dir: str | os.PathLike,
    data_dir: str | os.PathLike | None = None,
    skip_corrupt: bool = False,
    without: str | os.PathLike | None = None,
    relabel: str | os.PathLike | None = None,
    devices: Devices | None = None,
    command: str = "",
    started: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict:
    """Finds the best classifier in so many minutes, or goes on where it was killed.

    The settings of the recipe are those of its training, but for steps, which fit the
    time. `started` is what the `clock` said when the command began. The other arguments
    and the results are those of `train.run.training.run`.

    Raises a `RunError` as that does, and for several hosts.
    """
    devices = devices or start("one")
    if devices.has_hosts:
        raise RunError(
            "--minutes measures one machine, and this run has several: pass --steps."
        )
    task = Found(recipe, options)
    files = {"without": without, "relabel": relabel}
    source = training.suitable_source(task, devices, data_dir, skip_corrupt, **files)
    task.options = options.settled(source.train.num_examples)
    with training.begun(task, run_dir, devices, lambda: source) as directory:
        training.check_source(source, directory, is_decoded=skip_corrupt)
        path = directory.path / "search.json"
        budget = Budget(60 * task.options.minutes, path, started, clock)
        return _Search(task, source, directory, devices, budget, command).results()


@dataclasses.dataclass
class _Member:
    """A network of an answer: a function that makes it, its logits, and its weight.

    `logits` is a function of a split to floats (photos, classes), and `features` one to
    what the head reads, (photos, size), or None where the network would compute it.
    """

    make: Callable[[], keras.Model]
    logits: Callable[[Split], np.ndarray]
    features: Callable[[Split], np.ndarray] | None = None
    weight: float = 1.0


@dataclasses.dataclass
class _Answer:
    """What answers: networks, and their weighted sum for held-out photos."""

    members: list[_Member]
    held_out: np.ndarray

    def logits(self, split: Split) -> np.ndarray:
        """Returns the logits of photos, what the one model of these networks gives."""
        return np.sum([one.weight * one.logits(split) for one in self.members], axis=0)

    def joined_by(
        self, member: _Member, held_out: np.ndarray, share: float, labels: np.ndarray
    ) -> "_Answer":
        """Returns the average with another network, whose part is a share.

        `held_out` are its logits times its weight.
        """
        mixed = share * held_out + (1 - share) * self.held_out
        cooling = temperature(mixed, labels)
        parts = [*((one, 1 - share) for one in self.members), (member, share)]
        members = [
            dataclasses.replace(one, weight=one.weight * part / cooling)
            for one, part in parts
            if part
        ]
        return _Answer(members, mixed / cooling)


@dataclasses.dataclass
class _Backbone:
    """A network on whose features probes were fitted, and how fast these came."""

    recipe: Recipe
    name: str
    probed: Probed
    labels: np.ndarray
    speed: float
    member: _Member
    curve: Sequence[Point]

    @property
    def log_loss(self) -> float:
        return float(log_losses(self.probed.logits, self.labels).mean())


class _Search:
    """One search; `results` does all of it."""

    def __init__(
        self,
        task: Found,
        source: Source,
        directory: RunDirectory,
        devices: Devices,
        budget: Budget,
        command: str,
    ):
        self.task = task
        self.recipe = task.recipe
        self.options = task.options
        self.test = source.test
        task.test_examples = source.test.num_examples
        judges = source.validation and limited(source.validation, _MOST_HELD_OUT)
        self.source = dataclasses.replace(source, validation=judges)
        self.names = source.class_names
        self.directory = directory
        self.devices = devices
        self.budget = budget
        self.command = command
        self.tried: list[Tried] = []
        self.reasons: list[str] = []
        # The share of the trained network.
        self.trained = 0.0

    def results(self) -> dict:
        """Returns the results of all of it, as in `report.json`, and the files."""
        print(
            f"{self.options.minutes:g} minutes for {self.source.name}, of which "
            f"{self.budget.used:.0f} s are used: probes on features first, then "
            "training as far as there is time",
            flush=True,
        )
        recipes = self._recipes()
        backbones = [
            self._backbone(recipe, number, len(recipes))
            for number, recipe in enumerate(recipes)
        ]
        best = min(backbones, key=lambda one: one.log_loss)
        self.of_probes = answer = self._of_probes(best, backbones)
        self.curve = best.curve
        with contextlib.ExitStack() as stack:
            if self._may_train():
                if "report_seconds" not in self.budget.facts:
                    results = self._report(answer, self._tested(_FIRST_TEST))
                    self.budget.keep(first_seconds=self.budget.used)
                    self._say(
                        f"first answer after {self.budget.used:.0f} s: test accuracy "
                        f"{results['test_accuracy']:.2%} on {results['tested']} images"
                    )
                answer = self._with_training(best, answer, stack)
            if again := self._again(best, answer):
                self._because(f"To repeat what answers alone: {again}")
            if "tested" not in self.budget.facts:
                self.budget.keep(tested=self._tested_at_the_end())
            results = self._report(answer, self.budget.facts["tested"])
        self.budget.keep(seconds=self.task.seconds)
        return results

    def _tested_at_the_end(self):
        """Returns how many photos are tested: their share, or what time is left."""
        report, of_photo = self._measured()
        left = (self.budget.left - _CAUTION * report) / (_CAUTION * of_photo)
        return min(self.test.num_examples, max(int(left), self._tested(_TEST)))

    def _again(self, best, answer):
        """Returns the command that makes what answers alone, "" where Python did."""
        recipe, stage = best.recipe, self.task.stage
        if not isinstance(recipe.model, str):
            return ""
        words = [f"--dataset={recipe.dataset}", f"--model={recipe.model}"]
        if recipe.weights != recipe.model:
            words.append(f"--weights={recipe.weights or 'none'}")
        networks = len(answer.members)
        if self.trained == 1.0 and stage is not None:
            sides = ",".join(map(str, pair(stage.image_size, "image_size")))
            words += [f"--image_size={sides}", f"--batch_size={stage.batch_size}"]
            words.append(f"--steps={self.task.steps(self.directory)}")
        elif self.trained or networks > 1:
            words.append(f"--minutes={self.options.minutes:g}")
            others = [other for other in self.options.models if networks > 2]
            words += [f"--models={','.join(others)}"] if others else []
        else:
            seconds = self.budget.facts.get("first_seconds", self.budget.used)
            words.append(f"--minutes={math.ceil(seconds / 6) / 10:g}")
        return typed("finetune", [*words, f"--run_dir={self.directory.path}-again"])

    def _recipes(self):
        others = (self.recipe.override(model=name) for name in self.options.models)
        return [self.recipe, *others]

    def _say(self, line):
        print(line, flush=True)

    def _because(self, reason):
        self.reasons.append(reason)
        self._say(reason)

    # Probes.

    def _backbone(self, recipe, number, count):
        """Returns the backbone of one of `count` recipes, which share the time."""
        with self.devices.strategy.scope():
            network = building.model(recipe, len(self.names))
        name, key = _name_of(recipe, network), f"features {number}"
        cache = self.directory.path / "features"
        # A conversion takes as long as it saves on some thousand photos.
        is_large = self.source.train.num_examples >= _CONVERTED
        extractor = Extractor(network, engine="auto" if is_large else "keras")
        extract = functools.partial(extractor, cache=cache)
        facts = self.budget.facts.get(key)
        begun = self.budget.clock()
        # The first photos compile, and do not show how fast others come.
        first = self.source.validation or limited(self.source.train, _FEWEST)
        of_first = extract(first)
        if facts is None:
            seconds = _FEATURES * self.budget.left / count
            of_train, speed = probing.features_in(
                seconds, extract, self.source.train, self.budget.clock
            )
            facts = {"photos": len(of_train.labels), "speed": speed}
            self.budget.keep(**{key: facts})
        else:
            of_train = extract(probing.first_of(self.source.train, facts["photos"]))
        features = of_train
        groups = copies.groups(probing.first_of(self.source.train, facts["photos"]))
        if self.source.validation is not None:
            features = probing.joined([of_train, of_first])
            others = len(groups) + copies.groups(self.source.validation)
            groups = np.concatenate([groups, others])
        self._say(
            f"{name}: features of {len(features.labels):,} photos in "
            f"{self.budget.clock() - begun:.0f} s"
        )
        probed = probing.probed(
            features,
            len(self.names),
            of=f", {name}" if count > 1 else "",
            seconds=max(_PROBES * self.budget.seconds / count, _LEAST_PROBES),
            clock=self.budget.clock,
            groups=groups,
            log=self._say,
        )
        self.budget.keep()
        self.tried += probed.tried
        member = _Member(
            functools.partial(self._with_head, recipe, probed.head),
            lambda split: probed.head.logits(probed.read(extract(split))),
            lambda split: probed.read(extract(split)),
        )
        curve = self._curve(of_train, of_first)
        return _Backbone(
            recipe,
            name,
            probed,
            labels=features.labels,
            speed=facts["speed"],
            member=member,
            curve=curve,
        )

    def _curve(self, of_train, of_judges):
        """Returns the learning curve of a probe, if there are held-out photos."""
        if self.source.validation is None:
            return ()
        return of_probe(
            "ridge",
            of_train.pooled,
            of_train.labels,
            (of_judges.pooled, of_judges.labels),
            len(self.names),
        )

    def _with_head(self, recipe, head):
        """Returns the network of a recipe with the head of its probes."""
        network = building.model(recipe, len(self.names))
        return probed_network(network, head, self.names)

    def _of_probes(self, best, backbones):
        """Returns the answer of the best backbone's probes, and of others that help."""
        answer = _Answer([best.member], best.probed.logits)
        joined = [best]
        for other in backbones:
            if other is best:
                continue
            share = 0.0
            if not self.options.single and len(other.labels) == len(best.labels):
                share = share_of(other.probed.logits, answer.held_out, best.labels)
            if share:
                answer = answer.joined_by(
                    other.member, other.probed.logits, share, best.labels
                )
            _share_out(joined, 1 - share)
            _share_out([other], share)
            joined.append(other)
            what = f"gets {share:.0%} of the answer" if share else "is left out"
            self._because(
                f"{other.name} {what}: on held-out photos its log loss is "
                f"{other.log_loss:.3f}, that of {best.name} {best.log_loss:.3f}."
            )
        used = [one.name for one in self.tried if one.share]
        self._because(f"The answers of these probes are averaged: {'; '.join(used)}.")
        return answer

    # Training.

    def _reserve(self):
        """Returns how long testing and reporting will take, seconds."""
        report, of_photo = self._measured()
        # A network that was trained computes the features of so many at the end.
        known = min(self.source.train.num_examples, held_out.KNOWN)
        known += min(self._tested(_TEST), held_out.KNOWN)
        judges = self.source.validation
        count = self._tested(_TEST) + known + (judges.num_examples if judges else 0)
        return _CAUTION * (report + of_photo * count)

    def _measured(self):
        """Returns the seconds of a report without testing, and of testing a photo."""
        facts = self.budget.facts
        speeds = [
            facts[name]["speed"] for name in facts if name.startswith("features ")
        ]
        # A trained network beside the backbones takes about as long as one of them.
        of_photo = sum(1 / speed for speed in speeds) + 1 / min(speeds)
        return facts.get("report_seconds", _REPORT_SECONDS), of_photo

    def _tested(self, share):
        """Returns how many photos of the test part fit in a share of the budget."""
        _, of_photo = self._measured()
        fitting = int(share * self.budget.seconds / of_photo)
        return min(self.test.num_examples, max(fitting, 100))

    def _may_train(self):
        judges = self.source.validation
        if judges is None or judges.num_examples < FEWEST_JUDGES:
            count = judges.num_examples if judges else 0
            self._because(
                f"No training: {count} held-out photos cannot judge whether it helps; "
                f"a --validation_fraction that holds out {FEWEST_JUDGES} could."
            )
            return False
        if "training" in self.budget.facts:
            return bool(self.budget.facts["training"])
        # A report of the probes comes before it.
        report, of_photo = self._measured()
        first = report + of_photo * self._tested(_FIRST_TEST)
        left = self.budget.left - first - self._reserve()
        if left < _LEAST_SECONDS:
            self._because(f"No training: {max(left, 0):.0f} s would be left for it.")
            return False
        return True

    def _plan(self, backbone):
        """Returns image size, batch and steps of a training that fits, or {}."""
        left = self.budget.left - self._reserve()
        photos = self.source.train.num_examples
        batch = backbone.recipe.batch_size
        while batch > 8 and 2 * batch > photos:
            batch //= 2
        full = pair(backbone.recipe.image_size, "image_size")
        for size in (full, _small(backbone.recipe)):
            area = math.prod(size) / math.prod(full)
            rate = backbone.speed / _PASSES / area
            if left * rate >= _EPOCHS_AT_FULL_SIZE * photos:
                break
        steps = int(_ROOM * left * rate / batch)
        if left < _LEAST_SECONDS or steps < _LEAST_STEPS:
            return {}
        return {"image_size": size, "batch_size": batch, "steps": steps}

    def _with_training(self, backbone, answer, stack):
        """Trains all weights, and returns the answer, with them where they help."""
        facts = self.budget.facts
        if "training" not in facts:
            self.budget.keep(training=self._plan(backbone))
        if not facts["training"]:
            self._because("No training: too few steps would fit the time that is left.")
            return answer
        plan = facts["training"] | {
            "image_size": tuple(facts["training"]["image_size"])
        }
        recipe = backbone.recipe.override(**plan)
        if recipe.eval_every is None:
            recipe = recipe.override(eval_every=max(recipe.steps // 5, 1))
        task = FineTuning(recipe)
        begun = self.budget.clock()
        run = training.built(task, self.source, self.directory, self.devices)

        def left() -> float:
            self.budget.keep()
            return self.budget.left - self._reserve()

        seconds_of_step = max(left() / recipe.steps, 1e-3)
        every = min(max(int(1 / seconds_of_step), 1), max(recipe.steps // 20, 1))
        loop.TrainingLoop(run, Pace(left, recipe.steps, every)).train()
        stack.enter_context(run.trainer.averaged())
        self.task.stage = recipe
        through = pair(backbone.recipe.image_size, "image_size")
        return self._joined(
            answer,
            _Member(lambda: task.network, functools.partial(logits_of, run)),
            _Member(
                lambda: task.network,
                functools.partial(logits_of, run, through=through),
            ),
            self.budget.clock() - begun,
        )

    def _joined(self, answer, alone, beside, seconds):
        """Returns the answer with a trained network, as far as that helps.

        `alone` takes photos of its own size, `beside` those of the whole answer.
        """
        labels = self.source.validation.labels()
        logits = beside.logits(self.source.validation)
        weight = 1 / temperature(logits, labels)
        of_probes = answer.held_out[-len(labels) :]
        share = share_of(weight * logits, of_probes, labels)
        if self.options.single:
            share = float(share > 0.5)
        row = judged(
            f"All weights, trained at {_sides(self.task.stage.image_size)}",
            weight * logits,
            labels,
            seconds,
        )
        before = judged("", of_probes, labels, 0.0)
        for one in self.tried:
            one.share *= 1 - share
        row.share = self.trained = share
        self.tried.append(row)
        what = f"gets {share:.0%} of the answer" if share else "is left out"
        self._because(
            f"The trained network {what}: on {len(labels):,} held-out photos its log "
            f"loss is {row.log_loss:.3f}, that of the probes {before.log_loss:.3f}."
        )
        if not share:
            return answer
        member = dataclasses.replace(alone if share == 1 else beside, weight=weight)
        answer = dataclasses.replace(answer, held_out=of_probes)
        return answer.joined_by(member, weight * logits, share, labels)

    # The report.

    def _report(self, answer, count):
        """Writes the model and its report, tested on so many photos; notes the time."""
        clock, task = self.budget.clock, self.task
        tested = limited(self.test, count)
        logits = answer.logits(tested)
        after = clock()
        with self.devices.strategy.scope():
            networks = [one.make() for one in answer.members]
            weights = [one.weight for one in answer.members]
            task.answer = heads.combined(networks, weights)
        task.build(dataclasses.replace(self.source, test=tested))
        task.tried, task.reasons = self.tried, self.reasons
        task.features = answer.members[0].features if len(networks) == 1 else None
        task.curve, task.probe = self.curve, None
        if 0 < self.trained < 1:
            predicted = self.of_probes.logits(tested).argmax(axis=1)
            task.probe = float(np.mean(predicted == tested.labels()))
        task.save(self.directory)
        # A finished run that is reported again took no longer.
        task.seconds = self.budget.facts.get("seconds", self.budget.used)
        results = task.report(
            self.directory, {"test": _judged(logits, tested.labels())}, self.command
        )
        self.budget.keep(report_seconds=clock() - after)
        return results


def _judged(logits, labels):
    """Returns what `train.run.task.Task.evaluate` returns, of logits."""
    answers = ranked(labels, softmax(logits))
    return {
        "loss": float(log_losses(logits, labels).mean()),
        "accuracy": float(np.mean(answers.predicted == labels)),
        "ranked": answers,
    }


def _sides(size):
    return "x".join(map(str, pair(size, "image_size")))


def _name_of(recipe, network):
    model = recipe.model if isinstance(recipe.model, str) else network.name
    if os.path.exists(model):
        model = pathlib.Path(model).stem
    return f"{model} at {_sides(network.input_shape[1:3])}"


def _share_out(backbones, share):
    """Multiplies the shares of the probes of some backbones."""
    for backbone in backbones:
        for one in backbone.probed.tried:
            one.share *= share


def _small(recipe):
    """Returns the (height, width) of training where the recipe's takes too long."""
    sides = pair(recipe.image_size, "image_size")
    steps = (_STRIDE, _STRIDE)
    if building.architecture_of(recipe).one_grid:
        steps = building.config_of(recipe).stride
    factor = min(_SMALL_SIZE / max(sides), 1.0)
    return tuple(
        max(round(factor * side / step), 1) * step
        for side, step in zip(sides, steps, strict=True)
    )

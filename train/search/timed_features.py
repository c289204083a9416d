"""Features of as many photos as there is time for, by a backbone of a search."""

import dataclasses
from collections.abc import Callable

from train.data.sources.subset import limited
from train.scoring.features import Features
from train.search import probing, time_plan
from train.search.budget import FEATURES
from train.search.state import State

Extract = Callable[..., Features]


class TimedFeatures:
    """The features of a backbone, and what was measured while they were computed.

    A search that goes on, or one with another seed, computes those of the same photos.

    Args:
        search: what the parts of a search share; of its photos that judge the first
            backbone leaves as many as there is time for.
        extract: `train.scoring.features.Extractor` that knows earlier features.
        number: int, that of the backbone.
        count: int, how many backbones there are.

    Attributes:
        photos: `Split`, photos of the training part.
        of_train: `Features` of these.
        judges: `Split`, photos that judge, None without any.
        of_judges: `Features` of these.
        speed: float, how many photos came in a second.
    """

    def __init__(self, search: State, extract: Extract, number: int, count: int):
        self._search, self._extract, self._budget = search, extract, search.budget
        self._begun = search.budget.clock()
        self._facts = search.budget.facts.setdefault(f"{FEATURES}{number}", {})
        self._before = self._facts.get("seconds", 0.0)
        train, judges = search.source.train, search.source.validation
        # The first photos compile, and do not show how fast others come.
        extract(limited(judges or train, time_plan.COMPILED))
        self._keep(compiling=search.budget.clock() - self._begun)
        self.judges = self.of_judges = None
        if judges is not None:
            self.judges = self._judges(judges)
            self.of_judges = extract(self.judges)
        if number:
            # Only answers for the same photos can be averaged.
            first = search.budget.facts[f"{FEATURES}0"]["photos"]
            train = probing.first_of(train, first)
        else:
            search.source = dataclasses.replace(search.source, validation=self.judges)
        if not self._facts.get("is_all"):
            self._compute(train, number, count)
        self.photos = probing.first_of(train, self._facts["photos"])
        self.of_train = extract(self.photos)
        self.speed = self._facts["speed"]

    def of_mirrored(self) -> Features | None:
        """Returns features of all photos mirrored, None where they take too long."""
        search, parts = self._search, [self.photos]
        if self.judges is not None:
            parts.append(self.judges)
        count = sum(part.num_examples for part in parts)
        self._keep(mirrored=time_plan.fits_mirrored(search, count, self.speed))
        if not self._facts["mirrored"]:
            return None
        begun = self._budget.clock()
        features = [self._extract(part, mirrored=True) for part in parts]
        self._keep(mirrored_seconds=self._budget.clock() - begun)
        return probing.joined(features)

    def _keep(self, **facts):
        """Notes facts that are not known yet, and the time that all has taken."""
        for name, value in facts.items():
            self._facts.setdefault(name, value)
        if not self._facts.get("is_all"):
            taken = self._budget.clock() - self._begun
            self._facts["seconds"] = self._before + taken
        self._budget.keep()

    def _judges(self, judges):
        """Returns as many photos that judge a training as there is time for."""
        if "judges" not in self._facts:
            begun = self._budget.clock()
            first = limited(judges, time_plan.COMPILED + probing.FEWEST)
            self._extract(first)
            taken = max(self._budget.clock() - begun, 1e-6)
            fitting = time_plan.for_judges(self._search) * probing.FEWEST / taken
            most = min(judges.num_examples, int(fitting))
            self._keep(judges=max(first.num_examples, most))
        return limited(judges, self._facts["judges"])

    def _compute(self, train, number, count):
        clock, known = self._budget.clock, self._facts.get("speed", float("inf"))
        begun = clock()

        def keep(photos: int, speed: float) -> None:
            # Photos that were known before a kill do not show how fast others come.
            self._facts |= {"photos": photos, "speed": min(speed, known)}
            self._keep()

        def left(needed: float) -> float:
            used = clock() - begun
            return time_plan.for_features(self._search, number, count, used, needed)

        probing.features_in(left, self._extract, train, clock, keep)
        self._keep()
        self._facts["is_all"] = True
        self._keep()

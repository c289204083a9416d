"""What the parts of a search share: data, time, and what was found out so far."""

import dataclasses
import pathlib
from collections.abc import Sequence

from train.data.sources.splits import Source, Split
from train.data.sources.subset import limited
from train.engine.step import Devices
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.search.budget import Budget
from train.search.judging import EVEN, Judge, judge_of
from train.search.options import Options
from train.search.table import Tried
from train.search.task import Found

# Photos that judge a trained network; more are no better than training on them.
_MOST_HELD_OUT = 1_000


@dataclasses.dataclass
class State:
    """What the parts of a search share.

    Attributes:
        task: `Found`, which reports what answers.
        source: the data, of which at most 1,000 photos judge.
        directory: of the run.
        devices: that compute.
        budget: the time.
        features: the folder of features.
        command: str, for the report.
        tried: rows of what was tried.
        reasons: sentences about what was chosen, and why.
        stage: `Recipe` of the training, or None.
        trained: float, the share of the trained network.
        is_larger: bool, whether a network of larger images than those of the first
            answer is part of the last.
        judge: `Judge` of the answers to held-out photos.
        slowdown: float, how many times slower the machine is than when its costs were
            measured.
        trains: bool, whether all weights are to be trained, as far as is known.
        seeds: int, how many searches share the minutes that were given.
        is_default: bool, whether the number of photos has decided the minutes.
    """

    task: Found
    source: Source
    directory: RunDirectory
    devices: Devices
    budget: Budget
    features: pathlib.Path
    command: str
    tried: list[Tried] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    stage: Recipe | None = None
    trained: float = 0.0
    is_larger: bool = False
    judge: Judge = EVEN
    slowdown: float = 1.0
    trains: bool = True
    seeds: int = 1
    is_default: bool = False

    def __post_init__(self):
        self.task.test_examples = self.test.num_examples
        judges = self.source.validation
        if judges is not None:
            judges = limited(judges, _MOST_HELD_OUT)
        self.source = dataclasses.replace(self.source, validation=judges)
        self.judge = judge_of(self.source.train.class_counts(len(self.names)))

    @property
    def options(self) -> Options:
        return self.task.options

    @property
    def recipe(self) -> Recipe:
        return self.task.recipe

    @property
    def test(self) -> Split:
        return self.source.test

    @property
    def names(self) -> Sequence[str]:
        """Names of the classes."""
        return self.source.class_names

    def say(self, line: str) -> None:
        """Prints a line."""
        print(line, flush=True)

    def because(self, reason: str) -> None:
        """Prints a sentence about what was chosen, which the report has too."""
        self.reasons.append(reason)
        self.say(reason)

"""What is known of a result, from which its verdict is made."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from train.reports.training_course import TOO_LONG, Course
from train.scoring import paired
from train.scoring.learning_curve import Gain, Point, last_gain
from train.scoring.uneven import is_uneven

# A difference that chance makes less often than this is taken for real.
SIGNIFICANT = 0.05
# A training that answers fewer of its own images has not learned them.
_LEARNED = 0.9
_HARDER = ("mixup", "cutmix", "rand_augment", "random_erasing")
# Twice the photos bring little if they bring less than this.
LITTLE = 0.01


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a result.

    Attributes:
        summary: the `train.scoring.metrics.classification_summary`.
        course: how the training went; None where the result is not of a run.
        results: the other results, as in `report.json`.
        config: the settings.
        model: the directory of the run, or the path or name of the model.
        weights: the path of what the training began from, None where it is no file.
        probe: the accuracy of a linear probe on the same images, where it is known.
        curve: the learning curve, where it was measured.
        suspected: how many labels of these images are doubtful.
    """

    summary: dict
    course: Course | None = None
    results: dict = field(default_factory=dict)
    config: dict = field(default_factory=dict)
    model: str = ""
    weights: str | None = None
    probe: float | None = None
    curve: Sequence[Point] = ()
    suspected: int = 0

    @property
    def tested(self) -> list[dict]:
        """The classes that have images, the largest first."""
        classes = [row for row in self.summary["per_class"] if row["examples"]]
        return sorted(classes, key=lambda row: -row["examples"])

    @property
    def counted(self) -> str:
        """What makes classes uneven, a key of the summary's classes."""
        is_run = "train_examples" in self.summary["per_class"][0]
        return "train_examples" if is_run else "examples"

    @property
    def is_uneven(self) -> bool:
        """Whether the classes differ so much that the accuracy misleads."""
        counts = [row[self.counted] for row in self.summary["per_class"]]
        return is_uneven(np.array(counts))

    @property
    def leading(self) -> str:
        """The name of the accuracy that comes first, a key of the summary."""
        return "balanced_accuracy" if self.is_uneven else "accuracy"

    @property
    def never_answered(self) -> list[dict]:
        """The classes that have images, and are never answered."""
        return [row for row in self.tested if not row["predictions"]]

    @property
    def beside_largest(self) -> paired.Difference | None:
        """How much better the model is than always answering the largest class.

        None where the images have one class.
        """
        largest, *others = self.tested
        if not others:
            return None
        missed = largest["examples"] - _hits(largest)
        hits = sum(map(_hits, others))
        return paired.from_counts(missed, hits, self.summary["examples"])

    @property
    def is_surely_better(self) -> bool:
        """Whether the model is better than that, and not by chance."""
        gain = self.beside_largest
        return gain is not None and gain.gain > 0 and gain.p < SIGNIFICANT

    @property
    def has_not_learned(self) -> bool:
        """Whether the training answers its own images hardly better than the test's.

        Accuracies on images that are mixed, or hard to recognise, say nothing.
        """
        known = None if self.course is None else self.course.of_training
        is_harder = self.config.get("crop") == "inception"
        if known is None or is_harder or any(map(self.config.get, _HARDER)):
            return False
        return known < min(_LEARNED, self.summary["accuracy_high"])

    @property
    def probe_is_better(self) -> bool:
        """Whether the probe is above the interval of the accuracy."""
        return self.probe is not None and self.probe > self.summary["accuracy_high"]

    @property
    def gain(self) -> Gain | None:
        """What the last step of the learning curve brought, if there is one."""
        return last_gain(self.curve) if len(self.curve) > 1 else None

    @property
    def more_photos_help(self) -> bool:
        """Whether the last step of the learning curve surely brought something."""
        gain = self.gain
        return gain is not None and gain.low > 0 and gain.gain >= LITTLE

    @property
    def minutes(self) -> float | None:
        """The budget of a search, None where the run is one training."""
        return self.config.get("minutes")

    def has(self, fault: str) -> bool:
        """Returns whether the training has a fault of `train.reports.training_course`.

        The weights of a run that stops early are those of the best validation.
        """
        if self.course is None or self.course.fault != fault:
            return False
        return fault != TOO_LONG or not self.config.get("early_stopping")


def _hits(row):
    return round(row["recall"] * row["examples"])

"""Doubts about answers: too uncertain, or of photos unlike those of the training."""

import numpy as np

from train.common.errors import RunError
from train.models.finding import FoundModel
from train.models.run_directory import RunDirectory
from train.scoring import held_out
from zoo.network.head import ONE_CLASS, Answers

UNSURE, UNLIKE = "unsure", "unlike"
MARKS = (UNSURE, UNLIKE)


class Doubts:
    """Marks answers of a run's model that do not reach an `accuracy`.

    `place` is where the model was found, `answers` how it answers. Raises a `RunError`
    where the run has kept no answers to held-out photos, or none reach the accuracy.
    """

    def __init__(self, place: FoundModel, accuracy: float):
        self.accuracy = accuracy
        self._held_out = _held_out_of(place)
        count = len(self._held_out.confidence)
        threshold = self._held_out.threshold(accuracy)
        if threshold is None:
            raise RunError(
                f"No part of the run's {count:,} answers to test photos has shown an "
                f"accuracy of {100 * accuracy:g}%: pass a lower --unsure, or train "
                "with more photos."
            )
        self._threshold = threshold
        is_sure = self._held_out.confidence >= threshold
        right = np.count_nonzero(is_sure & self._held_out.is_correct)
        self.note = (
            f"answers below {threshold:.1%} are {UNSURE}: of the run's {count:,} test "
            f"photos, {np.count_nonzero(is_sure):,} had at least that, of which "
            f"{right:,} were right"
        )
        if self.needs_features:
            self.note += (
                f"; {UNLIKE} are photos that resemble those of the training less than "
                f"{1 - held_out.FALSE_ALARMS:.0%} of the test photos do: their class "
                "may be none of the model's"
            )

    @property
    def needs_features(self) -> bool:
        """Whether photos unlike those of the training can be told."""
        return len(self._held_out.distances) > 0

    def marks(
        self, probabilities: np.ndarray, features: np.ndarray | None
    ) -> list[str]:
        """Returns the mark of each answer, empty for those that are not doubted."""
        is_unsure = probabilities.max(axis=1) < self._threshold
        is_unlike = np.zeros(len(is_unsure), bool)
        if self.needs_features:
            is_unlike = self._held_out.is_unlike(features)
        return np.select([is_unlike, is_unsure], [UNLIKE, UNSURE], "").tolist()


def _held_out_of(place):
    refusal = (
        f"The model {place.source} has no answers to held-out photos, from which "
        "--unsure takes its threshold"
    )
    if place.keras_file is None:
        raise RunError(f"{refusal}: pass the directory of a run, or leave it out.")
    file = RunDirectory(place.keras_file.parent).held_out
    if not file.exists():
        raise RunError(
            f"{refusal}: there is no {file}. Pass the directory of a run that was "
            "finished by this version, or leave --unsure out."
        )
    return held_out.read(file)


def check_answers(name: str, answers: Answers, flag: str) -> None:
    """Refuses a flag for a model that does not answer with one class per photo."""
    if answers.problem_type != ONE_CLASS or len(answers.names) < 2:
        raise RunError(
            f"{flag} needs one class of several per photo, and the model {name} "
            f"answers otherwise: leave {flag} out."
        )

"""What answers: networks with weights, whose logits are summed."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np

from train.data.sources.splits import Split
from train.scoring.temperature import sharpening


@dataclasses.dataclass
class Member:
    """A network of an answer.

    Attributes:
        make: function that makes it.
        logits: function of a split, and of the (height, width) that photos have on
            their way to the network's, to floats (photos, classes).
        size: (height, width) of the network's images.
        features: function of a split to what the head reads, (photos, size), or None
            where the network would compute it.
        weight: float, of its logits in the answer.
    """

    make: Callable[[], keras.Model]
    logits: Callable[[Split, tuple[int, int]], np.ndarray]
    size: tuple[int, int]
    features: Callable[[Split], np.ndarray] | None = None
    weight: float = 1.0


@dataclasses.dataclass
class Answer:
    """What answers: networks, and their weighted sum for held-out photos."""

    members: list[Member]
    held_out: np.ndarray

    @property
    def size(self) -> tuple[int, int]:
        """The (height, width) of the one model's images."""
        return max(one.size for one in self.members)

    def logits(self, split: Split) -> np.ndarray:
        """Returns the logits of photos, what the one model of these networks gives."""
        return np.sum(
            [one.weight * one.logits(split, self.size) for one in self.members], axis=0
        )

    @property
    def features(self) -> Callable[[Split], np.ndarray] | None:
        """Function of a split to what the head of the one model reads.

        Of several networks these are their logits. It is None where the model would
        compute them.
        """
        if len(self.members) == 1:
            return self.members[0].features
        return lambda split: np.concatenate(
            [one.logits(split, self.size) for one in self.members], axis=1
        )

    def joined_by(
        self, member: Member, held_out: np.ndarray, share: float, labels: np.ndarray
    ) -> "Answer":
        """Returns the average with another network, whose part is a share.

        `held_out` are its logits times its weight.
        """
        mixed = share * held_out + (1 - share) * self.held_out
        cooling = sharpening(mixed, labels) if share < 1 else 1.0
        parts = [*((one, 1 - share) for one in self.members), (member, share)]
        members = [
            dataclasses.replace(one, weight=one.weight * part / cooling)
            for one, part in parts
            if part
        ]
        return Answer(members, mixed / cooling)

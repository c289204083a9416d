"""The probes that a search tries on the features of a backbone."""

from typing import NamedTuple

from train.scoring.features import Features
from train.search.choosing import FEW

_TITLES = {
    "ridge": "Ridge regression",
    "lda": "LDA",
    "logistic": "Logistic regression",
    "mlp": "Perceptron",
}


class Candidate(NamedTuple):
    """A probe that is tried.

    Attributes:
        kind: str, of `train.scoring.probes.fit`.
        patches: bool, whether it reads the mean of the patches beside the class token.
        mirrored: bool, whether it is fitted on mirrored photos beside the others.
    """

    kind: str
    patches: bool = False
    mirrored: bool = False

    @property
    def name(self) -> str:
        """What reports call it."""
        inputs = "class token and patches" if self.patches else "class token"
        mirrored = ", mirrored photos too" if self.mirrored else ""
        return f"{_TITLES[self.kind]}, {inputs}{mirrored}"


# Mirrored photos bring ridge regression up to half a point, and the others nothing.
_LINEAR = (
    Candidate("ridge"),
    Candidate("ridge", mirrored=True),
    Candidate("lda"),
    Candidate("lda", patches=True),
    Candidate("logistic"),
    Candidate("logistic", patches=True),
)
# It is up to three points worse than the average of the others on CIFAR-100, as good on
# 90 flowers a class. Few photos could not show that it is better.
_PERCEPTRON = Candidate("mlp")


def candidates_for(
    features: Features, has_mirrored: bool, photos_per_class: float
) -> list[Candidate]:
    """Returns the probes that these features allow, in the order of trying them."""
    found = [
        one
        for one in _LINEAR
        if (features.patch_mean is not None or not one.patches)
        and (has_mirrored or not one.mirrored)
    ]
    return found + [_PERCEPTRON] * (photos_per_class > FEW)

"""The outputs of a model for the photos of a split, which a task judges."""

import dataclasses

import numpy as np

from train.models.loaded_model import LoadedModel


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The outputs of a model for all photos of a split, in their order.

    Attributes:
        class_names: names of the outputs, or of what the labels have.
        places: integers, the output that each class of the data is.
        labels: those of the photos, as `train.data.sources.splits.Split` has them.
        values: float32 (photos, outputs).
        loaded: the `LoadedModel`.
    """

    class_names: tuple[str, ...]
    places: np.ndarray
    labels: np.ndarray
    values: np.ndarray
    loaded: LoadedModel

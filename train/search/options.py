"""The options of a search beside the recipe of its training."""

import dataclasses

# A default budget has two minutes, and one more for so many photos, up to ten.
_PHOTOS_PER_MINUTE = 500
_LEAST_MINUTES, _MOST_MINUTES = 2.0, 10.0


@dataclasses.dataclass(frozen=True)
class Options:
    """What a search may take and give.

    Attributes:
        minutes: float, all that it may take; None for what suits the number of photos.
        models: names of further backbones that are tried on features.
        single: bool, whether one network is to answer, not an average of several.
        crop: str, the crop of its training; None for the recipe's, and instead of
            "inception" for what suits the number of epochs.
    """

    minutes: float | None = None
    models: tuple[str, ...] = ()
    single: bool = False
    crop: str | None = None

    def settled(self, photos: int) -> "Options":
        """Returns the options with a budget for so many photos to train on."""
        if self.minutes is not None:
            return self
        minutes = _LEAST_MINUTES + photos / _PHOTOS_PER_MINUTE
        return dataclasses.replace(self, minutes=round(min(minutes, _MOST_MINUTES), 1))

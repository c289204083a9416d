"""The options of a search beside the recipe of its training."""

import dataclasses

from train import recipes
from train.common.errors import RunError
from train.recipes import Recipe

# A default budget has two minutes, and one more for so many photos, up to ten.
_PHOTOS_PER_MINUTE = 500
_LEAST_MINUTES, _MOST_MINUTES = 2.0, 10.0
# Settings of the optimizer of a training.
OF_OPTIMIZER = (
    *("optimizer", "learning_rate", "layer_decay", "weight_decay", "momentum"),
    "momentum_dtype",
)
# Flags of a search, which its reports and run directories have, too.
OF_SEARCH = ("minutes", "models", "single")
# Settings of a training that are not chosen where a user gives them.
KEPT = ("crop", *OF_OPTIMIZER)
# A search that shares its minutes with those of other seeds has at least so many.
_LEAST_SHARE = 1.0


def begins_with(dataset: str, name: str | None = None) -> Recipe:
    """Returns the recipe whose settings a search of a data set begins with.

    It is that of own data in place of a paper's, which is for accelerators.
    """
    recipe = recipes.for_dataset(dataset, name)
    return (
        recipes.for_dataset(dataset, recipes.OWN_DATA) if recipe.published else recipe
    )


@dataclasses.dataclass(frozen=True)
class Options:
    """What a search may take and give.

    Attributes:
        minutes: float, all that it may take; None for what suits the number of photos.
        models: names of further backbones that are tried on features.
        single: bool, whether one network is to answer, not an average of several.
        given: names of settings of its training, of `KEPT`, that are as the recipe has
            them. Without one of the optimizer's these may follow the number of epochs.
    """

    minutes: float | None = None
    models: tuple[str, ...] = ()
    single: bool = False
    given: tuple[str, ...] = ()

    def may_choose_optimizer(self, recipe: Recipe) -> bool:
        """Returns whether the number of epochs may decide the optimizer."""
        usual = recipes.for_dataset(recipe.dataset, recipes.OWN_DATA)
        is_usual = all(
            getattr(recipe, name) == getattr(usual, name) for name in OF_OPTIMIZER
        )
        # From random weights the first blocks have everything to learn.
        return is_usual and not self.keeps_optimizer and recipe.weights is not None

    def may_begin_as_probe(self, recipe: Recipe) -> bool:
        """Returns whether a training of few epochs may begin with a probe as its head.

        With `--pre_logits` the head is on a random layer, not on the features.
        """
        return self.may_choose_optimizer(recipe) and not recipe.pre_logits

    @property
    def keeps_optimizer(self) -> bool:
        """Whether a user gave a setting of the optimizer."""
        return any(name in OF_OPTIMIZER for name in self.given)

    def crop_of(self, recipe: Recipe) -> str | None:
        """Returns the crop of a training, None where the number of epochs decides."""
        is_free = recipe.crop == "inception" and "crop" not in self.given
        return None if is_free else recipe.crop

    def settled(self, photos: int) -> "Options":
        """Returns the options with a budget for so many photos to train on."""
        if self.minutes is not None:
            return self
        minutes = _LEAST_MINUTES + photos / _PHOTOS_PER_MINUTE
        return dataclasses.replace(self, minutes=round(min(minutes, _MOST_MINUTES), 1))

    def shared_by(self, seeds: int) -> "Options":
        """Returns the options of each of several searches that share the minutes.

        Raises a `RunError` where that is too little for each.
        """
        if self.minutes is None:
            return self
        if self.minutes < seeds * _LEAST_SHARE:
            raise RunError(
                f"--minutes={self.minutes:g} is too short for {seeds} searches of a "
                f"minute each: pass --minutes={seeds * _LEAST_SHARE:g} or more, or "
                "fewer --seeds."
            )
        return dataclasses.replace(self, minutes=round(self.minutes / seeds, 3))

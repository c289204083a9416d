"""Points of a study: recipes that differ in one thing."""

import dataclasses

from keras_vit import VARIANTS, ViTConfig
from train import baselines
from train.common.errors import RunError
from train.recipes import Recipe


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a study besides its recipe; each study uses its own.

    Args:
        seeds: runs per point; None for 3 of the chosen learning rate, else 1.
        models: names of models, instead of the recipe's.
        subsets: percents such as `"10%"` of the training images, or numbers of images.
        step_counts: numbers of steps, instead of the recipe's.
        positions: keys of `train.study.kinds.positions.POSITIONS`.
        tasks: tasks of VTAB; without any all, or with `smoke` one of each group.
        shots: images per class of the few-shot probe; 0 for no probe.
        few_shot_dataset: the data set of the probe; that of the recipe where None.
        smoke: whether the recipe is cut down, so that models must be, too.
    """

    seeds: int | None = None
    models: tuple[str, ...] = ()
    subsets: tuple[str, ...] = ("10%", "30%", "100%")
    step_counts: tuple[str, ...] = ()
    positions: tuple[str, ...] = ("none", "1d", "2d", "relative")
    tasks: tuple[str, ...] = ()
    shots: int = 5
    few_shot_dataset: str | None = None
    smoke: bool = False


@dataclasses.dataclass(frozen=True)
class Point:
    """One row of a study: a recipe, run with one seed or several.

    The names of its runs begin with `label`; `facts` are its columns in `study.json`.
    """

    label: str
    recipe: Recipe
    facts: dict = dataclasses.field(default_factory=dict)


def check_known(kind, names, known):
    """Refuses names of models, positions or tasks that there are not."""
    for name in names:
        if name not in known:
            raise RunError(
                f"There is no {kind} {name!r}: --{kind}s takes {', '.join(known)}."
            )


def models_of(recipe, options):
    """Returns pairs of name and recipe, of --models or of the recipe's own model."""
    check_known("model", options.models, {**VARIANTS, **baselines.BASELINES})
    found = []
    for name in dict.fromkeys(options.models):
        one = recipe.override(model=name)
        if options.smoke:
            small = one.smoke()
            one = recipe.override(model=small.model, image_size=small.image_size)
        found.append((name, one))
    return found or [(model_name(recipe), recipe)]


def model_name(recipe):
    """Returns the name of a recipe's model, or of its width."""
    model = recipe.model
    return model if isinstance(model, str) else f"width-{model.hidden_size}"


def config_of(recipe):
    """Returns the `keras_vit.ViTConfig` of a recipe's model."""
    if isinstance(recipe.model, ViTConfig):
        return recipe.model
    if recipe.model in VARIANTS:
        return VARIANTS[recipe.model]
    raise RunError(
        f"{recipe.model} is not a Vision Transformer whose parts can be changed: pass "
        f"another --model, one of {', '.join(VARIANTS)}."
    )

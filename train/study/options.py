"""The settings of a study beside the recipe of its runs."""

import dataclasses
import functools

from train.common.setting import AT_LEAST_0, AT_LEAST_1, check_limits, setting

_option = functools.partial(setting, group="Study")


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of `keras-vit study` beside those of the recipe.

    Each study uses its own. With `smoke` the recipe is cut down, and models with it.

    Raises:
        ValueError: a number is too small.
    """

    seeds: int | None = _option(
        None,
        "Runs of each kind, with --seed and those after it; 3 of the chosen learning "
        "rate and else 1 if not given.",
        AT_LEAST_1,
    )
    models: tuple[str, ...] = _option(
        (),
        "With --study=examples or compute: the models. If not given that of the "
        "recipe, with compute also at a half and at a quarter of its width.",
    )
    subsets: tuple[str, ...] = _option(
        ("10%", "30%", "100%"),
        "With --study=examples: parts of the training images, percents or numbers.",
    )
    step_counts: tuple[str, ...] = _option(
        (), "With --study=compute: the steps of the runs; the recipe's if not given."
    )
    positions: tuple[str, ...] = _option(
        ("none", "1d", "2d", "relative"),
        "With --study=positions: these, or 1d-every-layer, 1d-every-layer-shared, "
        "2d-every-layer, 2d-every-layer-shared.",
    )
    tasks: tuple[str, ...] = _option(
        (),
        "With --study=vtab: its tasks, such as dtd; all 19 if not given, with --smoke "
        "one of each group.",
    )
    shots: int = _option(
        5,
        "With --study=examples, compute or positions: training images per class of the "
        "few-shot accuracy, 0 to leave it out.",
        AT_LEAST_0,
    )
    few_shot_dataset: str | None = setting(
        None, "Data set of the few-shot accuracy; --dataset if not given.", group="Data"
    )
    smoke: bool = setting(False, "Whether the recipe is cut down.")

    def __post_init__(self):
        check_limits(self)

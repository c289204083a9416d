"""Which runs a study has: points, each a recipe that differs from the others."""

import dataclasses

from keras_vit import VARIANTS, ViTConfig
from train import baselines
from train.common.errors import RunError
from train.data.sources import vtab
from train.study.runs import Point

# Those of the paper's table, as `ViTConfig` has them.
POSITIONS = {
    "none": ("none", "stem"),
    "1d": ("learned", "stem"),
    "2d": ("2d", "stem"),
    "relative": ("relative", "stem"),
    "1d-every-layer": ("learned", "every_layer"),
    "1d-every-layer-shared": ("learned", "every_layer_shared"),
    "2d-every-layer": ("2d", "every_layer"),
    "2d-every-layer-shared": ("2d", "every_layer_shared"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """What a study takes besides its recipe; each uses its own.

    Args:
        seeds: int, runs of each kind; None for 3 with the chosen learning rate, else 1.
        models: sequence of names of models, instead of the recipe's.
        subsets: sequence of str, percents such as `"10%"` of the training images, or
            how many.
        step_counts: sequence of str, instead of the recipe's steps.
        positions: sequence of keys of `POSITIONS`.
        tasks: sequence of tasks of VTAB, all where it is empty, or cut down one of
            each group.
        shots: int, images a class of the few-shot probe; 0 for no probe.
        few_shot_dataset: str, on which to probe; that of the recipe where None.
        smoke: bool, whether the recipe is cut down, so that models must be, too.
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


def of_examples(recipe, options, total):
    """Returns the points of the study of the training set's size.

    Args:
        recipe: `train.recipes.Recipe`.
        options: `Options`.
        total: int, the training images there are.

    Raises:
        RunError: a subset or a model is not to be had.
    """
    counts = subset_sizes(options.subsets, total)
    return [
        Point(
            f"{name}-{count}-images",
            one.override(train_examples=count),
            {"model": name, "examples": count},
        )
        for name, one in _of_models(recipe, options) or [(_name(recipe), recipe)]
        for count in counts
    ]


def subset_sizes(subsets, total):
    """Returns how many images the parts of a training set have, growing.

    Args:
        subsets: sequence of str, percents such as `"10%"`, or numbers of images.
        total: int, the training images.

    Raises:
        RunError: one is neither, or more than there are.

    Example:

    >>> subset_sizes(["100%", "10%", "300"], 1293)
    [129, 300, 1293]
    """
    sizes = set()
    for text in subsets:
        try:
            share = float(text[:-1]) / 100 if text.endswith("%") else None
            size = int(text) if share is None else round(share * total)
        except ValueError:
            size = 0
        if not 1 <= size <= total:
            raise RunError(
                f"--subsets has {text!r}, which is no part of the {total:,} training "
                "images: give percents such as 10%, or numbers of images up to that."
            )
        sizes.add(size)
    return sorted(sizes)


def of_compute(recipe, options):
    """Returns the points of the study of compute: sizes of models, numbers of steps.

    Without models they are the recipe's, and it with a half and a quarter of the width.

    Args:
        recipe: `train.recipes.Recipe`.
        options: `Options`.

    Raises:
        RunError: a model or a number of steps is not to be had.
    """
    steps = _steps(options.step_counts) or [recipe.steps]
    return [
        Point(
            f"{name}-{count}-steps",
            one.override(steps=count),
            {"model": name, "steps": count},
        )
        for name, one in _of_models(recipe, options) or _sizes(recipe)
        for count in steps
    ]


def of_positions(recipe, options):
    """Returns the points of the study of position embeddings.

    Args:
        recipe: `train.recipes.Recipe`.
        options: `Options`.

    Raises:
        RunError: there are no such embeddings, or the model can have none.

    Example:

    >>> from train.recipes import for_dataset
    >>> points = of_positions(for_dataset("digits"), Options(positions=("none", "1d")))
    >>> [point.recipe.model.position_embedding for point in points]
    ['none', 'learned']
    """
    config = _config(recipe)
    for name in options.positions:
        if name not in POSITIONS:
            raise RunError(
                f"There are no position embeddings {name!r}: --positions takes "
                f"{', '.join(POSITIONS)}."
            )
    points = []
    for name in dict.fromkeys(options.positions):
        kind, place = POSITIONS[name]
        model = dataclasses.replace(
            config, position_embedding=kind, position_embedding_at=place
        )
        changed = recipe.override(model=model, dropout_rate=recipe.dropout)
        points.append(Point(name, changed, {"positions": name}))
    return points


def of_vtab(recipe, options):
    """Returns the points of the study of VTAB, one a task.

    Args:
        recipe: `train.recipes.Recipe` for `"vtab"`; cut down, it may be one for any
            data, which then stand in for those of each task.
        options: `Options`.

    Raises:
        RunError: there is no such task, or the recipe is for other data.
    """
    if recipe.dataset != "vtab" and not options.smoke:
        raise RunError(
            f"The study of VTAB cannot use --dataset={recipe.dataset}: pass "
            "--dataset=vtab."
        )
    for task in options.tasks:
        if task not in vtab.TASKS:
            raise RunError(
                f"There is no task {task!r} of VTAB: --tasks takes "
                f"{', '.join(vtab.TASKS)}."
            )
    tasks = options.tasks or tuple(vtab.TASKS)
    if options.smoke and not options.tasks:
        tasks = tuple(tasks[0] for tasks in vtab.GROUPS.values())
    points = []
    for task in dict.fromkeys(tasks):
        # To see that all works, other data stand in for those of the tasks.
        own = f"vtab/{task}" if recipe.dataset == "vtab" else recipe.dataset
        changed = recipe.override(dataset=own)
        points.append(
            Point(task, changed, {"task": task, "group": vtab.TASKS[task].group})
        )
    return points


def _sizes(recipe):
    """The recipe's model, and it with a half and a quarter of the width."""
    config = _config(recipe)
    # Heads keep their number, and their halves are whole for embeddings of two axes.
    step = 2 * config.num_heads
    widths = sorted({max(config.hidden_size // part // step, 1) for part in (4, 2, 1)})
    dropout = {"dropout_rate": recipe.dropout}
    for width in (step * count for count in widths[:-1]):
        mlp_dim = max(config.mlp_dim * width // config.hidden_size, 1)
        small = dataclasses.replace(config, hidden_size=width, mlp_dim=mlp_dim)
        yield f"width-{width}", recipe.override(model=small, **dropout)
    yield _name(recipe), recipe


def _name(recipe):
    model = recipe.model
    return model if isinstance(model, str) else f"width-{model.hidden_size}"


def _steps(counts):
    for text in counts:
        if not text.isdecimal() or int(text) < 1:
            raise RunError(
                f"--step_counts has {text!r}, which is no number of steps: give whole "
                "numbers from 1 up."
            )
    return sorted({int(text) for text in counts})


def _of_models(recipe, options):
    """Pairs of name and recipe, of the models that are asked for."""
    known = {**VARIANTS, **baselines.BASELINES}
    found = []
    for name in dict.fromkeys(options.models):
        if name not in known:
            raise RunError(
                f"There is no model {name!r}: --models takes {', '.join(known)}."
            )
        if options.smoke:
            small = recipe.override(model=name).smoke()
            one = recipe.override(model=small.model, image_size=small.image_size)
        else:
            one = recipe.override(model=name)
        found.append((name, one))
    return found


def _config(recipe):
    if isinstance(recipe.model, ViTConfig):
        return recipe.model
    if recipe.model in VARIANTS:
        return VARIANTS[recipe.model]
    raise RunError(
        f"{recipe.model} is no Vision Transformer whose parts can be changed: pass "
        f"another --model, one of {', '.join(VARIANTS)}."
    )

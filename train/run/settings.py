"""The settings of a run, where each comes from, and their values in `--help`."""

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence

from absl import flags as absl_flags

from keras_vit_start import styled
from train import tasks
from train.common import setting
from train.common.errors import RunError
from train.data.columns import of_settings as columns_of
from train.recipes import Recipe
from train.run import config_file
from zoo import ViTConfig

# Later origins override earlier ones.
DEFAULT, OF_RECIPE, OF_FILE, OF_SMOKE, OF_FLAG = (
    *("default", "recipe", "config file"),
    *("--smoke", "flag"),
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """A recipe with all that overrides it; `origins` has the origin of each field.

    `recipe_name` is None for the recipe of the data set; `run_name` is that of the
    model which is meant, with `--smoke` too.
    """

    recipe: Recipe
    origins: dict[str, str]
    recipe_name: str | None
    run_name: str


def settle(find_recipe: Callable[..., Recipe], flags: dict) -> Settings:
    """Returns the `Settings` of a command line, from the values of its flags.

    The recipe's values are overridden by those of the file of `--config`, these by
    `--smoke`, and these by the flags that are given. Unless given, warm-up and
    micro-batches follow, as `train.recipes.Recipe.override` says. `find_recipe` takes a
    data set, and the name of a recipe or None.

    Raises a `ValueError` or `RunError` where values do not fit.
    """
    dataset, recipe, config = (flags[key] for key in ("dataset", "recipe", "config"))
    content = config_file.read(config) if config else {}
    named = {
        name: config_file.text_of(content, name, config)
        for name in ("dataset", "recipe")
    }
    if dataset is None and named["dataset"] is None:
        raise ValueError(f"--config={config} has no dataset: pass --dataset.")
    base = find_recipe(
        named["dataset"] if dataset is None else dataset, recipe or named["recipe"]
    )
    of_file = config_file.values(content, type(base), config)
    of_flags = overrides(flags, type(base))
    base = _of_task(base, of_file | of_flags)
    _check_epochs(of_flags)
    origins = {
        field.name: DEFAULT if getattr(base, field.name) == field.default else OF_RECIPE
        for field in dataclasses.fields(base)
    }
    origins["dataset"] = OF_FILE if dataset is None else OF_FLAG
    origins["recipe"] = OF_FLAG if recipe else OF_FILE
    name = recipe or named["recipe"]
    if name is None:
        origins["recipe"] = "default: that of the data set"
    try:
        changed = _override(base, of_file, OF_FILE, origins)
    except ValueError as error:
        raise ValueError(f"--config={config}: {error}") from error
    run_name = changed.override(model=of_flags.get("model", changed.model)).run_name
    if flags["smoke"]:
        _note(changed, changed.smoke(), OF_SMOKE, origins)
        changed = changed.smoke()
    changed = _override(changed, of_flags, OF_FLAG, origins)
    if changed.epochs is not None:
        origins["steps"] = "replaced: epochs times the training images / batch_size"
    return Settings(changed, origins, name, run_name)


def _of_task(recipe, given):
    """Returns the recipe for the task that is given, or that the data show."""
    columns = columns_of({**vars(recipe), **given})
    task = given.get("task") or recipe.task or tasks.seen(recipe.dataset, columns)
    # Another task is refused where the settings are checked; masked patches have none.
    if task == tasks.CLASSES or task not in tasks.TASKS or type(recipe) is not Recipe:
        return recipe
    if task not in tasks.TASKS:
        # Settings of a file are checked once they are the recipe's.
        return recipe
    kind = tasks.TASKS[task]
    own = kind.settings | kind.of_heads.get(given.get("mask_head"), {})
    return recipe.override(task=task, **own)


def _check_epochs(of_flags):
    """Refuses flags that say in steps what `--epochs` says."""
    for name in ("steps", "warmup_steps"):
        if of_flags.get("epochs") is not None and name in of_flags:
            raise ValueError(
                f"--{name}={of_flags[name]} counts steps, which "
                f"--epochs={of_flags['epochs']:g} leaves to the data: leave one out."
            )


def overrides(flags: dict, recipe_class: type[Recipe]) -> dict:
    """Returns the settings of a recipe that the flags give.

    A `ValueError` names a flag whose value is not written as it should be.
    """
    fields = {field.name: field for field in dataclasses.fields(recipe_class)}
    values = {
        name: flags[name]
        for name in fields
        if name != "dataset" and flags.get(name) is not None
    }
    for name, value in values.items():
        try:
            values[name] = setting.fitted(fields[name], value)
        except ValueError as error:
            raise ValueError(
                f"--{name}={','.join(value)} cannot be read: pass "
                f"{fields[name].metadata['example']}."
            ) from error
    return values


def _override(recipe, values, origin, origins):
    changed = recipe.override(**values)
    _note(recipe, changed, origin, origins)
    kept = {name for name in values if getattr(changed, name) == values[name]}
    origins.update(dict.fromkeys(kept, origin))
    return changed


def _note(before, after, origin, origins):
    """Notes what changes with a value that was given."""
    for field in dataclasses.fields(after):
        if getattr(before, field.name) != getattr(after, field.name):
            origins[field.name] = origin if origin == OF_SMOKE else f"follows {origin}"


def page(settings: Settings, others: dict[str, tuple]) -> str:
    """Returns all settings with their origins, YAML that `--config` takes.

    `others` are pairs of value and origin by the names of flags that are no settings of
    a recipe; they become comments.
    """
    recipe = settings.recipe
    used = recipe.in_use()
    rows = []
    values = {"recipe": settings.recipe_name, **dataclasses.asdict(recipe)}
    for name, value in values.items():
        if name in config_file.NOT_IN_FILES:
            continue
        origin = settings.origins[name]
        if name in used:
            origin += f": {used[name]:g}"
        if isinstance(value, dict):
            value = {key: part for key, part in value.items() if part is not None}
        rows.append((f"{name}: {json.dumps(value)}", origin))
    rows += [
        (f"# {name}: {json.dumps(value)}", origin)
        for name, (value, origin) in others.items()
    ]
    width = max(len(text) for text, _ in rows if len(text) < 40)
    return "\n".join(f"{text:{width}}  # {origin}" for text, origin in rows)


def add_to_help(
    words: Sequence[str], find_recipe: Callable[[str, str | None], Recipe]
) -> None:
    """Adds what the recipe sets to the help of each setting.

    The recipe is that of the flags `--dataset`, `--recipe` and `--config` and of the
    words beside them, or without any that of the user's own data; `find_recipe` is as
    in `settle`. If the recipe is unknown or a file cannot be read, there is a warning,
    and the help has no values.
    """
    names = ("dataset", "recipe", "config", "smoke")
    named = {name: absl_flags.FLAGS[name].value for name in names}
    named["dataset"] = named["dataset"] or "".join(words) or None
    label = named["recipe"] or named["dataset"] or named["config"] or "your own data"
    if not named["config"]:
        named["dataset"] = named["dataset"] or ""
    try:
        settled = settle(find_recipe, named)
    except (ValueError, OSError, RunError) as error:
        warning = styled("warning:", "warning", sys.stderr)
        print(f"{warning} the help has no values: {error}", file=sys.stderr)
        return
    label += ", smoke" * named["smoke"]
    for field in dataclasses.fields(settled.recipe):
        if field.name in absl_flags.FLAGS and field.name != "dataset":
            flag = absl_flags.FLAGS[field.name]
            flag.help = f"{flag.help} [{label}: {written(settled.recipe, field.name)}]"


def written(recipe: Recipe, name: str) -> str:
    """Returns the value of a setting as a flag takes it."""
    value = getattr(recipe, name)
    if value is None:
        value = recipe.in_use().get(name)
    if isinstance(value, ViTConfig):
        sizes = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "patch_size")
        return ", ".join(f"{name} {getattr(value, name)}" for name in sizes)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    words = {None: "none", True: "yes", False: "no"}
    # The type is compared too, as 1 and 0 equal True and False.
    return words[value] if value is None or isinstance(value, bool) else str(value)

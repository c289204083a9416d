"""The settings of a run, and where each comes from."""

import dataclasses
import json
from typing import Any

from train.run import config_file

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

    recipe: Any
    origins: dict[str, str]
    recipe_name: str | None
    run_name: str


def settle(find_recipe, *, dataset, recipe, config, smoke, flags) -> Settings:
    """Returns the `Settings` of a command line.

    The recipe's values are overridden by those of the file `config`, these by `smoke`,
    and these by `flags`, a function of the class of the recipe to a dict. Unless given,
    warm-up and micro-batches follow, as `train.recipes.Recipe.override` says.
    `find_recipe` takes a data set, and the name of a recipe or None; `dataset`,
    `recipe` and `config` may be None, where the file names a data set.

    Raises a `ValueError` or `RunError` where values do not fit.
    """
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
    of_flags = flags(type(base))
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
    if smoke:
        _note(changed, changed.smoke(), OF_SMOKE, origins)
        changed = changed.smoke()
    changed = _override(changed, of_flags, OF_FLAG, origins)
    return Settings(changed, origins, name, run_name)


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


def page(settings, others) -> str:
    """Returns all settings with their origins, YAML that `--config` takes.

    `others` are pairs of value and origin by the names of flags that are no settings of
    a recipe; they become comments.
    """
    recipe = settings.recipe
    used = recipe.in_use()
    rows = []
    for name, value in {"recipe": settings.recipe_name, **recipe.as_dict()}.items():
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

"""The settings of a run in a file: --config."""

import dataclasses
import difflib
import functools
import json
import os
import types
import typing
from typing import Any

from train.common import packages, setting
from train.common.errors import RunError, first_line
from train.recipes import Recipe
from zoo import ViTConfig
from zoo.common import limits
from zoo.common.regular_files import expand_home, missing_remedy, read_text
from zoo.common.safe_text import brief

# A file cannot claim these fields of a recipe.
NOT_IN_FILES = {"published"}
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    tuple: "a list of numbers such as [2, 15]",
    ViTConfig: "the sizes of a ViTConfig",
    types.NoneType: "null",
}


def read(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the content of a YAML or JSON file of settings, a dict.

    Raises a `RunError` where it cannot be read, or is something else.
    """
    file = expand_home(path)
    if file.is_dir():
        raise RunError(f"--config={path} is a folder: pass its config.json.")
    is_yaml = file.suffix.lower() in (".yaml", ".yml")
    if not is_yaml and file.suffix.lower() != ".json":
        raise RunError(f"--config={path} must end in .yaml, .yml or .json.")
    example = "steps: 500" if is_yaml else '{"steps": 500}'
    try:
        text = read_text(file, limits.CONFIG_BYTES, "utf-8-sig")
        once = functools.partial(_once, path)
        content = _yaml(text, once) if is_yaml else _json(text, once)
    except FileNotFoundError as error:
        remedy = missing_remedy(file)
        raise RunError(f"--config={path} is not there: {remedy}") from error
    except (ValueError, OSError, RecursionError) as error:
        kind = "YAML" if is_yaml else "JSON"
        raise RunError(
            f"--config={path} cannot be read as {kind} ({first_line(error)}): write "
            f"settings such as {example}."
        ) from error
    if not isinstance(content, dict) or not all(
        isinstance(key, str) for key in content
    ):
        raise RunError(
            f"--config={path} has no settings by name: write them such as {example}."
        )
    return content


def _json(text, once):
    def settings(pairs: list[tuple[str, Any]]) -> dict:
        once(name for name, _ in pairs)
        return dict(pairs)

    return json.loads(text, object_pairs_hook=settings)


def _yaml(text, once):
    packages.need("--config with YAML", ["yaml"])
    import yaml

    # This loader makes plain values alone, whatever the file says.
    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: Any) -> Any:
            # A few aliases, each of a list of others, would be billions of values.
            if self.check_event(yaml.AliasEvent):
                raise ValueError(
                    f"line {self.peek_event().start_mark.line + 1} refers to another "
                    "value by *, which is not read: repeat the value"
                )
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
            once(key.value for key, _ in node.value if key.id == "scalar")
            return super().construct_mapping(node, deep)

        def construct_scalar(self, node: yaml.ScalarNode) -> str:
            # --print_config shows JSON, which escapes what is beyond 16 bits in two
            # parts.
            text = super().construct_scalar(node)
            return text.encode("utf-16", "surrogatepass").decode(
                "utf-16", "surrogatepass"
            )

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except (AttributeError, KeyError) as error:
        raise ValueError("a value is not of the kind that its tag says") from error


def _once(path, names):
    """Raises a `RunError` that names a setting which a file has twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise RunError(f"--config={path} has {name[:80]!r} twice: leave one out.")
        seen.add(name)


def text_of(content: dict[str, Any], name: str, path: str | os.PathLike) -> str | None:
    """Returns a setting that chooses the recipe, a str, or None."""
    value = content.get(name)
    if value is not None and not (isinstance(value, str) and value):
        raise RunError(f"--config={path}: {name} must be a text, got {brief(value)}.")
    return value


def values(
    content: dict[str, Any], recipe_class: type[Recipe], path: str | os.PathLike
) -> dict[str, Any]:
    """Returns the settings in a file's content that a class of recipes has.

    Raises a `RunError` that names what no recipe of this class has, and values of
    another type. Texts of numbers are numbers, as YAML takes 1e-3 for a text.
    """
    fields = {field.name: field for field in dataclasses.fields(recipe_class)}
    known = fields.keys() - NOT_IN_FILES | {"recipe"}
    for name in sorted(content.keys() - known):
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {near[0]}?" if near else "--print_config shows all."
        if name in ("run_dir", "data_dir"):
            hint = f"pass --{name}, which is of this run and machine."
        if name == "augmentation_layer":
            hint = "a layer is handed to FineTuning in Python (docs/augmentation.md)."
        raise RunError(f"--config={path}: there is no setting {name[:80]!r}: {hint}")
    settings = {}
    # Leave out the two that chose the recipe.
    for name in content.keys() - {"recipe", "dataset"}:
        try:
            settings[name] = setting.fitted(fields[name], content[name])
        except ValueError as error:
            words = " or ".join(
                _WORDS[typing.get_origin(kind) or kind]
                for kind in setting.kinds(fields[name])
            )
            raise RunError(
                f"--config={path}: {name} must be {words}, got {brief(content[name])}."
            ) from error
    return settings

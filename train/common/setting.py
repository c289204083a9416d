"""Settings: fields of a dataclass with the help, limits and choices of their flags.

Flags, `--config`, `--help` and the checks of recipes read them from the fields.
"""

import contextlib
import dataclasses
import numbers
import types
import typing
from collections.abc import Callable, Collection
from dataclasses import MISSING
from typing import Any

from zoo import ViTConfig
from zoo.common.limits import FLOAT

# The run chooses: as few micro-batches as fit in memory, or the precision.
AUTO = "auto"
# A limit is what a value must be, and a function that returns whether it is.
Limit = tuple[str, Callable[[Any], bool]]
ABOVE_0 = ("above 0", lambda value: value > 0)
AT_LEAST_0 = ("at least 0", lambda value: value >= 0)
AT_LEAST_1 = ("at least 1", lambda value: value >= 1)
BELOW_1 = ("in [0, 1)", lambda value: 0.0 <= value < 1.0)
FRACTION = ("in [0, 1]", lambda value: 0.0 <= value <= 1.0)


def setting(
    default: Any = MISSING,
    usage: str = "",
    *limits: Limit,
    group: str = "",
    choices: Collection = (),
    **more: Any,
) -> Any:
    """Returns a field of a dataclass that is a setting.

    `usage` is its help, in `--help` and the reference. None keeps all `limits` where
    the type has it. `group` is the heading of its flag in
    `train.common.flag_help.GROUPS`; without one it is no flag, or is one of other
    commands too. `choices` that are a dict have a `title` each, which completes the
    help.

    Others read `more`: `example` says how to write a flag of several values;
    `takes_auto`, that the flag of a number takes "auto"; `otherwise` is the attribute
    that holds where the value is None; `argument`, that of an architecture which some
    models lack; `of_blocks` and `of_classifiers` say that only models of transformer
    blocks, and runs with classes, have it.

    Example:
        >>> @dataclasses.dataclass
        ... class Settings:
        ...     rate: float = setting(0.1, "The rate.", ABOVE_0)
        >>> check_limits(Settings(rate=-1))
        Traceback (most recent call last):
        ...
        ValueError: rate must be above 0, got -1.
    """
    if choices:
        one_of = "one of " * (len(choices) > 1) + ", ".join(choices)
        limits += ((one_of, lambda value: value in tuple(choices)),)
    if isinstance(choices, dict):
        titles = (f"{name}: {choice.title}" for name, choice in choices.items())
        usage = f"{usage} {'; '.join(titles)}."
    metadata = {"usage": usage, "group": group, "limits": limits, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata | more)


def kinds(field: dataclasses.Field) -> tuple:
    """Returns the types of a field, a tuple: `(int, NoneType)` of `int | None`."""
    is_union = isinstance(field.type, types.UnionType)
    return typing.get_args(field.type) if is_union else (field.type,)


def check_limits(settings: Any) -> None:
    """Raises a `ValueError` that names a setting whose value is out of its limits."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is None and types.NoneType in kinds(field):
            continue
        finite = (f"finite, and at most {FLOAT:g}", _is_finite)
        for text, holds in (finite, *field.metadata["limits"]):
            if not holds(value):
                raise ValueError(f"{field.name} must be {text}, got {value!r}.")


def _is_finite(value):
    values = value if isinstance(value, (tuple, list)) else (value,)
    # NaN compares as false.
    return all(abs(real) <= FLOAT for real in values if isinstance(real, numbers.Real))


def each(limit: Limit) -> tuple:
    """Returns a limit that holds for each of several values."""
    text, holds = limit
    return f"{text} each", lambda values: all(map(holds, values))


def fitted(field: dataclasses.Field, value: Any) -> Any:
    """Converts a value, such as one from a file, to a type of a field.

    Texts of numbers are numbers, as YAML takes 1e-3 for a text, and a list of one value
    is also that value. Raises a `ValueError` where it is of none of the types.

    Example:
        >>> field = setting()
        >>> field.type = tuple[int, float] | None
        >>> fitted(field, ["2", "15"]), fitted(field, ["none"])
        ((2, 15.0), None)
    """
    if value == AUTO and field.metadata.get("takes_auto"):
        return value
    # Try text last, as it may be a number.
    for kind in sorted(kinds(field), key=lambda kind: kind is str):
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            return _fitted(value, kind)
    raise ValueError(value)


def _fitted(value, kind):
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        kinds = typing.get_args(kind)
        if kinds[-1] is Ellipsis:
            kinds = kinds[:1] * len(value)
        return tuple(_fitted(*pair) for pair in zip(value, kinds, strict=True))
    if isinstance(value, list) and len(value) == 1:
        [value] = value
    if kind is types.NoneType and value in (None, "none"):
        return None
    if kind in (int, float) and isinstance(value, str):
        return kind(value)
    if kind is float and type(value) is int:
        return float(value)
    if kind is ViTConfig and isinstance(value, dict):
        return ViTConfig(**value)
    if type(value) is kind:
        return value
    raise ValueError(value)

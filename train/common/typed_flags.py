"""The flags in a command line as it was typed."""

import shlex
from collections.abc import Iterable

# These flags may stand without a value.
_SWITCHES = ("skip_corrupt", "extend", "find_learning_rate")


def flags_in(command: str, names: Iterable[str]) -> list[str]:
    """Returns the flags of some names in a command line, as `--name=value`.

    Example:
        >>> flags_in("keras-vit finetune a.csv --bits 12 --skip_corrupt", ["bits"])
        ['--bits=12']
    """
    return _parted(command, names)[0]


def without_flags(command: str, names: Iterable[str]) -> list[str]:
    """Returns the words of a command line but the flags of some names.

    Example:
        >>> without_flags("keras-vit finetune a.csv --bits 12 --extend", ["bits"])
        ['keras-vit', 'finetune', 'a.csv', '--extend']
    """
    return _parted(command, names)[1]


def _parted(command, names):
    """Returns the flags of some names, each with its value, and the other words."""
    words, names, found, others = iter(shlex.split(command)), {*names}, [], []
    for word in words:
        name, has_value, _ = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in names:
            others.append(word)
        elif has_value or name in _SWITCHES:
            found.append(word)
        else:
            found.append(f"--{name}={next(words, '')}")
    return found, others

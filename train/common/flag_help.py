"""The page that `--help` prints: the flags of a command by purpose."""

import contextlib
import sys
from collections.abc import Iterable, Sequence

from absl import flags

from keras_vit_start import styled, typed
from zoo.common.safe_text import as_flags

_DASHED = ("help", "helpshort", "helpfull")
_ASKING = {f"{dashes}{name}" for dashes in ("-", "--") for name in _DASHED}
_ASKING |= {"-?", "-h"}
# The page shows flags in this order. Settings of recipes, which name their group, take
# the place of the asterisk.
GROUPS = {
    "Data": "dataset data_dir image_column label_column split_column skip_corrupt "
    "without relabel split real_labels * images bits",
    "Model": "* model weights image_size central_crop class features probe",
    "Optimization": "* batch_size find_learning_rate",
    "Augmentation": "*",
    "Search": "*",
    "Study": "study seeds learning_rates * shots",
    "Run": "recipe config print_config smoke seeds extend resume * measure shown trust",
    "Devices": "strategy mesh * runner workers precision engine threads",
    "Export": "format min_agreement calibration_images dynamic_batch any_size uint8",
    "Output": "run_dir out_dir out parts json cache output to name license replace "
    "push_to private top sort_into gallery unsure ask overwrite verbose",
}
# Settings of the current command are listed here by group.
_SETTINGS = {}


def add_setting(name: str, group: str) -> None:
    """Shows a flag in a group, after the settings of the group that it has."""
    _SETTINGS.setdefault(group, []).append(name)


def is_asked_for(arguments: Iterable[str]) -> bool:
    """Returns whether the words of a command line ask for the page."""
    return not _ASKING.isdisjoint(arguments)


def parse_others(argv: Sequence[str]) -> list:
    """Parses the flags beside those that ask for the page, as far as they are right.

    Returns the words of which the first, unless it is a flag, is the data set.
    """
    others = [argv[0], *(word for word in argv[1:] if word not in _ASKING)]
    with contextlib.suppress(flags.Error, ValueError):
        flags.FLAGS(others, known_only=True)
    return [word for word in others[1:2] if not word.startswith("-")]


def of_command() -> dict:
    """Returns the flags of the command that runs, a dict by name."""
    key_flags = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    return {flag.name: flag for flag in key_flags}


def in_flags(text: str) -> str:
    """Returns a message with the names of Python's arguments written as flags."""
    flags_of = {name: f"--{name}" for name in of_command()}
    return as_flags(text, flags_of | {"zoo.list_models()": f"{typed('zoo')} list"})


def page(title: str, text: str) -> str:
    """Returns the page of a command: how it is called, its docstring, its flags."""
    left = of_command()
    parts = [styled(title, "title", sys.stdout), text.strip()]
    for group, names in {**GROUPS, "Other": " ".join(left)}.items():
        names = names.replace("*", " ".join(_SETTINGS.get(group, ())))
        own = [left.pop(name) for name in names.split() if name in left]
        if own:
            rows = [styled(group, "title", sys.stdout), *map(_row, own)]
            parts.append("\n".join(rows))
    return "\n\n".join(parts)


def _row(flag):
    alone = flags.FlagValues()
    alone[flag.name] = flag
    return alone.get_help(prefix="  ", include_special_flags=False).strip("\n")

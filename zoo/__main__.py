"""The catalogue and the cache from the command line.

$ keras-vit zoo list '*augreg*'

Exit codes: 0 it worked, 1 it failed (why is on the error stream, a line each), 2 the
command was not understood.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import NamedTuple

import zoo
from keras_vit_start import typed
from zoo import commands
from zoo.files.checkpoint import NAMINGS


class _Command(NamedTuple):
    """One subcommand: what it does, an example, its arguments and its function."""

    help: str
    example: str
    arguments: dict
    run: object


_COMMANDS = {
    "list": _Command(
        "list the released models",
        "list '*augreg*'",
        {
            "pattern": {
                "nargs": "?",
                "default": "*",
                "help": "shell pattern of handles; 'augreg/*' is every AugReg file",
            }
        },
        commands.run_list,
    ),
    "info": _Command(
        "show what is known of a model",
        "info vit-b16/imagenet21k",
        {"handle": {"help": "of the model, or the name of an AugReg file"}},
        commands.run_info,
    ),
    "download": _Command(
        "download models and print where they are",
        "download vit-b16/imagenet21k vit-ti16/augreg-imagenet21k",
        {"handles": {"nargs": "+", "metavar": "handle", "help": "of a model"}},
        commands.run_download,
    ),
    "verify": _Command(
        "check every byte of downloaded files",
        "verify vit-b16/imagenet21k",
        {
            "handles": {
                "nargs": "*",
                "metavar": "handle",
                "help": "of a downloaded model; without one, all files in the cache",
            }
        },
        commands.run_verify,
    ),
    "convert": _Command(
        "write a checkpoint in another format",
        "convert vit-b16/imagenet21k vit-b16.safetensors",
        {
            "source": {"help": "a file, a URL or a handle"},
            "destination": {"help": "the file to write; its extension is the format"},
            "--naming": {
                "choices": NAMINGS,
                "default": NAMINGS[0],
                "help": "whose names the arrays get, %(default)s by default",
            },
            "--num-heads": {
                "type": int,
                "help": "of the source's attention, where its file does not tell",
            },
        },
        commands.run_convert,
    ),
    "where": _Command(
        "show the cache and what decides where it is", "where", {}, commands.run_where
    ),
}


class _Parser(argparse.ArgumentParser):
    """Help that opens with an example."""

    def __init__(self, *args, example, **kwargs):
        super().__init__(*args, **kwargs)
        self.example = example

    def format_help(self):
        return f"$ {typed('zoo')} {self.example}\n\n{super().format_help()}"


def _parser():
    parser = _Parser(
        prog=typed("zoo"),
        example=_COMMANDS["list"].example,
        description="Released Vision Transformers: what there is, and its files.",
        epilog="Exit codes: 0 it worked, 1 it failed, 2 it was not understood.",
    )
    parsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, command in _COMMANDS.items():
        sub = parsers.add_parser(name, help=command.help, example=command.example)
        for argument, options in command.arguments.items():
            sub.add_argument(argument, **options)
        sub.add_argument(
            "--json",
            dest="as_json",
            action="store_true",
            help="print one JSON document",
        )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: list of str, the arguments; by default those of the process.

    Returns:
        int, the exit code.

    Raises:
        SystemExit: after help, or where the command was not understood.

    Example:
        >>> from zoo.__main__ import main
        >>> main(["info", "vit-b17/sam"])
        1
    """
    given = vars(_parser().parse_args(argv))
    command = _COMMANDS[given.pop("command")]
    try:
        return command.run(**given)
    except BrokenPipeError:
        # Whoever read the output has enough; nothing more is flushed at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (zoo.CatalogError, zoo.CheckpointError, OSError) as error:
        commands.complain(error)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

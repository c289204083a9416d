"""Gives a command wrong lines and bad values, where TensorFlow cannot be imported.

Prints a JSON object: "lines" has what comes of each line of standard input, "flags" a
list of [flag, value, outcome]. An outcome is what the command prints on standard error,
"goes on" where it would start its work, or a traceback.
"""

import contextlib
import dataclasses
import importlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shlex
import sys
import traceback

from absl import flags
from absl.testing import flagsaver

from train.common import command_line, flag_help
from train.recipes.recipe import Recipe

WORDS = {
    "few_shot": ["vit-ti16/augreg-imagenet21k", "--dataset=digits"],
    "evaluate": ["vit-ti16/augreg-imagenet21k", "--dataset=digits"],
    "predict": ["vit-ti16/augreg-imagenet21k", "photo.jpg"],
    "explain": ["vit-ti16/augreg-imagenet21k", "photo.jpg"],
    "export": ["vit-ti16/augreg-imagenet21k", "--format=onnx", "--out=exported"],
    "publish": ["run", "--to=registry"],
    "compare": ["run", "run"],
    "study": ["--study=learning_rates", "--dataset=digits"],
}
NUMBERS = ["x", "nan", "inf", "-inf", "1e39", "1e400", "-1e400", "1" + 400 * "0"]
NUMBERS += ["1" + 5000 * "0", "-1", "-0", "0", "1e-400", "0,0", "1,", ",", "", "½"]
PATHS = ["~nobody_here/y", "", "\udcff", "a" * 5000, "/dev/null/x"]
SETTINGS = ["[1]", "[]", "{}", "x", "''", ".inf", "-.inf", ".nan", "1e39", "1e400"]
SETTINGS += ["1" + 400 * "0", "1" + 5000 * "0", "true", "null", "~nobody_here/y"]
SETTINGS += ["-1", "[[1]]", "{a: 1}", "[.nan, 1]", "[1, .inf]", "2020-01-01"]
SETTINGS += ["!!timestamp x", "!!bool x", "!!binary aGk=", "!!set {a}", r'"\0"']
SETTINGS += [r'"\uD800"', "[0, 0]", f"[1{400 * '0'}, 2]"]
GOES_ON = "goes on"


class Work(BaseException):
    """What the command would do once its flags are right."""


class NoWork:
    """Finds what the work is done with, and refuses to load it."""

    def find_spec(self, name, path=None, target=None):
        if name in ("tensorflow", "keras", "jax", "torch"):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        raise Work

    def exec_module(self, module):
        """Is not reached."""


def outcome(module, words):
    """Returns what comes of the words after the name of a command."""
    errors = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    saved = flagsaver.save_flag_values()
    sys.argv = [module.__name__, "--verbose", *words]
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(errors):
            command_line.run(module.main)
    except SystemExit as end:
        if end.code == 1:
            errors.seek(0)
            return errors.read()
        return f"status {end.code!r}"
    except Work:
        return GOES_ON
    except BaseException:
        return traceback.format_exc()
    finally:
        flagsaver.restore_flag_values(saved)
        flags.FLAGS.unparse_flags()


def of_flags(module, words):
    """Returns the outcomes of bad values of each flag."""
    return [
        [flag, value, outcome(module, [*words, f"--{flag}={value}"])]
        for flag in flag_help.of_command()
        for value in [*NUMBERS, *PATHS]
    ]


def of_settings(module):
    """Returns the outcomes of bad values of each setting in the file of --config."""
    found = []
    for field in dataclasses.fields(Recipe):
        for value in SETTINGS:
            text = f"{field.name}: {value}\n"
            text += "" if field.name == "dataset" else "dataset: digits\n"
            pathlib.Path("settings.yaml").write_text(text)
            found.append(
                [field.name, value, outcome(module, ["--config=settings.yaml"])]
            )
    return found


def main(command):
    """Prints the outcomes of a command."""
    name = f"train.{command}"
    is_package = importlib.util.find_spec(name).submodule_search_locations
    module = importlib.import_module(f"{name}.__main__" if is_package else name)
    sys.modules["__main__"] = module
    sys.argv[0] = module.__name__
    sys.meta_path.insert(0, NoWork())
    lines = {line: outcome(module, shlex.split(line)) for line in json.load(sys.stdin)}
    found = of_settings(module) if command == "finetune" else []
    found += of_flags(module, WORDS.get(command, ["--dataset=digits"]))
    print(json.dumps({"lines": lines, "flags": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Gives every flag of a command bad values, where TensorFlow cannot be imported.

Prints a JSON list of [flag, value, outcome]; an outcome is the message of the error,
"goes on" where the command would start its work, or a traceback.
"""

import contextlib
import dataclasses
import importlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import traceback

from absl import app, flags
from absl.testing import flagsaver

from train.common import command_line, flag_help
from train.recipes.recipe import Recipe

WORDS = {
    "few_shot": ["MODEL", "--dataset=digits"],
    "evaluate": ["MODEL", "--dataset=digits"],
    "predict": ["MODEL", "PHOTO"],
    "explain": ["MODEL", "PHOTO"],
    "export": ["MODEL", "--format=onnx", "--out=exported"],
    "publish": ["RUN", "--to=registry"],
    "compare": ["RUN", "RUN"],
    "study": ["--study=learning_rates", "--dataset=digits"],
}
NUMBERS = ["x", "nan", "inf", "-inf", "1e400", "-1e400", "1" + 400 * "0"]
NUMBERS += ["1" + 5000 * "0", "-1", "-0", "0", "1e-400", "0,0", "1,", ",", "", "½"]
PATHS = ["~nobody_here/y", "", "\udcff", "a" * 5000, "/dev/null/x"]
# Of settings in YAML.
VALUES = ["[1]", "[]", "{}", "x", "''", ".inf", ".nan", "1e400", "1" + 400 * "0"]
VALUES += ["1" + 5000 * "0", "true", "null", "~nobody_here/y", "-1", "[[1]]", "{a: 1}"]
VALUES += ["[.nan, 1]", "2020-01-01", "!!timestamp x", "!!bool x", "!!binary aGk="]
VALUES += ["!!set {a}", r'"\0"', r'"\uD800"', "[0, 0]", f"[1{400 * '0'}, 2]"]
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


def outcome(main, argv):
    """Returns what comes of a command line."""
    errors = io.TextIOWrapper(io.BytesIO())
    saved = flagsaver.save_flag_values()
    try:
        with contextlib.redirect_stdout(errors), contextlib.redirect_stderr(errors):
            main(command_line.parsed(argv))
    except (flags.Error, app.UsageError) as error:
        return str(error)
    except SystemExit as end:
        return str(end.code)
    except Work:
        return GOES_ON
    except BaseException:
        return traceback.format_exc()
    finally:
        flagsaver.restore_flag_values(saved)
        flags.FLAGS.unparse_flags()
    return GOES_ON


def of_settings(main):
    """Returns the outcomes of bad values of each setting in the file of --config."""
    found = []
    for field in dataclasses.fields(Recipe):
        for value in VALUES:
            text = f"{field.name}: {value}\n"
            text += "" if field.name == "dataset" else "dataset: digits\n"
            pathlib.Path("settings.yaml").write_text(text)
            argv = ["train.finetune", "--config=settings.yaml"]
            found.append([field.name, value, outcome(main, argv)])
    return found


def main(command, model, photo, run):
    """Prints the outcome of each value of each flag of a command."""
    name = f"train.{command}"
    file = importlib.util.find_spec(name)
    module = importlib.import_module(
        f"{name}.__main__" if file.submodule_search_locations else name
    )
    known = {"MODEL": model, "PHOTO": photo, "RUN": run}
    words = [known.get(word, word) for word in WORDS.get(command, ["--dataset=digits"])]
    sys.meta_path.insert(0, NoWork())
    found = of_settings(module.main) if command == "finetune" else []
    sys.argv[0] = module.__name__
    for flag in flag_help.of_command():
        for value in [*NUMBERS, *PATHS]:
            argv = [name, *words, f"--{flag}={value}"]
            found.append([flag, value, outcome(module.main, argv)])
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

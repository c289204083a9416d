"""Runs the commands of the pages, cut down to seconds."""

import configparser
import dataclasses
import glob
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import time

import doc_reader
import quick_xla
from doc_blocks import ROOT, PageError
from fork_server import PYTHON, ForkServer

import keras_vit_start
import zoo
from zoo.network import NETWORKS

TRAINING = ("finetune", "pretrain", "masked_patches", "study")
# The commands of a given model, and the flag that says where they write, or where.
WRITTEN = {
    "evaluate": ("out_dir", "runs/evaluations"),
    "few_shot": ("out_dir", "runs/evaluations"),
    "explain": ("out", "explanation"),
    "export": ("out", "exported"),
}
# These flags only cost time, and take the place of what a page gives. With --smoke and
# no --model the model is tiny, so that the size of the images may stay.
SHORT = {"steps": "8", "eval_every": "4", "checkpoint_every": "4", "batch_size": "16"}
SHORT |= {"seeds": "1", "epochs": "1", "minutes": "0.1"}
# The test of a reader's run has six photos, whose answers prove little.
SHORT["unsure"] = "0.1"
# Released models get these.
SMALL_IMAGES = {"image_size": "64"}
FEW_STEPS = {"steps": "2", "batch_size": "4", "eval_every": "2"}
# The one run of each study.
STUDIES = {
    "learning_rates": {"learning_rates": "0.01"},
    "examples": {"models": "ViT-Ti_16", "subsets": "100%"},
    "compute": {"models": "ViT-Ti_16", "step_counts": "8"},
    "positions": {"positions": "2d"},
    "vtab": {"tasks": "dtd"},
}


class Skipped(Exception):
    """A command needs what is not installed."""


@dataclasses.dataclass
class Reader:
    """Somebody who types the commands of one page.

    Attributes:
        folder: where they are.
        forks: `ForkServer`, which runs the commands.
        seen: set, the commands of all pages that were run to their end.
        environment: dict, what was exported.
        later: str, the code of the page that follows the command.
    """

    folder: pathlib.Path
    forks: ForkServer
    seen: set
    environment: dict = dataclasses.field(default_factory=dict)
    later: str = ""

    def type(self, command, later):
        """Does what a command says; `later` is the code that follows."""
        self.later = later
        _, handler = rule_of(command)
        begin = time.monotonic()
        handler(self, command)
        print(f"{time.monotonic() - begin:5.1f} s  {command.place}  {command.text}")

    def run(self, command, words, status=0, **environment):
        """Runs a command; returns what it printed."""
        environment |= self.environment | command.environment
        if words[0] == "keras-vit":
            words = ["python", keras_vit_start.module(words[1]), *words[2:]]
        code, output = self.forks.run(words[1:], self.folder, environment)
        if code != status:
            raise PageError(
                f"{command.place}: {' '.join(words)} ended with {code}:\n"
                f"{output[-3000:]}"
            )
        return output


def run_whole(reader, command):
    """Runs a command as it is."""
    reader.run(command, command.words)


def run_short(reader, command):
    """Runs a command with what costs time cut down.

    It ends where its work begins, unless the page goes on with what it leaves, or it is
    the first of its name.
    """
    words = [smallest(word) for word in command.words]
    given = dict(
        word[2:].partition("=")[::2] for word in words if word.startswith("--")
    )
    name = words[1]
    used = what_is_used(reader, name, given)
    more = {flag: value for flag, value in SHORT.items() if flag in given}
    if given.get("batch_size") == "auto":
        del more["batch_size"]
    if name == "finetune" and "seeds" in given:
        more["seeds"] = "2"
    if name in TRAINING:
        more |= short_training(name, given)
        words = without_model(words, given)
        run_dir = given.get("run_dir")
        if run_dir in doc_reader.RUNS:  # the page makes it itself
            shutil.rmtree(reader.folder / run_dir, ignore_errors=True)
        if "smoke" not in given:
            words.append("--smoke")
            # Without its name, which would say so.
            more |= {"run_dir": used} if used else {}
    large = any(re.match(r"(--model=)?(vit-|WEIGHTS|.*ViT)", word) for word in words)
    if name in WRITTEN and large:
        more |= SMALL_IMAGES
    if name == "explain":
        more["shown"] = "1"
    if name == "few_shot":
        more |= {"shots": "1", "seeds": "1"}
    if name == "check" and "model" not in given:
        more["model"] = smallest("vit-ti16/augreg-imagenet21k")
    if name == "export" and f"{given['out']}/" not in (used or ""):
        more["format"] = given["format"].replace("all", "onnx").split(",")[-1]
    prepare(reader, given | more)
    # The last of a flag that is given twice counts; both must be right.
    words += [f"--{flag}={value}" for flag, value in sorted(more.items())]
    is_whole = used or name not in reader.seen
    reader.run(command, words, **({} if is_whole else {"UNTIL": "the work"}))
    reader.seen.add(name)


def what_is_used(reader, name, given):
    """Returns what the page goes on with of what a command leaves, None for nothing.

    It is the directory of a run; and for the others the code that comes before they
    write there again.
    """
    if name in TRAINING:
        if "run_dir" in given:
            return given["run_dir"] if given["run_dir"] in reader.later else None
        left = f"runs/{pathlib.Path(given['dataset']).stem}"
        found = re.findall(rf"(?<!run_dir=){re.escape(left)}[\w-]*", reader.later)
        return next((one for one in found if not (reader.folder / one).exists()), None)
    if name not in WRITTEN:
        return reader.later or "the end"
    flag, default = WRITTEN[name]
    left = given.get(flag, default)
    later = re.split(rf"={re.escape(left)}(?!\S)", reader.later)[0]
    return later if left in later else None


def smallest(word):
    """Puts the smallest release in place of a released model that a word names."""
    found = re.fullmatch(r"(--model=)?(vit-\w+/.*)", word)
    if not found:
        return word
    zoo.get(found[2])
    return f"{found[1] or ''}vit-ti16/augreg-imagenet21k+imagenet2012"


def short_training(name, given):
    """Returns further flags that keep a run of training short."""
    more = {**STUDIES[given["study"]], "seeds": "1"} if name == "study" else {}
    if is_released(given):
        more |= FEW_STEPS | SMALL_IMAGES | {"model": "ViT-Ti_16"}
        if given.get("model", "ViT-Ti_16") != "ViT-Ti_16":
            more["weights"] = "augreg-imagenet21k"
    if name == "pretrain":
        more["validation_fraction"] = "0.1"
    return more


def is_released(given):
    """Whether a training starts from a release, which is of no tiny model."""
    weights = given.get("weights", "none")
    return weights == "WEIGHTS" or (weights != "none" and "." not in weights)


def without_model(words, given):
    """Takes the model out, so that --smoke makes it a tiny one."""
    if "model" not in given or is_released(given):
        return words
    if given["model"] not in NETWORKS:
        raise PageError(f"there is no model {given['model']!r}")
    return [word for word in words if not word.startswith("--model=")]


def prepare(reader, given):
    """Prepares the data set of a command, if it is one of TensorFlow Datasets."""
    from train.data.sources.vtab import TASKS

    dataset = given.get("dataset", "digits")
    if dataset == "digits" or glob.glob(dataset, root_dir=reader.folder):
        return
    if dataset.startswith("vtab"):
        task = given.get("tasks") or dataset.partition("/")[2]
        dataset = TASKS[task]["dataset"]
    doc_reader.prepare_tfds(dataset, reader.folder / "tfds")


def show_help(reader, command):
    """Runs a command with --help, which absl ends with 1."""
    if "flags:" not in reader.run(command, command.words, status=1):
        raise PageError(f"{command.place}: {command.text} shows no flags")


def run_on_backend(reader, command):
    """Runs a command on the backend that it names, in a process of its own.

    Where the page has others it is enough to see its settings.
    """
    backend = command.environment["KERAS_BACKEND"]
    if importlib.util.find_spec(backend) is None:
        raise Skipped(f"{command.place}: {backend} is not installed")
    others = f"KERAS_BACKEND={backend} " in reader.later
    xla_flags = quick_xla.flags(reader.environment.get("XLA_FLAGS", ""))
    _, name, *flags = command.words
    checked(
        command,
        [PYTHON, "-m", f"train.{name}", *flags]
        + ["--print_config" if others else "--smoke"],
        cwd=reader.folder,
        env={**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": xla_flags},
    )


def checked(command, words, **settings):
    """Runs a program, which must end well."""
    done = subprocess.run(words, capture_output=True, text=True, **settings)
    if done.returncode:
        raise PageError(f"{command.place}: {command.text}\n{done.stderr[-3000:]}")


def export(reader, command):
    """Keeps a variable for the rest of the page."""
    name, _, value = command.words[1].partition("=")
    if not value:
        raise PageError(f"{command.place}: export NAME=VALUE is what is known here")
    reader.environment[name] = value
    os.environ[name] = value  # for the page's blocks of Python


def check_requirement(reader, command):
    """Looks up what would be installed: CI has it, and no second one."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for words in re.findall(r"\.\[([\w,]+)\]", " ".join(command.words)):
        unknown = {*words.split(",")} - {*setup["options.extras_require"]}
        if unknown:
            raise PageError(f"{command.place}: setup.cfg has no extra {unknown}")


def dry_make(reader, command):
    """Asks make what it would do."""
    checked(command, ["make", "--dry-run", *command.words[1:]], cwd=ROOT)


# How commands are run: the first that matches, all of them used by some page.
RULES = {
    r"export \S+=": export,
    r"pip install ": check_requirement,
    r"make ": dry_make,
    r"KERAS_BACKEND=jax keras-vit ": run_on_backend,
    r"\S+ .*--help": show_help,
    r"keras-vit \w+ .*--(print_config|config=|extend)": run_whole,
    r"keras-vit (zoo|compare) ": run_whole,
    r"keras-vit ": run_short,
}


def rule_of(command):
    """Returns the pattern and the function for a command."""
    before = [f"{name}={value}" for name, value in command.environment.items()]
    text = " ".join([*before, *command.words])
    for pattern, handler in RULES.items():
        if re.match(pattern, text):
            return pattern, handler
    raise PageError(
        f"{command.place}: nothing says how {text!r} is tested: RULES in "
        "tests/docs/doc_commands.py are those known"
    )

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
from packaging.requirements import Requirement

import zoo
from zoo.network import NETWORKS

TRAINING = ("train.finetune", "train.pretrain", "train.masked_patches", "train.study")
# The commands of a given model, and the flag that says where they write, or where.
WRITTEN = {
    "train.evaluate": ("out_dir", "runs/evaluations"),
    "train.few_shot": ("out_dir", "runs/evaluations"),
    "train.explain": ("out", "explanation"),
    "train.export": ("out", "exported"),
}
# What only costs time: the values instead of those that a page gives. With --smoke and
# no --model the model is tiny, so that the size of the images may stay.
SHORT = {
    "steps": "8",
    "warmup_steps": "2",
    "eval_every": "4",
    "checkpoint_every": "4",
    "batch_size": "16",
    "micro_batches": "2",
    "seeds": "1",
}
SMALL_IMAGES = {"image_size": "64"}
FEW_STEPS = {"steps": "2", "batch_size": "4", "eval_every": "2"}
# The runs of each study: one, of the last that a page gives or else of this, ...
LAST = {
    "learning_rates": {"learning_rates": "0.01"},
    "examples": {"models": "ViT-Ti_16"},
    "compute": {"models": "ViT-Ti_16"},
    "positions": {"positions": "2d"},
    "vtab": {"tasks": "dtd"},
}
# ... and of this instead of what a page gives.
ONE = {"examples": {"subsets": "100%"}, "compute": {"step_counts": "8"}}


class Skipped(Exception):
    """A command needs what is not installed."""


@dataclasses.dataclass
class Reader:
    """Somebody who types the commands of one page.

    Attributes:
        folder: where they are.
        servers: dict, the `ForkServer` of each backend of Keras.
        done: dict, what the commands of all pages made.
        environment: dict, what was exported.
        later: str, the code of the page that follows the command.
    """

    folder: pathlib.Path
    servers: dict
    done: dict
    environment: dict = dataclasses.field(default_factory=dict)
    later: str = ""

    @property
    def made(self):
        """The folder above those of all readers."""
        return self.servers.folder

    def type(self, command, later):
        """Does what a command says; `later` is the code that follows."""
        self.later = later
        name, handler = rule_of(command)
        begin = time.monotonic()
        handler(self, command)
        print(f"{time.monotonic() - begin:5.1f} s  {command.place}  {command.text}")

    def until(self, path):
        """Returns the code that follows, up to the command that writes there again.

        Without runs being compared, where other pages' have been.
        """
        later = self.later
        if "train.compare" in self.done:
            later = re.sub(
                r"(?m)^\$ (python -m train\.|keras-vit )compare .*$", "", later
            )
        return re.split(rf"={re.escape(path)}(?!\S)", later)[0]

    def run(self, command, words, until="the end", status=0):
        """Runs `python -m MODULE ...`; returns what it printed."""
        environment = self.environment | command.environment
        if "XLA_FLAGS" in environment:
            # What a page exports takes the place of the server's.
            environment["XLA_FLAGS"] = quick_xla.flags(environment["XLA_FLAGS"])
        server = self.servers[environment.get("KERAS_BACKEND", "tensorflow")]
        code, output = server.run(words[2:], self.folder, environment, until)
        if code != status:
            raise PageError(
                f"{command.place}: {' '.join(words)} ended with {code}:\n"
                f"{output[-3000:]}"
            )
        return output

    def run_once(self, command, words, more, until):
        """Runs a command, with `more` flags after its own, once for all pages.

        Where another page has had it, its flags are read and the files copied.
        """
        given = flags_of(words)
        run_dir = given.get("run_dir")
        aside = [word.partition("=")[0] for word in more] + ["--run_dir"]
        own = [word for word in words if word.partition("=")[0] not in aside]
        named = run_dir or "--smoke" not in command.words
        key = (bool(named), *sorted([*own, *more]))
        if until != "the end" and key in self.done:
            self.run(command, [*words, *more], "the flags")
            return
        kept, made = self.done.get(key) or (None, None)
        if kept and (run_dir or not made):
            self.run(command, [*words, *more], "the flags")
            doc_reader.copy_tree(kept, self.folder)
            if run_dir != made:
                [default] = (kept / "runs").iterdir()
                (self.folder / "runs" / default.name).rename(self.folder / run_dir)
            return
        before = self.files()
        self.run(command, [*words, *more], until)
        if until != "the end":
            self.done[key] = None
            return
        if "smoke" in given and named and not run_dir:
            self.rename_smoke(before)
        kept = self.made / f"made-{len(self.done)}"
        for path, state in self.files().items():
            if before.get(path) != state:
                (kept / path).parent.mkdir(parents=True, exist_ok=True)
                os.link(self.folder / path, kept / path)
        self.done[key] = kept, run_dir

    def rename_smoke(self, before):
        """Calls a run as the page's command calls it, without --smoke."""
        old = {path.parts[1] for path in before if path.parts[0] == "runs"}
        for path in (self.folder / "runs").iterdir():
            target = path.with_name(path.name.replace("-smoke", ""))
            if path.name not in old and not target.exists():
                path.rename(target)

    def files(self):
        """Returns the state of each file by its path in the folder."""
        found = {}
        for path in self.folder.rglob("*"):
            if path.is_file():
                state = path.stat()
                found[path.relative_to(self.folder)] = state.st_ino, state.st_mtime_ns
        return found


def run_whole(reader, command):
    """Runs a command as it is."""
    reader.run(command, expanded(reader, command.words))


def run_short(reader, command):
    """Runs a command with what costs time cut down."""
    words = [smallest(word) for word in expanded(reader, command.words)]
    given = flags_of(words)
    module = words[2]
    more = {
        name: value
        for name, value in SHORT.items()
        if given.get(name) not in (None, "auto")
    }
    if module in TRAINING:
        more |= short_training(module, given)
        words = without_model(words, given)
        remove_a_run_of_ours(reader, given)
        if "smoke" not in given:
            words.append("--smoke")
    large = any(re.match(r"(--model=)?(vit-|WEIGHTS|.*ViT)", word) for word in words)
    if module in WRITTEN and large:
        more |= SMALL_IMAGES
    if module == "train.explain":
        more["shown"] = "1"
    if module == "train.few_shot":
        more |= {"shots": "1", "seeds": "1"}
    if module == "train.export" and f"{given['out']}/" not in reader.until(
        given["out"]
    ):
        more["format"] = given["format"].replace("all", "onnx").split(",")[-1]
    for name in ("dataset", "few_shot_dataset"):
        prepare(reader, {**given, **more}, name)
    # Of a flag that is given twice the last counts; both must be right.
    more = [f"--{name}={more[name]}" for name in sorted(more)]
    reader.run_once(command, words, more, until_when(reader, module, given))


def until_when(reader, module, given):
    """Whether a command must end, or it is enough to see its work begin.

    It must where the page goes on with what it leaves, and once for each module.
    """
    if module in TRAINING:
        left = given.get("run_dir", f"runs/{pathlib.Path(given['dataset']).stem}")
        if "run_dir" not in given and [*reader.folder.glob(f"{left}*")]:
            left = None  # the page goes on with the run that is there
    elif module in WRITTEN:
        left = given.get(*WRITTEN[module])
    else:
        return "the end"
    if module not in reader.done or left and left in reader.until(left):
        reader.done.setdefault(module)
        return "the end"
    return "the work"


def smallest(word):
    """Puts the smallest release in place of a released model that a word names."""
    found = re.fullmatch(r"(--model=)?(vit-\w+/.*)", word)
    if not found:
        return word
    zoo.get(found[2])
    return f"{found[1] or ''}vit-ti16/augreg-imagenet21k+imagenet2012"


def short_training(module, given):
    """Returns further flags that keep a run of training short."""
    more = {}
    if module == "train.study":
        for name, value in LAST[given["study"]].items():
            more[name] = given.get(name, value).split(",")[-1]
        more |= {"seeds": "1", **ONE.get(given["study"], {})}
    if is_released(given):
        more |= FEW_STEPS | SMALL_IMAGES | {"model": "ViT-Ti_16"}
        if given.get("model", "ViT-Ti_16") != "ViT-Ti_16":
            more["weights"] = "augreg-imagenet21k"
    if module == "train.pretrain":
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


def remove_a_run_of_ours(reader, given):
    """A page that makes a run itself begins without the one of the folder."""
    run_dir = reader.folder / given.get("run_dir", "runs")
    if run_dir.name in ("digits", "photos-ViT-Ti_16") and run_dir.exists():
        shutil.rmtree(run_dir)


def prepare(reader, given, name):
    """Prepares the data set of a command, if it is one of TensorFlow Datasets."""
    from train.data.sources.vtab import TASKS

    dataset = given.get(name, "digits")
    if dataset == "digits" or glob.glob(dataset, root_dir=reader.folder):
        return
    tasks = [dataset.partition("/")[2]]
    if dataset == "vtab":
        tasks = given["tasks"].split(",")
    if dataset.startswith("vtab"):
        datasets = [TASKS[task].dataset for task in tasks if task in TASKS]
    else:
        datasets = [dataset]
    for one in datasets:
        doc_reader.prepare_tfds(one, reader.made / doc_reader.TFDS)


def flags_of(words):
    """Returns the flags of a command by name."""
    found = {}
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            after = words[index + 1] if index + 1 < len(words) else ""
            found[name] = value if equals or after.startswith("-") else after
    return found


def expanded(reader, words):
    """Expands patterns of files as a shell does."""
    found = []
    for word in words:
        files = [] if word.startswith("-") else glob.glob(word, root_dir=reader.folder)
        found += sorted(files) if "*" in word and files else [word]
    return found


def compare(reader, command):
    """Compares runs of the page, once for all pages."""
    if "train.compare" in reader.done:
        only_flags(reader, command)
    else:
        run_whole(reader, command)
        reader.done["train.compare"] = None


def only_flags(reader, command):
    """Lets the command read its flags, and no more."""
    reader.run(command, expanded(reader, command.words), "the flags")


def show_help(reader, command):
    """Runs a command with --help, which absl ends with 1."""
    if "flags:" not in reader.run(command, command.words, status=1):
        raise PageError(f"{command.place}: {command.text} shows no flags")


def run_on_backend(reader, command):
    """Runs a command on the backend that it names; up to its work, if others follow."""
    backend = command.environment["KERAS_BACKEND"]
    if importlib.util.find_spec(backend) is None:
        raise Skipped(f"{command.place}: {backend} is not installed")
    smoke = [] if "--smoke" in command.words else ["--smoke"]
    until = "the work" if f"KERAS_BACKEND={backend} " in reader.later else "the end"
    reader.run(command, [*command.words, *smoke], until)


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
    extras = setup["options.extras_require"]
    for word in command.words[2:]:
        if word == "-e":
            continue
        text = word.replace(".[", "keras_vit[") if word.startswith(".") else word
        requirement = Requirement(text)
        if requirement.name == "keras_vit":
            unknown = requirement.extras - set(extras)
            if unknown:
                raise PageError(f"{command.place}: setup.cfg has no extra {unknown}")


def dry_make(reader, command):
    """Asks make what it would do."""
    done = subprocess.run(
        ["make", "--dry-run", *command.words[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise PageError(f"{command.place}: {command.text}\n{done.stderr}")


# How commands are run: the first that matches, all of them used by some page.
RULES = {
    r"export \S+=": export,
    r"pip install ": check_requirement,
    r"make ": dry_make,
    r"KERAS_BACKEND=jax python -m train": run_on_backend,
    r"python -m \S+( .*)? --help": show_help,
    r"python -m train\.compare ": compare,
    r"python -m train\.\w+ .*--(print_config|config=)": run_whole,
    # Of a run that is cut down, and may have no end.
    r"python -m train\.\w+ .*--extend": only_flags,
    r"python -m train\.": run_short,
    r"python -m zoo ": run_whole,
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

"""The flags of a run, one for each setting of a recipe that people change."""

import dataclasses
import functools
import pkgutil
import re
import sys
import typing
from collections.abc import Callable, Iterable, Sequence

from absl import app, flags

from train import tasks
from train.common import command_line, flag_help, setting
from train.common.errors import RunError
from train.data import data_flags, early_checks, registry
from train.data.columns import of_settings
from train.data.options import DataOptions
from train.recipes import Recipe
from train.run import settings

# Flags belong to the command that defines them, in its --help too.
flags.disclaim_key_flags()

# Packages that every run imports, which are checked for before it starts.
PACKAGES = ("tensorflow", "PIL", "jinja2", "matplotlib", "scipy", "tensorboard")
# The report of a classifier needs further packages.
CLASSIFIER_PACKAGES = (*PACKAGES, "sklearn")

# Flags of the data that are no settings of a recipe.
_OF_DATA = ("data_dir", "skip_corrupt", "without", "relabel")
# A message after Ctrl-C says this.
INTERRUPTED = "what the run directory holds is whole"


class _NumberOrAuto(flags.IntegerParser):
    syntactic_help = "an integer, or auto"

    def parse(self, argument: str | int) -> str | int:
        return argument if argument == "auto" else super().parse(argument)


class _OnOrOff(flags.BooleanParser):
    syntactic_help = "yes or no"

    def parse(self, argument: str | bool) -> bool:
        words = {"yes": True, "on": True, "no": False, "off": False}
        return words[argument] if argument in words else super().parse(argument)


class _Mesh(flags.ArgumentParser):
    syntactic_help = "such as data:2,model:4"

    def parse(self, argument: str) -> str:
        data, model = "data:[1-9][0-9]{0,5}", "model:[1-9][0-9]{0,5}"
        if not re.fullmatch(f"{data}(,{model})?|{model}(,{data})?", argument):
            raise ValueError("pass the devices of each axis, such as data:2,model:4")
        return argument


def _define_on_or_off(name, default, help, flag_values):
    """Defines a flag that takes --name, --noname and --name=no."""
    parser, serializer = _OnOrOff(), flags.ArgumentSerializer()
    flag = flags.Flag(parser, serializer, name, default, help, boolean=True)
    flags.DEFINE_flag(flag, flag_values)


# The first of these types that a field has decides how its flag is written.
_DEFINITIONS = {
    tuple: flags.DEFINE_list,
    bool: _define_on_or_off,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def define_settings(
    fields: Iterable[dataclasses.Field],
    flag_values: flags.FlagValues = flags.FLAGS,
    has_defaults: bool = False,
) -> None:
    """Defines a flag for each field that has a group, by default of None."""
    for field in fields:
        if not field.metadata["group"]:
            continue
        default = field.default if has_defaults else None
        default = list(default) if isinstance(default, tuple) else default
        flag_help.add_setting(field.name, field.metadata["group"])
        described = {"help": field.metadata["usage"], "flag_values": flag_values}
        kinds = {typing.get_origin(kind) or kind for kind in setting.kinds(field)}
        if choices := field.metadata["choices"]:
            flags.DEFINE_enum(field.name, default, list(choices), **described)
        elif field.metadata.get("takes_auto"):
            flags.DEFINE(_NumberOrAuto(), field.name, default, **described)
        else:
            kind = next(kind for kind in _DEFINITIONS if kind in kinds)
            _DEFINITIONS[kind](field.name, default, **described)


def define(recipes: str, otherwise: str, recipe_class: type[Recipe] = Recipe) -> None:
    """Defines the flags; `recipes` and `otherwise` complete the help of `--recipe`."""
    data_flags.define_data("that of --config")
    data_flags.define_corrections()
    flags.DEFINE_string(
        "config",
        None,
        "A file of settings, .yaml or .json, such as the config.json of a run, whose "
        "values override the recipe's. Flags override both.",
    )
    flags.DEFINE_boolean(
        "print_config",
        False,
        "Show all settings with where each comes from, and do nothing else. What is "
        "shown is a file for --config.",
    )
    flags.DEFINE_string(
        "recipe",
        None,
        f"What the run does, one of {recipes}; {otherwise} if not given.",
    )
    flags.DEFINE_boolean(
        "smoke",
        False,
        "Cut the recipe down to a minute, with a tiny model of random weights and few "
        "images, to see that all works. Other flags still hold: to try it with real "
        "weights, give --model and --weights.",
    )
    flags.DEFINE_string(
        "run_dir", None, "Directory of the run; runs/DATASET-MODEL if not given."
    )
    flags.DEFINE_boolean(
        "extend",
        False,
        "Train on from the end of a finished run, with more --steps: its weights, "
        "optimizer and order of images go on. The learning rate of each further step "
        "is that of a run of the new --steps: after a decay to zero it rises at once.",
    )
    flags.DEFINE_boolean(
        "find_learning_rate",
        False,
        "Do not train, but find a learning rate in a hundred steps: the curve and a "
        "suggestion are in learning_rate/report.md of the run directory, and in "
        "TensorBoard.",
    )
    flags.DEFINE_enum(
        "strategy",
        "auto",
        ["auto", "one", "mirrored", "multiworker", "tpu", "sharded"],
        "The devices: one; mirrored, all of this machine; multiworker, those of all "
        "machines that TF_CONFIG names, each of which gets this command; tpu, which "
        "TPU_NAME names; auto, what is there. With KERAS_BACKEND=jax in the "
        "environment the model runs on JAX: on one; mirrored; tpu, the chips of this "
        "machine; auto, all that JAX sees; or sharded, which cuts the model, for those "
        "that do not fit on one device, see --mesh.",
    )
    flags.DEFINE(
        _Mesh(),
        "mesh",
        None,
        "The devices of --strategy=sharded, such as data:2,model:4: so many parts of "
        "each batch, and of the model. model must divide the heads. An axis that is "
        "left out has the other devices; if not given, all are on model.",
    )
    define_settings(dataclasses.fields(recipe_class))


def perform(
    argv: Sequence[str],
    command: str,
    recipes: str,
    packages: Sequence[str],
    task: str | None,
    next_steps: Callable[[Recipe, dict], list],
    instead: Callable[[Recipe, dict], tuple[dict, str] | None] = (
        lambda recipe, keywords: None
    ),
    check_recipe: Callable[[Recipe], object] = lambda recipe: None,
    kind: str = "",
) -> None:
    """Runs a task as the command line says, and prints what came out of it.

    `argv` are the arguments that are not flags, `recipes` is the package of the recipes
    with its `for_dataset`, `packages` are what the command imports.
    `task` is module and name of a subclass of `train.run.task.Task`, imported once the
    packages are known to be installed; None for that of the recipe's `task`.
    `next_steps` takes recipe and results, and
    returns what `train.common.command_line.say_next` prints. `instead` may do something
    else with the recipe and the keywords of `training.run`: it returns the results and
    what is printed of them, or None where it is to be trained. `check_recipe` and
    `kind` are the `check` and the `kind` of `read`.
    """
    check(argv, command, packages)
    with command_line.exit_on_errors(INTERRUPTED):
        find_recipe = pkgutil.resolve_name(f"{recipes}:for_dataset")
        recipe, keywords = read(command, find_recipe, kind, check=check_recipe)
        if task is not None and recipe.task not in (None, tasks.CLASSES):
            raise RunError(
                f"--task={recipe.task} is of {command_line.typed('finetune')}: pass "
                "--task=classes here."
            )
        done = instead(recipe, keywords)
        task = pkgutil.resolve_name(task or tasks.kind_of_task(recipe.task).run)
        from train.run import learning_rate, training

        if flags.FLAGS.find_learning_rate:
            refuse("extend", "--find_learning_rate leaves no run")
            if tested := learning_rate.find(task(recipe), **keywords):
                print(learning_rate.summary(tested))
            return
        if done is None:
            extend = flags.FLAGS.extend
            results = training.run(task(recipe), extend=extend, **keywords)
            done = results and (results, task.summary(results))
        # The first worker prints for all.
        if done:
            results, summary = done
            print(summary)
            command_line.say_next(*next_steps(recipe, results))


def describe(recipes: str) -> Callable[[Sequence[str]], None]:
    """Returns a function that adds what a recipe of the package sets to `--help`."""
    find_recipe = pkgutil.resolve_name(f"{recipes}:for_dataset")
    return functools.partial(settings.add_to_help, find_recipe=find_recipe)


def to_fine_tune(recipe: Recipe, results: dict) -> list[tuple]:
    """Returns the next step after training weights: to fine-tune them."""
    if results["weights"] is None:
        return []
    values = {"weights": results["weights"], "model": recipe.model}
    words = [f"--{name}={value}" for name, value in values.items()]
    return [("finetune", "--dataset=photos/", *words)]


def check(argv: Sequence[str], command: str, packages: Sequence[str]) -> None:
    """Ends the command where packages are missing, or no data set or several."""
    data_flags.take_word(argv[1:])
    if not (flags.FLAGS.dataset or flags.FLAGS.config):
        raise app.UsageError(
            f"Give a data set: {command_line.typed(command)} photos/, --dataset, or "
            "--config with a file that names it"
        )
    command_line.need_packages(command, packages)
    command_line.need_tensorflow_or_jax(
        "The trainer", hint=" The model it saves runs on every backend."
    )


def refuse(name: str, reason: str) -> None:
    """Raises a `RunError` if a flag is given that has no effect here."""
    if flags.FLAGS[name].value:
        raise RunError(f"--{name} does nothing here, for {reason}: leave it out.")


def read(
    command: str,
    find_recipe: Callable[[str, str | None], Recipe],
    kind: str = "",
    is_dataset: bool = True,
    check: Callable[[Recipe], object] = lambda recipe: None,
) -> tuple[Recipe, dict]:
    """Returns the recipe that the flags ask for, and the keywords of `training.run`.

    `find_recipe` takes a data set, and the name of a recipe or None; `kind` is of runs
    whose directory has another name. Without `is_dataset` the data set's name stands
    for several, and is not checked. `check` refuses recipes of no use to the command.
    With `--print_config` it prints the settings, and ends the command.
    """
    values = flags.FLAGS.flag_values_dict()
    try:
        settled = settings.settle(find_recipe, values)
        settled.recipe.check()
        check(settled.recipe)
    except ValueError as error:
        sys.exit(f"error: {error}")
    recipe = settled.recipe
    # Every kind of run has another directory.
    parts = ["" if command == "finetune" else f"-{command}", values["smoke"] * "-smoke"]
    parts.append(kind and f"-{kind}")
    run_dir = values["run_dir"] or f"runs/{settled.run_name}{''.join(parts)}"
    if values["print_config"]:
        others = {
            name: (values[name], _origin(name))
            for name in (*_OF_DATA, "strategy", "mesh", "extend")
        }
        others["run_dir"] = (run_dir, _origin("run_dir"))
        print(settings.page(settled, others))
        sys.exit()
    command_line.need_packages(command, registry.kind_of(recipe.dataset).packages)
    options = DataOptions(**{name: values[name] for name in _OF_DATA})
    columns = of_settings(vars(recipe))
    dataset = recipe.dataset if is_dataset else None
    read = dataclasses.replace(options, columns=columns, task=recipe.task)
    early_checks.check(dataset, read)
    from train.engine import devices

    return recipe, {
        "run_dir": run_dir,
        "data_options": options,
        "devices": devices.start(values["strategy"], values["mesh"]),
        "command": command_line.as_typed(command),
    }


def _origin(name):
    return settings.OF_FLAG if flags.FLAGS[name].present else settings.DEFAULT

"""The flags of a run, one for each setting of a recipe that people change."""

import dataclasses
import functools
import pkgutil
import sys

from absl import app, flags

from train.common import command_line
from train.common.errors import RunError
from train.data import data_flags, registry
from train.data.finding import check as check_data
from train.data.registry import CROPS
from train.engine.choices import LOSSES, OPTIMIZERS, PRECISIONS, SCHEDULES, titles
from train.recipes.recipe import AUTO
from train.run import config_file, help_text, settings

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()

# What every run imports, by the names that Python has: checked for before it starts.
PACKAGES = ("tensorflow", "PIL", "jinja2", "matplotlib", "tensorboard")
# What the report of a classifier imports besides.
CLASSIFIER_PACKAGES = (*PACKAGES, "scipy", "sklearn")

# What is left after Ctrl-C.
INTERRUPTED = "what the run directory holds is whole"


class _NumberOrAuto(flags.IntegerParser):
    syntactic_help = "an integer, or auto"

    def parse(self, argument):
        return argument if argument == "auto" else super().parse(argument)


class _OnOrOff(flags.BooleanParser):
    syntactic_help = "yes or no"

    def parse(self, argument):
        words = {"yes": True, "on": True, "no": False, "off": False}
        return words[argument] if argument in words else super().parse(argument)


def _define_on_or_off(name, default, text):
    """Defines a flag that takes --name, --noname and --name=no."""
    flags.DEFINE_flag(
        flags.Flag(
            _OnOrOff(), flags.ArgumentSerializer(), name, default, text, boolean=True
        )
    )


def _define_number_or_auto(name, default, text):
    flags.DEFINE(_NumberOrAuto(), name, default, text, flags.FLAGS)


# Help by name; `train.recipes.Recipe` checks the values.
_FLAGS = {
    flags.DEFINE_string: {
        "model": "A released variant such as ViT-B_16 or R50+ViT-B_16; what brings its "
        "weights, such as dinov2-s14/lvd142m, hf://org/name or the path of a file; or "
        "to compare with, BiT-R50x1 or ResNet50V2.",
        "weights": "Of a variant: a release such as imagenet21k or augreg-imagenet21k, "
        "the path or URL of a released .npz, or none for random weights.",
    },
    _define_on_or_off: {
        "frozen": "Train the head alone: a linear probe.",
        "remat": "Recompute the blocks' activations for the gradient, to need less "
        "memory.",
        "flip": "Mirror half of the training images; --flip=no where left and right "
        "differ, as in text.",
    },
    flags.DEFINE_integer: {
        "steps": "Training steps.",
        "warmup_steps": "Steps of rising learning rate. Keeps its share of the steps "
        "if not given.",
        "lora_rank": "Train the head and products of this rank added to queries and "
        "values (LoRA).",
        "early_stopping": "Stop after so many validations without a better accuracy, "
        "and take the best weights; 0 for never.",
        "train_examples": "Train on so many images only, chosen at random.",
        "seed": "Of initialisation, order, crops and dropout.",
        "eval_every": "Steps between validations.",
        "checkpoint_every": "Steps between checkpoints.",
        "explained_images": "Show the model's attention for so many held out images "
        "in TensorBoard at each validation.",
    },
    _define_number_or_auto: {
        "batch_size": "Images per step. auto: the recipe's, with --micro_batches=auto.",
        "micro_batches": "Parts in which the batch of a step is computed: more need "
        "less memory. auto: as few as fit in it. Follows batch_size if not given.",
    },
    flags.DEFINE_float: {
        "dropout_rate": "Dropout.",
        "stochastic_depth_rate": "The rate at which the last block is dropped; "
        "earlier blocks less often.",
        "head_bias": "Initial value of the head's bias.",
        "learning_rate": "The highest learning rate.",
        "weight_decay": "Decay of kernels, times the rate; with adam.",
        "layer_decay": "Factor of the learning rate from each block to the one before "
        "it.",
        "average_decay": "Decay of an exponential moving average of the weights, such "
        "as 0.9999: the averages are tested and saved (Polyak, EMA).",
        "label_smoothing": "The part of each label that is spread over all classes.",
        "validation_fraction": "Part of train held out for validation; 0 for none.",
    },
    flags.DEFINE_list: {
        "image_size": "Pixels: one number, or HEIGHT,WIDTH.",
        "class_weights": "balanced, or one number per class: the weight of its images "
        "in the loss.",
    },
}
_ENUMS = {
    "optimizer": (OPTIMIZERS, f"The optimizer. {titles(OPTIMIZERS)}."),
    "schedule": (SCHEDULES, f"The decay of the learning rate. {titles(SCHEDULES)}."),
    "momentum_dtype": (
        ("bfloat16",),
        "Dtype of the optimizer's momentum, bfloat16 as in the released code; that of "
        "the weights if not given.",
    ),
    "loss": (LOSSES, f"The loss. {titles(LOSSES)}."),
    "precision": (
        (*PRECISIONS, AUTO),
        "What the model computes in; auto is mixed_bfloat16 where the devices multiply "
        "in it, else float32.",
    ),
    "crop": (CROPS, f"What of a training image is seen. {titles(CROPS)}."),
}
SETTINGS = {*_ENUMS, *registry.augmentations()}.union(*_FLAGS.values())


def define(recipes, otherwise):
    """Defines the flags; `recipes` and `otherwise` complete the help of `--recipe`."""
    data_flags.define_data("that of --config")
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
        ["auto", "one", "mirrored", "multiworker", "tpu"],
        "The devices: one; mirrored, all of this machine; multiworker, those of all "
        "machines that TF_CONFIG names, each of which gets this command; tpu, which "
        "TPU_NAME names; auto, what is there. With KERAS_BACKEND=jax in the "
        "environment the model runs on JAX: on one; mirrored; tpu, the chips of this "
        "machine; or auto, all that JAX sees.",
    )
    for define_flag, helps in _FLAGS.items():
        for name, text in helps.items():
            define_flag(name, None, text)
    for name, (values, text) in _ENUMS.items():
        flags.DEFINE_enum(name, None, list(values), text)
    data_flags.define_augmentation()


def perform(argv, command, recipes, packages, task, next_steps):
    """Runs a task as the command line says, and prints what came out of it.

    `argv` are the arguments that are not flags, `recipes` is the package of the recipes
    with its `for_dataset`, `packages` are what the command imports.
    `task` is module and name of a subclass of `train.run.task.Task`, imported once the
    packages are known to be installed. `next_steps` takes recipe and results, and
    returns what `train.common.command_line.say_next` prints.
    """
    check(argv, command, packages)
    with command_line.exit_on_errors(INTERRUPTED):
        recipe, keywords = read(command, pkgutil.resolve_name(f"{recipes}:for_dataset"))
        task = pkgutil.resolve_name(task)
        from train.run import learning_rate, training

        if flags.FLAGS.find_learning_rate:
            refuse("extend", "--find_learning_rate leaves no run")
            if found := learning_rate.find(task(recipe), **keywords):
                print(learning_rate.summary(found))
            return
        results = training.run(task(recipe), extend=flags.FLAGS.extend, **keywords)
        # The first worker prints for all.
        if results is not None:
            print(task.summary(results))
            command_line.say_next(*next_steps(recipe, results))


def show_values(recipes):
    """Makes --help show what a recipe of the package sets, before flags are parsed."""
    find_recipe = pkgutil.resolve_name(f"{recipes}:for_dataset")
    help_text.add_values(sys.argv[1:], find_recipe)


def to_fine_tune(recipe, results):
    """Returns the next step after training weights: to fine-tune them."""
    if results["weights"] is None:
        return []
    given = {"weights": results["weights"], "model": recipe.model}
    words = [f"--{name}={value}" for name, value in given.items()]
    return [("finetune", "--dataset=photos/", *words)]


def check(argv, command, packages):
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


def refuse(name, reason):
    """Raises a `RunError` where a flag is given that does nothing here."""
    if flags.FLAGS[name].value:
        raise RunError(f"--{name} does nothing here, for {reason}: leave it out.")


def read(command, find_recipe, kind="", is_dataset=True, check=lambda recipe: None):
    """Returns the recipe that the flags ask for, and the keywords of `training.run`.

    `find_recipe` takes a data set, and the name of a recipe or None; `kind` is of runs
    whose directory has another name. Without `is_dataset` the data set is the name of
    several, and not looked for. `check` refuses recipes of no use to the command. With
    `--print_config` it prints the settings, and ends the command.
    """
    given = flags.FLAGS.flag_values_dict()
    names = ("dataset", "recipe", "config", "smoke")
    try:
        found = settings.settle(
            find_recipe,
            flags=functools.partial(overrides, given),
            **{name: given[name] for name in names},
        )
        found.recipe.check()
        check(found.recipe)
    except ValueError as error:
        sys.exit(f"error: {error}")
    recipe = found.recipe
    # Another directory for every kind of run.
    parts = ["" if command == "finetune" else f"-{command}", given["smoke"] * "-smoke"]
    parts.append(kind and f"-{kind}")
    run_dir = given["run_dir"] or f"runs/{found.run_name}{''.join(parts)}"
    if given["print_config"]:
        others = {
            name: (given[name], _origin(name))
            for name in ("data_dir", "skip_corrupt", "strategy", "extend")
        }
        others["run_dir"] = (run_dir, _origin("run_dir"))
        print(settings.page(found, others))
        sys.exit()
    command_line.need_packages(command, registry.kind_of(recipe.dataset).packages)
    if is_dataset:
        check_data(recipe.dataset, given["data_dir"])
    from train.engine import devices

    return recipe, {
        "run_dir": run_dir,
        "data_dir": given["data_dir"],
        "skip_corrupt": given["skip_corrupt"],
        "devices": devices.start(given["strategy"]),
        "command": command_line.as_typed(command),
    }


def _origin(name):
    return settings.OF_FLAG if flags.FLAGS[name].present else settings.DEFAULT


def overrides(given, recipe_class):
    """Returns the settings of a recipe that the flags give, a dict.

    A `ValueError` names a flag whose value is not written as it should be.
    """
    names = {field.name for field in dataclasses.fields(recipe_class)} - {"dataset"}
    found = {
        name: _parsed(name, value)
        for name, value in given.items()
        if name in names and value is not None
    }
    return config_file.without_auto_batch(found, "--")


def _parsed(name, given):
    if name == "weights" and given == "none":
        return None
    if name not in _PARSERS:
        return given
    parse, wanted = _PARSERS[name]
    try:
        return parse(given)
    except ValueError as error:
        text = wanted.format(error=error)
        raise ValueError(f"--{name}={','.join(given)} {text}") from error


def _image_size(given):
    if len(given) > 2 or not all(side.strip().isdecimal() for side in given):
        raise ValueError("not one or two numbers")
    height, *width = map(int, given)
    return (height, *width) if width else height


def _rand_augment(given):
    if given == ["none"]:
        return None
    layers, magnitude = given
    found = int(layers), float(magnitude)
    if min(found) < 0:
        raise ValueError("a negative number")
    return found


def _learning_rates(given):
    return tuple(dict.fromkeys(map(float, given)))


def _class_weights(given):
    if given == ["balanced"]:
        return "balanced"
    return tuple(map(float, given))


# Of flags that are lists: the function, and what to pass where it raises an error.
_PARSERS = {
    "image_size": (
        _image_size,
        "is not a size in pixels: pass one number such as 224, or HEIGHT,WIDTH such as "
        "224,320.",
    ),
    "rand_augment": (
        _rand_augment,
        "is not LAYERS,MAGNITUDE ({error}): pass two numbers such as 2,15, or none.",
    ),
    "learning_rates": (
        _learning_rates,
        "are not learning rates ({error}): pass numbers such as 0.001,0.003,0.01.",
    ),
    "class_weights": (
        _class_weights,
        "is neither balanced nor a number for each class ({error}).",
    ),
}

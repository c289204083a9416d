"""The flags of a run, one for each setting of a recipe that people change."""

import dataclasses
import math
import pkgutil
import sys

from absl import app, flags

from train.common import command_line
from train.data import data_flags, registry
from train.engine.choices import LOSSES, OPTIMIZERS, PRECISIONS, SCHEDULES, titles

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()

# What every run imports, by the names that Python has: checked for before it starts.
PACKAGES = ("tensorflow", "PIL", "jinja2", "matplotlib", "tensorboard")
# What the report of a classifier imports besides.
CLASSIFIER_PACKAGES = (*PACKAGES, "scipy", "sklearn")

# What is left after Ctrl-C.
INTERRUPTED = "what the run directory holds is whole"

# Help by name; `train.recipes.Recipe` checks the values.
_FLAGS = {
    flags.DEFINE_string: {
        "model": "A released variant such as ViT-B_16 or R50+ViT-B_16; or to compare "
        "with, BiT-R50x1 or ResNet50V2.",
        "weights": "A release such as imagenet21k or augreg-imagenet21k, the path or "
        "URL of a released .npz, or none for random weights.",
    },
    flags.DEFINE_boolean: {
        "frozen": "Train the head alone: a linear probe.",
        "remat": "Recompute the blocks' activations for the gradient, to need less "
        "memory.",
    },
    flags.DEFINE_integer: {
        "steps": "Training steps.",
        "batch_size": "Images per step.",
        "micro_batches": "Parts in which the batch of a step is computed: more need "
        "less memory. Follows batch_size if not given.",
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
    "precision": (PRECISIONS, "What the model computes in."),
}
SETTINGS = {*_ENUMS, *registry.augmentations()}.union(*_FLAGS.values())


def define(recipes, otherwise):
    """Defines the flags; `recipes` and `otherwise` complete the help of `--recipe`."""
    data_flags.define_data()
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


def perform(argv, command, packages, task):
    """Runs a task as the command line says, and prints what came out of it.

    `argv` are the arguments that are not flags, `packages` what the command imports.
    `task` is module and name of a subclass of `train.run.task.Task`, imported once the
    packages are known to be installed.
    """
    check(argv, command, packages)
    task = pkgutil.resolve_name(task)
    from train.run import training

    with command_line.exit_on_errors(INTERRUPTED):
        recipe, settings = read(command, task.find_recipe)
        results = training.run(task(recipe), **settings)
        # The first worker prints for all.
        if results is not None:
            print(task.summary(results))


def check(argv, command, packages):
    """Ends the command where packages are missing, or an argument is not a flag."""
    if len(argv) > 1:
        raise app.UsageError(f"Unknown argument {argv[1]!r}: flags start with --.")
    command_line.need_packages(command, packages)
    command_line.need_tensorflow_or_jax(
        "The trainer", hint=" The model it saves runs on every backend."
    )
    command_line.quiet_data()


def read(command, find_recipe):
    """Returns the recipe that the flags ask for, and the keywords of `training.run`.

    `find_recipe` takes a data set, and the name of a recipe or None.
    """
    from train.engine import devices

    given = flags.FLAGS.flag_values_dict()
    try:
        recipe = find_recipe(given["dataset"], given["recipe"])
        values = overrides(given, type(recipe))
        name = recipe.override(model=values.get("model", recipe.model)).run_name
        recipe = (recipe.smoke() if given["smoke"] else recipe).override(**values)
    except ValueError as error:
        sys.exit(f"error: {error}")
    command_line.need_packages(command, registry.packages_of(recipe.dataset, recipe))
    # Another directory for every kind of run.
    parts = ["" if command == "finetune" else f"-{command}", given["smoke"] * "-smoke"]
    return recipe, {
        "run_dir": given["run_dir"] or f"runs/{name}{''.join(parts)}",
        "data_dir": given["data_dir"],
        "skip_corrupt": given["skip_corrupt"],
        "devices": devices.start(given["strategy"]),
        "command": command_line.as_typed(command),
    }


def overrides(given, recipe_class):
    """Returns the settings of a recipe that the flags give, a dict.

    A `ValueError` names a flag whose value is not written as it should be.
    """
    names = {field.name for field in dataclasses.fields(recipe_class)} - {"dataset"}
    return {
        name: _parsed(name, value)
        for name, value in given.items()
        if name in names and value is not None
    }


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
    layers, magnitude = given
    found = int(layers), float(magnitude)
    if min(found) < 0:
        raise ValueError("a negative number")
    return found


def _learning_rates(given):
    rates = tuple(dict.fromkeys(map(float, given)))
    if not all(0 < rate < math.inf for rate in rates):
        raise ValueError("a rate that is not above 0")
    return rates


def _class_weights(given):
    if given == ["balanced"]:
        return "balanced"
    weights = tuple(map(float, given))
    if min(weights) < 0 or not any(weights):
        raise ValueError("negative, or all zero")
    return weights


# Of flags that are lists: the function, and what to pass where it raises an error.
_PARSERS = {
    "image_size": (
        _image_size,
        "is not a size in pixels: pass one number such as 224, or HEIGHT,WIDTH such as "
        "224,320.",
    ),
    "rand_augment": (
        _rand_augment,
        "is not LAYERS,MAGNITUDE ({error}): pass two numbers such as 2,15.",
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

"""The flags of a run, one for each setting of a recipe that people change."""

import contextlib
import dataclasses
import math
import sys

from absl import app, flags

from train.common import command_line
from train.engine import choices

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()


def define(recipes, otherwise):
    """Defines the flags.

    Args:
        recipes: str, where the recipes are that `--recipe` chooses from.
        otherwise: str, which recipe is taken where the flag is not given.
    """
    command_line.define_data()
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
    _define_model()
    _define_optimization()
    _define_data()
    _define_machine()


def _define_model():
    flags.DEFINE_string(
        "model",
        None,
        "A released variant such as ViT-B_16 or R50+ViT-B_16; or to compare with, "
        "BiT-R50x1 or ResNet50V2.",
    )
    flags.DEFINE_string(
        "weights",
        None,
        "A release such as imagenet21k or augreg-imagenet21k, the path or URL of a "
        "released .npz, or none for random weights.",
    )
    flags.DEFINE_list("image_size", None, "Pixels: one number, or HEIGHT,WIDTH.")
    flags.DEFINE_float("dropout_rate", None, "Dropout.", lower_bound=0)
    flags.DEFINE_float(
        "stochastic_depth_rate",
        None,
        "The rate at which the last block is dropped; earlier blocks less often.",
        lower_bound=0,
    )
    flags.DEFINE_float("head_bias", None, "Initial value of the head's bias.")
    flags.DEFINE_boolean("frozen", None, "Train the head alone: a linear probe.")
    flags.DEFINE_integer(
        "lora_rank",
        None,
        "Train the head and products of this rank added to queries and values (LoRA).",
        lower_bound=0,
    )


def _define_optimization():
    flags.DEFINE_integer("steps", None, "Training steps.", lower_bound=1)
    flags.DEFINE_integer("batch_size", None, "Images per step.", lower_bound=1)
    flags.DEFINE_integer(
        "micro_batches",
        None,
        "Parts in which the batch of a step is computed: more need less memory. "
        "Follows batch_size if not given.",
        lower_bound=1,
    )
    _define_choice("optimizer", choices.OPTIMIZERS, "The optimizer")
    flags.DEFINE_float("learning_rate", None, "The highest learning rate.", 0.0)
    _define_choice("schedule", choices.SCHEDULES, "The decay of the learning rate")
    flags.DEFINE_integer(
        "warmup_steps",
        None,
        "Steps of rising learning rate. Keeps its share of the steps if not given.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "weight_decay",
        None,
        "Decay of kernels, times the rate; with adam.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "layer_decay",
        None,
        "Factor of the learning rate from each block to the one before it.",
    )
    flags.DEFINE_float(
        "average_decay",
        None,
        "Decay of an exponential moving average of the weights, such as 0.9999: the "
        "averages are tested and saved (Polyak, EMA).",
    )
    flags.DEFINE_enum(
        "momentum_dtype",
        None,
        ["bfloat16"],
        "Dtype of the optimizer's momentum, bfloat16 as in the released code; that of "
        "the weights if not given.",
    )
    _define_choice("loss", choices.LOSSES, "The loss")
    flags.DEFINE_float(
        "label_smoothing",
        None,
        "The part of each label that is spread over all classes.",
        lower_bound=0,
    )
    flags.DEFINE_list(
        "class_weights",
        None,
        "balanced, or one number per class: the weight of its images in the loss.",
    )
    flags.DEFINE_integer(
        "early_stopping",
        None,
        "Stop after so many validations without a better accuracy, and take the best "
        "weights; 0 for never.",
        lower_bound=0,
    )


def _define_data():
    flags.DEFINE_float(
        "validation_fraction",
        None,
        "Part of train that is held out for validation; 0 for none.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "train_examples",
        None,
        "Train on so many images only, chosen at random.",
        lower_bound=1,
    )
    flags.DEFINE_list(
        "rand_augment", None, "LAYERS,MAGNITUDE of RandAugment, such as 2,15."
    )
    flags.DEFINE_float(
        "random_erasing",
        None,
        "Rate of images with an erased rectangle.",
        lower_bound=0,
    )
    flags.DEFINE_float("mixup", None, "The alpha of mixup, such as 0.2.", lower_bound=0)
    flags.DEFINE_float("cutmix", None, "The alpha of CutMix, such as 1.", lower_bound=0)


def _define_machine():
    flags.DEFINE_enum(
        "precision",
        None,
        choices.PRECISIONS,
        "What the model computes in.",
    )
    flags.DEFINE_boolean(
        "remat",
        None,
        "Recompute the blocks' activations for the gradient, to need less memory.",
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
    flags.DEFINE_integer("seed", None, "Of initialisation, order, crops and dropout.")
    flags.DEFINE_integer("eval_every", None, "Steps between validations.", 1)
    flags.DEFINE_integer("checkpoint_every", None, "Steps between checkpoints.", 1)
    flags.DEFINE_integer(
        "explained_images",
        None,
        "Show the model's attention for so many held out images in TensorBoard at each "
        "validation.",
        lower_bound=0,
    )


def _define_choice(name, rows, what):
    flags.DEFINE_enum(name, None, list(rows), f"{what}. {choices.titles(rows)}.")


def perform(argv, command, load_task):
    """Runs a task as the command line says, and prints what came out of it.

    Args:
        argv: list of str, the arguments that are not flags.
        command: str, the command that was started, such as `"finetune"`.
        load_task: function that returns a subclass of `train.run.task.Task`, called
            once the packages are known to be installed.
    """
    check(argv, command)
    task = load_task()
    from train.run import training

    with exit_on_errors():
        recipe, settings = read(command, task.find_recipe)
        results = training.run(task(recipe), **settings)
        # The first worker prints for all.
        if results is not None:
            print(task.summary(results))


def check(argv, command):
    """Ends the command where packages are missing, or an argument is not a flag."""
    if len(argv) > 1:
        raise app.UsageError(f"Unknown argument {argv[1]!r}: flags start with --.")
    command_line.need_packages(command)
    command_line.need_tensorflow_or_jax(
        "The trainer", hint=" The model it saves runs on every backend."
    )
    command_line.quiet_data()


def read(command, find_recipe):
    """Returns the recipe that the flags ask for, and the keywords of `training.run`.

    Args:
        command: str, as for `perform`.
        find_recipe: function of a data set and of the name of a recipe, or None.
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
    command_line.need_packages(command, _packages_of(recipe))
    # Another directory for every kind of run.
    parts = ["" if command == "finetune" else f"-{command}", given["smoke"] * "-smoke"]
    return recipe, {
        "run_dir": given["run_dir"] or f"runs/{name}{''.join(parts)}",
        "data_dir": given["data_dir"],
        "skip_corrupt": given["skip_corrupt"],
        "devices": devices.start(given["strategy"]),
        "command": command_line.as_typed(command),
    }


@contextlib.contextmanager
def exit_on_errors():
    """Ends the command with one line for a `RunError`, and quietly for SIGTERM."""
    from train.common.errors import Preempted, RunError

    try:
        yield
    except Preempted as stop:
        print(stop, file=sys.stderr)
    except (RunError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("error: Interrupted; what the run directory holds is whole.")


def _packages_of(recipe):
    """Returns the packages that only some data sets and recipes need."""
    from train.data.sources.kinds import kind_of

    of_data = {
        "digits": ["sklearn"],
        "tfds": ["tensorflow_datasets"],
        "vtab": ["tensorflow_datasets"],
    }
    of_changes = ["keras_cv"] if recipe.rand_augment else []
    return of_data.get(kind_of(recipe.dataset), []) + of_changes


def overrides(given, recipe_class=None):
    """Returns the settings of a recipe that the flags give, a dict.

    Args:
        given: dict of the flags' values.
        recipe_class: `Recipe` or a subclass of it.

    Raises:
        ValueError: one is not written as it should be.
    """
    from train.recipes import Recipe

    parsers = {
        "image_size": _image_size,
        "rand_augment": _rand_augment,
        "class_weights": _class_weights,
        "learning_rates": _learning_rates,
        "weights": lambda text: None if text == "none" else text,
    }
    fields = dataclasses.fields(recipe_class or Recipe)
    names = {field.name for field in fields} - {"dataset"}
    return {
        name: parsers.get(name, lambda value: value)(value)
        for name, value in given.items()
        if name in names and value is not None
    }


def _image_size(sides):
    if len(sides) > 2 or not all(side.strip().isdecimal() for side in sides):
        raise ValueError(
            f"--image_size={','.join(sides)} is not a size in pixels: pass one number "
            "such as 224, or HEIGHT,WIDTH such as 224,320."
        )
    height, *width = map(int, sides)
    return (height, *width) if width else height


def _rand_augment(given):
    try:
        layers, magnitude = given
        found = int(layers), float(magnitude)
        if min(found) < 0:
            raise ValueError("a negative number")
    except ValueError as error:
        raise ValueError(
            f"--rand_augment={','.join(given)} is not LAYERS,MAGNITUDE ({error}): pass "
            "two numbers such as 2,15."
        ) from error
    return found


def _learning_rates(given):
    try:
        rates = tuple(dict.fromkeys(map(float, given)))
        if not all(0 < rate < math.inf for rate in rates):
            raise ValueError("a rate that is not above 0")
    except ValueError as error:
        raise ValueError(
            f"--learning_rates={','.join(given)} are not learning rates ({error}): "
            "pass numbers such as 0.001,0.003,0.01."
        ) from error
    return rates


def _class_weights(given):
    if given == ["balanced"]:
        return "balanced"
    try:
        weights = tuple(map(float, given))
        if min(weights) < 0 or not any(weights):
            raise ValueError("negative, or all zero")
    except ValueError as error:
        raise ValueError(
            f"--class_weights={','.join(given)} is neither balanced nor a number for "
            f"each class ({error})."
        ) from error
    return weights

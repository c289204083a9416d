"""The flags of a run, one for each setting of a recipe that people change."""

import dataclasses
import math
import sys

from absl import app, flags

from train.common import command_line
from train.data import data_flags, registry

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()


def define(recipes, otherwise):
    """Defines the flags.

    Args:
        recipes: str, where the recipes are that `--recipe` chooses from.
        otherwise: str, which recipe is taken where the flag is not given.
    """
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
    _define_model()
    _define_optimizer()
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
        "How often the last block is left out of a step; the others less often.",
        lower_bound=0,
    )
    flags.DEFINE_float("head_bias", None, "What the head's bias begins with.")
    flags.DEFINE_boolean("frozen", None, "Train the head alone: a linear probe.")
    flags.DEFINE_integer(
        "lora_rank",
        None,
        "Train the head and products of this rank added to queries and values (LoRA).",
        lower_bound=0,
    )


def _define_optimizer():
    flags.DEFINE_integer("steps", None, "Training steps.", lower_bound=1)
    flags.DEFINE_integer("batch_size", None, "Images a step.", lower_bound=1)
    flags.DEFINE_integer(
        "micro_batches",
        None,
        "Parts in which a step's batch is computed: more need less memory. Follows "
        "batch_size if not given.",
        lower_bound=1,
    )
    flags.DEFINE_enum("optimizer", None, ["momentum", "adam"], "How weights move.")
    flags.DEFINE_float("learning_rate", None, "The highest learning rate.", 0.0)
    flags.DEFINE_enum(
        "schedule", None, ["cosine", "linear"], "How the rate falls to zero."
    )
    flags.DEFINE_integer(
        "warmup_steps",
        None,
        "Steps of rising learning rate. Keeps its share of the steps if not given.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "weight_decay", None, "Of kernels, times the rate; with adam.", lower_bound=0
    )
    flags.DEFINE_float(
        "layer_decay",
        None,
        "The factor of the learning rate from one block to the one before it.",
    )
    flags.DEFINE_float(
        "average_decay",
        None,
        "What the averages of the weights keep at a step, such as 0.9999: they are "
        "tested and saved then (Polyak, EMA).",
    )
    flags.DEFINE_enum(
        "momentum_dtype",
        None,
        ["bfloat16"],
        "What the optimizer keeps its velocities in, as the released code did; that of "
        "the weights if not given.",
    )
    flags.DEFINE_enum("loss", None, ["softmax", "sigmoid"], "Cross-entropy of which.")
    flags.DEFINE_float(
        "label_smoothing",
        None,
        "The part of a label shared by all classes.",
        lower_bound=0,
    )
    flags.DEFINE_list(
        "class_weights",
        None,
        "balanced, or one number a class: how much its images count.",
    )
    flags.DEFINE_integer(
        "early_stopping",
        None,
        "End after so many validations without a better accuracy, and take the best "
        "weights; 0 for never.",
        lower_bound=0,
    )


def _define_data():
    flags.DEFINE_float(
        "validation_fraction",
        None,
        "Part of train that is held out to watch the run; 0 for none.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "train_examples",
        None,
        "Learn from so many images of train only, a random choice.",
        lower_bound=1,
    )
    data_flags.define_augmentation()


def _define_machine():
    flags.DEFINE_enum(
        "precision",
        None,
        ["float32", "mixed_bfloat16", "mixed_float16"],
        "What the model computes in.",
    )
    flags.DEFINE_boolean(
        "remat", None, "Compute blocks once more for the gradient, to need less memory."
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
        "Show in TensorBoard, as often as is validated, what the model looks at in so "
        "many held out images.",
        lower_bound=0,
    )


def perform(argv, command, choose, run, tell):
    """Does what the command line asks for.

    Args:
        argv: list of str, what absl leaves of the arguments.
        command: str, the command that was started, such as `"finetune"`.
        choose: function of the flags' values to a `train.recipes.Recipe`.
        run: function of a recipe and the keywords of `train.run.training.run`.
        tell: function of the results, a dict, that prints them.
    """
    if len(argv) > 1:
        raise app.UsageError(f"Unknown argument {argv[1]!r}: flags start with --.")
    command_line.need_packages(command)
    command_line.need_tensorflow_or_jax(
        "The trainer", hint=" The model it saves runs on every backend."
    )
    command_line.quiet_data()
    from train.common.errors import Preempted, RunError
    from train.engine import devices

    given = flags.FLAGS.flag_values_dict()
    try:
        recipe = choose(given)
        values = overrides(given)
        name = recipe.override(model=values.get("model", recipe.model)).run_name
        recipe = (recipe.smoke() if given["smoke"] else recipe).override(**values)
    except ValueError as error:
        sys.exit(f"error: {error}")
    command_line.need_packages(command, registry.packages_of(recipe.dataset, recipe))
    try:
        results = run(
            recipe,
            run_dir=given["run_dir"] or _run_dir(name, command, given["smoke"]),
            data_dir=given["data_dir"],
            skip_corrupt=given["skip_corrupt"],
            devices=devices.start(given["strategy"]),
            command=command_line.as_typed(command),
        )
    except Preempted as stop:
        print(stop, file=sys.stderr)
        return
    except (RunError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("error: Interrupted; what the run directory holds is whole.")
    if results is not None:  # the first worker speaks for all
        tell(results)


def _run_dir(name, command, smoke):
    """The directory where none is given: another for every kind of run."""
    parts = ["" if command == "finetune" else f"-{command}", "-smoke" if smoke else ""]
    return f"runs/{name}{''.join(parts)}"


def overrides(given):
    """Returns the settings that the command line gives, a dict.

    Args:
        given: dict of the flags' values.

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
    names = {field.name for field in dataclasses.fields(Recipe)} - {"dataset"}
    return {
        name: parsers.get(name, lambda value: value)(value)
        for name, value in given.items()
        if name in names and value is not None
    }


def _image_size(sides):
    if len(sides) > 2 or not all(side.strip().isdecimal() for side in sides):
        raise ValueError(
            f"--image_size={','.join(sides)} is no size in pixels: pass one number "
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
            f"--learning_rates={','.join(given)} are no learning rates ({error}): pass "
            "numbers such as 0.001,0.003,0.01."
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

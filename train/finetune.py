"""Fine-tunes a Vision Transformer on a data set.

  python -m train.finetune --dataset=digits
  python -m train.finetune --dataset=cifar100
  python -m train.finetune --dataset=photos/   # {train,test}/class/*.jpg

Every flag that is not given has the value of the data set's recipe in train/recipes:
the paper's for CIFAR-10, CIFAR-100, Oxford Pets and Flowers and ImageNet, a small one
for any other TFDS name and for your own folder. A run that was killed goes on from its
last checkpoint when the same command is given again.

The run directory gets the model (model.keras), report.md and report.json, the learning
curve, metrics.jsonl and TensorBoard logs: tensorboard --logdir=runs
"""

import os
import shlex
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from absl import app, flags  # noqa: E402

from train import command_line  # noqa: E402

command_line.define_data()
flags.DEFINE_string(
    "model", None, "A released variant such as ViT-B_16 or R50+ViT-B_16."
)
flags.DEFINE_string(
    "weights",
    None,
    "A release such as imagenet21k or augreg-imagenet21k, the path or URL of a "
    "released .npz, or none for random weights.",
)
flags.DEFINE_list("image_size", None, "Pixels: one number, or HEIGHT,WIDTH.")
flags.DEFINE_integer("steps", None, "Training steps.", lower_bound=1)
flags.DEFINE_integer("batch_size", None, "Images a step.", lower_bound=1)
flags.DEFINE_integer(
    "micro_batches",
    None,
    "Parts in which a step's batch is computed: more need less memory. Follows "
    "batch_size if not given.",
    lower_bound=1,
)
flags.DEFINE_float("learning_rate", None, "The highest learning rate.", lower_bound=0)
flags.DEFINE_integer(
    "warmup_steps",
    None,
    "Steps of rising learning rate. Keeps its share of the steps if not given.",
    lower_bound=0,
)
flags.DEFINE_list(
    "rand_augment", None, "LAYERS,MAGNITUDE of RandAugment, such as 2,15."
)
flags.DEFINE_float(
    "random_erasing", None, "How often a part of an image is erased.", lower_bound=0
)
flags.DEFINE_float("mixup", None, "The alpha of mixup, such as 0.2.", lower_bound=0)
flags.DEFINE_float("cutmix", None, "The alpha of CutMix, such as 1.", lower_bound=0)
flags.DEFINE_float(
    "label_smoothing", None, "The part of a label shared by all classes.", lower_bound=0
)
flags.DEFINE_enum(
    "momentum_dtype",
    None,
    ["bfloat16"],
    "What the optimizer keeps its velocities in, as the released code did; that of "
    "the weights if not given.",
)
flags.DEFINE_float(
    "validation_fraction",
    None,
    "Part of train that is held out to watch the run; 0 for none.",
    lower_bound=0,
)
flags.DEFINE_enum(
    "precision", None, ["float32", "mixed_bfloat16"], "What the model computes in."
)
flags.DEFINE_enum(
    "strategy",
    "auto",
    ["auto", "one", "mirrored", "multiworker", "tpu"],
    "The devices: one; mirrored, all of this machine; multiworker, those of all "
    "machines that TF_CONFIG names, each of which gets this command; tpu, which "
    "TPU_NAME names; auto, what is there.",
)
flags.DEFINE_integer("seed", None, "Of initialisation, order, crops and dropout.")
flags.DEFINE_integer("eval_every", None, "Steps between validations.", lower_bound=1)
flags.DEFINE_integer(
    "checkpoint_every", None, "Steps between checkpoints.", lower_bound=1
)
flags.DEFINE_string(
    "run_dir", None, "Directory of the run; runs/DATASET-MODEL if not given."
)


def main(argv):
    """Reads the flags, runs, and says where the report is."""
    if len(argv) > 1:
        raise app.UsageError(f"Unknown argument {argv[1]!r}: flags start with --.")
    command_line.need_tensorflow(
        "The trainer", hint=" The model it saves runs on every backend."
    )
    command_line.quiet_data()
    from train import distribution, fine_tuning, recipes
    from train.errors import RunError

    given = flags.FLAGS.flag_values_dict()
    try:
        recipe = recipes.for_dataset(given["dataset"]).override(**_overrides(given))
    except ValueError as error:
        sys.exit(f"error: {error}")
    try:
        results = fine_tuning.run(
            recipe,
            run_dir=given["run_dir"] or recipe.default_run_dir,
            data_dir=given["data_dir"],
            devices=distribution.start(given["strategy"]),
            command=shlex.join(["python", "-m", "train.finetune", *sys.argv[1:]]),
        )
    except (RunError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("error: Interrupted; what the run directory holds is whole.")
    if results is None:
        return  # the first worker speaks for all
    print(
        f"test accuracy {results['test_accuracy']:.2%} on all "
        f"{results['test_examples']:,} test images\n"
        f"report {results['report']}\n"
        f"model  {results['model']}"
    )


def _overrides(given):
    names = [
        "model",
        "weights",
        "image_size",
        "steps",
        "batch_size",
        "micro_batches",
        "learning_rate",
        "warmup_steps",
        "rand_augment",
        "random_erasing",
        "mixup",
        "cutmix",
        "label_smoothing",
        "momentum_dtype",
        "validation_fraction",
        "precision",
        "seed",
        "eval_every",
        "checkpoint_every",
    ]
    values = {name: given[name] for name in names if given[name] is not None}
    if "image_size" in values:
        sides = values["image_size"]
        if len(sides) > 2 or not all(side.strip().isdecimal() for side in sides):
            raise ValueError(
                f"--image_size={','.join(sides)} is no size in pixels: pass one number "
                "such as 224, or HEIGHT,WIDTH such as 224,320."
            )
        height, *width = map(int, sides)
        values["image_size"] = (height, *width) if width else height
    if "rand_augment" in values:
        values["rand_augment"] = _rand_augment(values["rand_augment"])
    if values.get("weights") == "none":
        values["weights"] = None
    return values


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


def command():
    """Runs the command line."""
    app.run(main)


if __name__ == "__main__":
    command()

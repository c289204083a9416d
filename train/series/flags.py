"""The flag of a run with several seeds, and what does not go with it."""

from absl import flags

from train.common import flag_help
from train.common.errors import RunError

# Flags belong to the command that defines them, in its --help too.
flags.disclaim_key_flags()

_OF_SINGLE_RUNS = {
    "extend": "give each run of a seed that by its own --run_dir",
    "find_learning_rate": "give that first, without --seeds",
}


def define() -> None:
    """Defines `--seeds`."""
    flags.DEFINE_integer(
        "seeds",
        None,
        "Make the run so many times, with --seed and the numbers after it: the mean "
        "accuracy, its interval, and which of the models answers held-out photos best. "
        "Each run has a folder in --run_dir. They share --minutes.",
        lower_bound=2,
    )
    flag_help.add_setting("seeds", "Run")


def check() -> None:
    """Raises a `RunError` for a flag that `--seeds` does not go with."""
    for name, remedy in _OF_SINGLE_RUNS.items():
        if flags.FLAGS[name].value:
            raise RunError(
                f"--{name} is of one run, and --seeds={flags.FLAGS.seeds} makes "
                f"several: {remedy}."
            )

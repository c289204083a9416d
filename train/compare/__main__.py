"""Compares finished runs on the same data set.

  keras-vit compare runs/vit runs/resnet
  keras-vit compare runs/vit runs/resnet --output=compare.html --measure

The page has the difference of the accuracies with its 95% interval and McNemar's test,
the photos on which the runs differ, and cost beside gain: parameters, multiply-adds of
an image, training time and speed; with --measure also how many images per second the
models process now, measured in turns. compare.md has the same without photos,
compare.json the numbers. Runs of different data sets or test images are refused.
"""

import pathlib
from collections.abc import Sequence

from absl import app, flags

from train.common import command_line
from train.data import data_flags
from train.models.run_directory import RunDirectory
from zoo.common.safe_text import printable

# Packages to check for, by import name, before anything heavy is imported.
PACKAGES = ("tensorflow", "PIL", "jinja2", "scipy")
flags.DEFINE_string(
    "output",
    "compare.html",
    "The page; the same as Markdown and the numbers go into a .md and a .json beside "
    "it.",
)
flags.DEFINE_bool(
    "measure", False, "Measure how many images per second the models process now."
)
data_flags.define_batch_size(32, "Images at a time, for --measure.")
data_flags.define_data_dir()


def main(argv: Sequence[str]) -> None:
    """Compares the runs that the command line names, and prints their accuracies."""
    if len(argv) < 3:
        typed = command_line.typed("compare")
        raise app.UsageError(f"Give two runs or more: {typed} RUN RUN")
    command_line.need_packages("compare", PACKAGES)
    command_line.need_tensorflow("The training code")
    with command_line.exit_on_errors("no page was written"):
        for run in map(RunDirectory, argv[1:]):
            run.require(run.results, run.model)
        from train.compare import comparison, page

        results = comparison.compare(
            argv[1:],
            command=command_line.as_typed("compare"),
            **command_line.values("output measure batch_size data_dir"),
        )
    for row in results["runs"]:
        line = f"{row['run']}: {row['model']}, {row['test_accuracy']:.2%} accuracy"
        print(printable(line))
    for sentence in page.sentences(results):
        print(printable(sentence))
    print(f"page {pathlib.Path(flags.FLAGS.output).with_suffix('.html')}")


if __name__ == "__main__":
    command_line.run(main)

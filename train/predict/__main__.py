r"""Predicts the classes of photos.

  keras-vit predict runs/digits digit.png
  keras-vit predict vit-ti16/augreg-imagenet21k+imagenet2012 photo.jpg holiday/ --top
  keras-vit predict exported/model.tflite photos/ --out=predictions.csv
  find photos -newer last | keras-vit predict runs/digits - --out=new.jsonl
  keras-vit predict exported/model.onnx s3://bucket/shards/ --runner=ray --out=answers

The model is the first word: the directory of a finished run, a .keras file, whatever
keras_vit.load_model takes (a released or published model's name, a path, a URL,
hf://org/name), or what keras-vit export has written: a .tflite or .onnx file, for which
neither TensorFlow nor Keras is started, a SavedModel, or a folder with one of these.

The photos are files, folders with all below them, quoted patterns ('photos/*.jpg'),
URLs of these that fsspec opens (s3://, gs://, hf://, https://), and - for a list of
paths and URLs on standard input, one per line.

Each photo is a line of its file, class and probability, with tabs between, on the
terminal or in --out; a model for numbers (problem_type "regression") has these in place
of probabilities. Photos that cannot be read are left out, and listed at the end:
the exit status is then 3, it is 1 for an error, and 0 if all were answered.

Where --out is a folder, the answers are in Parquet or CSV files of 512 photos or of one
shard (.tar or TFRecord; a .zip is split), which processes of Ray or Beam write with
--runner. The same command goes on with what is missing, whatever has ended it.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import app, flags

from train.common import command_line, flag_help, predictors
from train.common.errors import RunError
from train.data import data_flags
from zoo.common.safe_text import class_text, counted, named, printable

if TYPE_CHECKING:
    from train.predict.answers import Answer

# Packages to check for, by import name, before anything heavy is imported.
PACKAGES = ("PIL",)
UNREADABLE = 3
_NOT_OF_MASKS = (
    *("top", "runner", "workers", "parts", "features", "sort_into", "gallery"),
    *("unsure", "ask", "resume", "image_size", "central_crop", "batch_size"),
    *("engine", "precision"),
)
# No path is longer.
_MOST_OF_CELL = 4096
flags.DEFINE_bool("top", False, "Print the five most likely classes of each photo.")
flags.DEFINE_string(
    "out",
    None,
    "A .csv or .jsonl file for the answers instead of the terminal: file, label and "
    "probability, then the four next labels. Lines are added as photos are answered. "
    "With --ask it is a .csv file of these photos alone, whose column label is to be "
    "filled in. Without an ending it is a folder for parts.",
)
flags.DEFINE_enum(
    "runner",
    None,
    ["ray", "beam"],
    "What runs several processes, here or on other machines that see the photos and "
    "--out: Ray (RAY_ADDRESS names a cluster) or Beam. By default one process.",
)
flags.DEFINE_integer(
    "workers",
    None,
    "Processes of --runner; by default one per processor.",
    lower_bound=1,
)
flags.DEFINE_enum(
    "parts",
    None,
    ["parquet", "csv"],
    "The format of the files in a folder --out; if not given parquet.",
)
flags.DEFINE_string(
    "features",
    None,
    "An .npz file for the features of the photos (features, float32) and the names of "
    "the files (files); with a folder --out another one, for these in Parquet files.",
)
flags.DEFINE_string(
    "sort_into",
    None,
    "A folder to copy the photos into, each to the folder of its class. No file is "
    "overwritten.",
)
flags.DEFINE_string(
    "gallery",
    None,
    "An .html file for the photos by class, one page that needs no network; of many "
    "photos it shows 500.",
)
flags.DEFINE_float(
    "unsure",
    None,
    "The accuracy that answers should have, such as 0.9. Those with a probability at "
    "which the test of the model's run shows less are marked unsure, and photos unlike "
    "all that it was trained on unlike: in a column of their own, and apart in "
    "--sort_into and --gallery.",
    lower_bound=0.0,
    upper_bound=1.0,
)
flags.DEFINE_integer(
    "ask",
    None,
    "Print, in place of the answers, so many photos alone: those whose labels would "
    "help the model most, the most helpful first. --gallery shows these to be "
    "labelled, --out lists them; keras-vit finetune --relabel=FILE takes the labels.",
    lower_bound=1,
)
flags.DEFINE_bool(
    "resume",
    False,
    "Go on with the file of --out: photos that it has an answer for are left out.",
)
data_flags.define_image_size()
data_flags.define_bits()
data_flags.define_batch_size(
    None,
    "Images at a time; 32 if not given, 8 for exports, and 1 for those that take no "
    "batches.",
)
flags.DEFINE_bool(
    "trust",
    False,
    "Run a SavedModel that has other operations than those of keras-vit export: they "
    "may read and write files.",
)
predictors.define_flags()


def main(argv: Sequence[str]) -> None:
    """Reads the flags, predicts, and prints the answers."""
    values = flags.FLAGS.flag_values_dict()
    if len(argv) < 3:
        missing = "The photos are missing. " if argv[1:] else ""
        raise app.UsageError(
            f"{missing}Give a model and photos, files or folders: "
            f"{command_line.typed('predict')} MODEL photo.jpg folder/"
        )
    command_line.need_packages("predict", PACKAGES)
    from train.predict import in_parts, prediction

    out = values["out"]
    if _wrote_masks(argv, values):
        return
    with command_line.exit_on_errors("nothing was done"):
        is_folder = in_parts.is_meant(
            out, **command_line.values("runner workers parts")
        )
        if values["workers"] and not values["runner"]:
            raise RunError("--workers are those of --runner: pass it, too.")
    if is_folder:
        _in_parts(argv, values)
    prints = out is None and values["ask"] is None
    show = _printer(values["top"])
    kept = "the photos above were answered"
    if values["ask"]:
        kept = "no photos were chosen"
    elif out:
        kept = f"--resume goes on with what {out} has"
    with command_line.exit_on_errors(kept):
        predictions = prediction.predict(
            argv[1],
            argv[2:],
            answer=show if prints else None,
            # On a terminal the answers themselves show how far it is.
            show_progress=not (prints and sys.stdout.isatty()),
            **command_line.values(
                "out features sort_into gallery unsure ask resume image_size "
                "central_crop bits batch_size engine precision trust"
            ),
        )
    for asked in predictions.asked if out is None else ():
        show(asked)
    sys.exit(_report(predictions, values))


def _wrote_masks(argv, values):
    """Writes what a run answers that is no row of a table; returns whether it does."""
    from train.models.finding import find
    from train.models.run_directory import RunDirectory
    from train.predict.photo_list import Photos
    from train.tasks import kind_of_task

    with command_line.exit_on_errors("nothing was done"):
        run = RunDirectory(argv[1])
        # Folders of other libraries have a config.json of another kind.
        is_run = all(file.is_file() for file in (run.config, run.data, run.model))
        task = run.read_config().get("task") if is_run else None
        if not kind_of_task(task).prediction:
            return False
        found = find(argv[1])
        if given := [name for name in _NOT_OF_MASKS if flags.FLAGS[name].present]:
            raise RunError(
                f"--{given[0]} is of answers in a table, and {argv[1]} answers with "
                f"{task}: leave it out."
            )
        if values["out"] is None:
            raise RunError(f"{argv[1]} answers with {task}: pass a folder for --out.")
        command_line.need_tensorflow("The model")
    with command_line.exit_on_errors("the masks above are written"):
        count, refused = kind_of_task(task).of("prediction")(
            found, Photos(argv[2:]), values["out"], bits=values["bits"]
        )
    print(f"{counted(count, 'photo')} answered", f"written: {values['out']}", sep="\n")
    for line in refused:
        print(f"could not be read: {printable(line)}", file=sys.stderr)
    sys.exit(UNREADABLE if refused else 0)


def _in_parts(argv, values):
    """Predicts into a folder, and ends the process."""
    from train.predict import in_parts

    with command_line.exit_on_errors("the same command goes on"):
        in_parts.refuse(**command_line.values("top sort_into gallery ask resume"))
        predictions = in_parts.predict(
            argv[1],
            argv[2:],
            **command_line.values(
                "out runner workers parts features unsure image_size central_crop bits "
                "batch_size engine precision trust"
            ),
        )
    sys.exit(_report(predictions, values))


def _printer(top):
    """Returns a function that prints an answer as a line."""
    sys.stdout.reconfigure(errors="backslashreplace")
    most = None if top else 1

    def show_given(answer: "Answer") -> None:
        values = dict(answer.top)
        given = [
            f"{name} {values[name]:.1%}" if name in values else name
            for name in answer.labels
        ]
        cells = answer.file, ", ".join(given) or "(none)"
        print(*(printable(cell, _MOST_OF_CELL) for cell in cells), sep="\t", flush=True)

    def show(answer: "Answer") -> None:
        cells = [answer.file]
        if answer.labels is not None and most:
            show_given(answer)
            return
        for name, value in answer.top[: None if answer.has_numbers else most]:
            cells += [name, f"{value:.6g}" if answer.has_numbers else f"{value:.1%}"]
        if answer.mark is not None:
            cells.append(answer.mark)
        print(*(printable(cell, _MOST_OF_CELL) for cell in cells), sep="\t", flush=True)

    return show


def _report(predictions, values):
    """Prints what was done besides the answers; returns the exit status."""
    written = [values[name] for name in ("out", "features", "sort_into", "gallery")]
    if any(written):
        classes = predictions.counts.most_common()
        common = [f"{printable(class_text(name))} {count:,}" for name, count in classes]
        marked = [f"{many:,} {mark}" for mark, many in predictions.marks.most_common()]
        count, earlier = predictions.answered, predictions.earlier
        print(
            f"{counted(count, 'photo')} answered"
            f"{f', {earlier:,} were before' if earlier else ''}"
            f"{': ' if common else ''}{'; '.join((named(common), *marked))}",
            f"written: {', '.join(filter(None, written))}"
            f"{'' if count + earlier else ', without an answer'}",
            sep="\n",
            file=sys.stderr,
        )
    for note in predictions.notes:
        print(f"note: {note}", file=sys.stderr)
    if not predictions.unreadable:
        return 0
    count = predictions.unreadable
    print(
        f"{counted(count, 'photo')} could not be read:",
        *map(flag_help.in_flags, predictions.reasons),
        sep="\n  ",
        file=sys.stderr,
    )
    if count > len(predictions.reasons):
        print(f"  and {count - len(predictions.reasons):,} more", file=sys.stderr)
    return UNREADABLE


if __name__ == "__main__":
    command_line.run(main)

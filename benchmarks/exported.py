"""Compares exports with other libraries' of the same network: size, latency, accuracy.

  python -m benchmarks.exported --weights=FILE --photos=FOLDER --calibration=FOLDER
  python -m benchmarks.exported --weights=FILE --formats=onnx --peers=timm

keras-hub exports its ViTImageClassifier with Model.export, for a batch of 1 where the
format fixes it, and timm with torch.onnx.export, each with what its guides say to set
for a precision. All have the same weights. Every export is written and run in a process
of its own, those of a format in the same runtime with as many threads; they take turns
at one image, and the ratio of two is the median over the rounds.

agreement   share of the images whose class is that of the float model of the library
            that exported
error       largest difference of a logit from that model; the peers' float models are
            compared with ours
accuracy    of labelled photos: a centre crop, of 224 where the short side is 256

--formats   saved_model, tflite, tflite-float16, tflite-dynamic, tflite-int8, onnx,
            onnx-float16, or all
--peers     keras-hub, timm, or all; --peers= for none
"""

import pathlib
import sys
import tempfile

import numpy as np
from absl import flags

from benchmarks import command, exported_images, exported_jobs, report
from benchmarks.contest import Contender, contest, tell
from benchmarks.exported_jobs import OURS, PEERS, RUNTIMES
from benchmarks.process import Worker, WorkerError
from benchmarks.selection import choose
from benchmarks.summary import round_medians
from train.export.formats import FORMATS, select

command.define_flags()
flags.DEFINE_string("weights", None, "Needed: whatever keras_vit.load_model takes.")
flags.DEFINE_integer(
    "image_size", None, "Pixels a side; by default those of the weights.", lower_bound=1
)
flags.DEFINE_list("formats", "all", "What to export as, or all.")
flags.DEFINE_list("peers", "all", "What to compare with, or all.")
flags.DEFINE_string(
    "photos", None, "Folder of photos and labels.csv, a table of file and label."
)
flags.DEFINE_integer(
    "count",
    None,
    "Images compared; by default all photos, or 64 of noise.",
    lower_bound=1,
)
flags.DEFINE_string(
    "calibration", None, "Folder of other photos, which int8 is calibrated with."
)
flags.DEFINE_integer(
    "calibration_images", 100, "How many of them, spread evenly.", lower_bound=1
)
flags.DEFINE_integer("threads", 2, "Of every runtime.", lower_bound=1)

FLOAT = "float model"
HEADER = [
    "exporter, format",
    "MB",
    "ms p50",
    "ratio to ours",
    "agreement",
    "accuracy",
    "error",
]
NOISE = 64
# Where there is one, runtimes would take it, and not at the same precision.
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1"}


def main():
    """Writes the exports that the flags describe, runs them and prints how they did."""
    given = flags.FLAGS
    formats = [row.name for row in select(given.formats)]
    libraries = [OURS, *choose(PEERS, given.peers, "peers")]
    if given.weights is None:
        raise ValueError("--weights is missing: name the file of a network's weights.")
    stem = f"exported-{pathlib.Path(given.weights).stem}"
    if given.image_size:
        stem += f"-{given.image_size}"
    log_dir = pathlib.Path(given.out_dir) / stem
    with tempfile.TemporaryDirectory(prefix="keras_vit-exported-") as folder:
        labels, notes = prepare(folder, calibrated="tflite-int8" in formats)
        records = [_record(library, FLOAT) for library in libraries]
        records += [
            _record(library, form)
            for form in formats
            for library in libraries
            if form in library.formats
        ]
        by_label = {library.label: library for library in libraries}
        contenders = []
        for record in records:
            library = by_label[record["exporter"]]
            attempt(record, library, folder, log_dir)
            if record["format"] != FLOAT and record["error"] is None:
                contenders.append(_contender(record, library, folder))
        result = contest(
            contenders, rounds=given.rounds, repeats=given.repeats, log_dir=log_dir
        )
        measured = {found["name"]: found for found in result["contenders"]}
        records = [record | measured.get(record["name"], {}) for record in records]
        add_ratios(records)
        add_accuracies(records, folder, labels)
    packages = {"ai_edge_litert", "onnx", "onnxruntime", "onnxscript", "tf2onnx"}
    packages.update(name for library in libraries for name in library.imports)
    result = {
        **command.provenance(packages),
        **result,
        "threads": given.threads,
        "contenders": records,
    }
    command.publish(
        log_dir.parent / f"{stem}.json",
        result,
        table(records),
        [*notes, *report.notes(result)],
    )
    ours = [record["name"] for record in records if record["ours"] and record["error"]]
    if ours:
        sys.exit(f"error: {', '.join(ours)} failed, see above.")


def prepare(folder, calibrated):
    """Writes what the jobs share: the weights, the images, and those to calibrate with.

    Args:
        folder: path of an empty folder.
        calibrated: bool, whether the latter are needed.

    Returns:
        Tuple of the labels, None if there are none, and what to know beside the table.

    Raises:
        ValueError: flags do not fit each other, or the weights.
    """
    given = flags.FLAGS
    folder = pathlib.Path(folder)
    photos, labels = [], None
    if given.photos:
        photos, labels = exported_images.labelled(given.photos, given.count)
        if calibrated and not given.calibration:
            raise ValueError(
                "tflite-int8 needs other photos than those compared: pass "
                "--calibration, or leave it out of --formats."
            )
    to_calibrate = []
    if calibrated and given.calibration:
        to_calibrate = exported_images.found(
            given.calibration, given.calibration_images, without=photos
        )
    # It takes seconds, and what is wrong with the flags is told at once.
    import keras_vit

    tell(f"loading {given.weights}")
    sizes = {"image_size": given.image_size} if given.image_size else {}
    model = keras_vit.load_model(given.weights, **sizes)
    *size, channels = model.input_shape[1:]
    if model.layers[-1].name != "head":
        raise ValueError(
            f"--weights={given.weights} has no head: nothing is agreed on."
        )
    if (photos or to_calibrate) and channels != 3:
        raise ValueError(f"The network takes {channels} channels, and photos have 3.")
    if labels is not None and not 0 <= min(labels) <= max(labels) < (
        classes := model.output_shape[-1]
    ):
        raise ValueError(
            f"--photos={given.photos} has labels from {min(labels)} to {max(labels)}, "
            f"and the network {classes} classes."
        )
    keras_vit.save_released_weights(model, folder / exported_jobs.WEIGHTS)
    notes = []
    for name, paths, number, seed, what in (
        (exported_jobs.IMAGES, photos, given.count or NOISE, 0, "Compared on"),
        (
            exported_jobs.CALIBRATION,
            to_calibrate,
            given.calibration_images,
            1,
            "int8 calibrated with",
        ),
    ):
        if paths:
            tell(f"reading {len(paths)} photos")
            images = exported_images.read(paths, size)
        else:
            images = exported_images.random(number, size, channels, seed)
        np.save(folder / name, images)
        if name == exported_jobs.IMAGES or calibrated:
            kind = "photos" if paths else "images of noise"
            notes.append(f"{what} {len(images)} {kind}.")
    return labels, notes


def _record(library, form):
    return {
        "name": f"{library.label} {form}",
        "exporter": library.label,
        "format": form,
        "ours": library is OURS,
        "error": None,
    }


def attempt(record, library, folder, log_dir):
    """Has an export written, or a library's own model answer; notes what is wrong.

    Args:
        record: dict, which gets the `bytes` of the export, and else its `error`.
        library: `benchmarks.exported_jobs.Library`.
        folder: path as of `prepare`.
        log_dir: path of the folder for what the process prints.
    """
    name, form = record["name"], record["format"]
    tell(f"running {name}" if form == FLOAT else f"writing {name}")
    settings = {"folder": str(folder)}
    if form == FLOAT:
        job, settings["answers"] = f"{library.job}_answers", _answers(record, folder)
    else:
        job, path = library.job, _path(record, folder)
        path.parent.mkdir(parents=True)
        settings |= {"form": form, "path": str(path)}
    writer = Contender(
        name=name,
        job=job,
        settings=settings,
        imports=library.imports,
        environment=_ENVIRONMENT,
        warm_up=0,
    )
    try:
        with Worker(writer, log_dir / f"{name.replace(' ', '_')}-write.log") as worker:
            worker.ready()
    except WorkerError as error:
        record["error"] = str(error)
        return
    if form != FLOAT:
        files = [file for file in path.parent.rglob("*") if file.is_file()]
        record["bytes"] = sum(file.stat().st_size for file in files)


def _path(record, folder):
    return pathlib.Path(folder, record["name"], FORMATS[record["format"]].file)


def _answers(record, folder):
    return str(pathlib.Path(folder, f"{record['name']}.npy"))


def _contender(record, library, folder):
    form = record["format"]
    return Contender(
        name=record["name"],
        job="benchmarks.exported_jobs:run",
        settings={
            "folder": str(folder),
            "form": form,
            "path": str(_path(record, folder)),
            "threads": flags.FLAGS.threads,
            "answers": _answers(record, folder),
            "channels_first": library.channels_first,
        },
        imports=RUNTIMES[FORMATS[form].runtime.name],
        environment=_ENVIRONMENT,
        ours=record["ours"],
    )


def add_ratios(records):
    """Adds how fast each export is, as a multiple of ours of its format.

    Args:
        records: list of dicts as of `benchmarks.contest.contest`, with "format"; those
            that ran get "ratio", None where ours did not.
    """
    ours = {record["format"]: record for record in records if record["ours"]}
    for record in records:
        if not record.get("seconds"):
            continue
        baseline = ours[record["format"]]
        record["ratio"] = None
        if baseline.get("seconds"):
            ratios = round_medians(baseline) / round_medians(record)
            record["ratio"] = float(np.median(ratios))


def add_accuracies(records, folder, labels):
    """Adds how well each export answers, see `answered`.

    Args:
        records: list of dicts with "name", "exporter", "format", "ours" and "error";
            the float models first.
        folder: path of the folder with the answers.
        labels: integers, None where unknown.
    """
    own, expected = None, {}
    for record in records:
        if record["error"] is not None:
            continue
        found = np.load(_answers(record, folder)).astype("float32")
        if record["format"] == FLOAT:
            own = found if own is None and record["ours"] else own
            expected[record["exporter"]] = found
            beside = own
        else:
            beside = expected.get(record["exporter"])
        record.update(answered(found, beside, labels))


def answered(found, expected, labels=None):
    """Compares logits with a float model's, and with labels.

    Args:
        found: float array (images, classes).
        expected: such an array, None where unknown.
        labels: integers (images,), None where unknown.

    Returns:
        Dict of "agreement", the share of images with the same best class;
        "largest_error", of a logit, infinite where one is not finite; and "accuracy".
        None stands for what is not known.

    Example:

    >>> found, expected = np.array([[1.0, 2.0], [4.0, 5.0]]), np.array([[1, 2], [4, 3]])
    >>> answered(found, expected, [1, 1])
    {'agreement': 0.5, 'largest_error': 2.0, 'accuracy': 1.0}
    """
    finite = np.isfinite(found).all(axis=1)
    best = found.argmax(axis=1)
    result = dict.fromkeys(("agreement", "largest_error", "accuracy"))
    if expected is not None:
        result["agreement"] = float(np.mean(finite & (best == expected.argmax(axis=1))))
        error = np.abs(found - expected).max() if finite.all() else np.inf
        result["largest_error"] = float(error)
    if labels is not None:
        result["accuracy"] = float(np.mean(finite & (best == np.asarray(labels))))
    return result


def table(records):
    """Returns the table of a result: its header and its rows."""
    rows = []
    for record in records:
        if record["error"] is not None:
            cells = ["failed", *[""] * (len(HEADER) - 2)]
        else:
            cells = [
                _shown(record.get("bytes"), lambda value: f"{value / 1e6:.1f}"),
                _shown(record.get("p50"), lambda value: report.number(value * 1e3)),
                _shown(record.get("ratio"), "{:.2f}".format),
                _shown(record["agreement"], "{:.1%}".format),
                _shown(record["accuracy"], "{:.1%}".format),
                _shown(record["largest_error"], "{:.2g}".format),
            ]
        rows.append([record["name"], *cells])
    return HEADER, rows


def _shown(value, show):
    return "" if value is None else show(value)


if __name__ == "__main__":
    command.run(main)

"""Exports a model: writes each format, runs it and compares it with the model."""

import dataclasses
import os
import pathlib
import pkgutil
import shutil
from collections.abc import Sequence

import numpy as np

import keras_vit
from keras_vit.runtimes.precision import in_float32
from keras_vit.structure import set_bits
from keras_vit.structure.image_sizes import own_image_size, size_step
from train.common import packages
from train.common.errors import RunError, first_line
from train.common.files import (
    check_replaceable,
    file_names,
    scratch_folder,
    whole_folder,
    write_json,
    write_text,
)
from train.data.options import DEFAULTS, DataOptions
from train.export import parity, report, sample_images
from train.export.formats import Format, select
from train.models import loaded_model
from train.models.exports.writing import has_head
from train.models.finding import FoundModel
from train.scoring import evaluation_data
from zoo.common.machine import cpu_name
from zoo.common.regular_files import expand_home
from zoo.network import nearest_size
from zoo.store import digest

PAGE, RECORD, CLASS_NAMES = "export.md", "export.json", "class_names.txt"
# Exports for any size are compared on this many images of another size.
_AT_ANOTHER_SIZE = 16


class ExportError(RunError):
    """Some formats cannot be written, do not run, or disagree with the model.

    The attribute `results` is what `export` returns, of the formats that are written.
    """

    def __init__(self, written, results):
        refused = results["refused"]
        count = len(refused) + len(results["exports"]) - 1
        reasons = "".join(f"\n{row['name']}: {row['why']}" for row in refused)
        super().__init__(
            f"{len(refused)} of {count} exports failed. {written}.{reasons}"
        )
        self.results = results


def export(
    model: str | FoundModel,
    formats: Sequence[str],
    out: str | os.PathLike,
    *,
    dataset: str | None = None,
    split: str = "test",
    data_options: DataOptions = DEFAULTS,
    central_crop: bool | None = None,
    image_size: int | tuple[int, int] | None = None,
    features: bool = False,
    compared: int | None = None,
    calibration: int = 128,
    min_agreement: float | None = None,
    dynamic_batch: bool = False,
    uint8: bool = False,
    any_size: bool = False,
    threads: int | None = None,
    command: str = "",
) -> dict:
    """Exports a model, and compares each export with it in the format's own runtime.

    They are compared on images of a data set, spread evenly over the split, or else on
    synthetic ones. Formats that agree are written to `out`; those that do not are left
    out, and an error at the end names them.

    The arguments are the flags of `python -m train.export`: `formats`, a sequence of
    str, is --format, `compared` --images, and `calibration` --calibration_images.
    `central_crop` is None for what the model says, `command` is the command line, for
    the report.

    Returns:
        Dict, the content of `export.json`.

    Raises:
        ValueError: a format is unknown, or an option has no effect.
        ExportError: a format cannot be written, does not run, or falls short of
            `min_agreement`; the others are written, unless there are none.
        RunError: model, data, packages or folder do not fit.

    Example:
        >>> export("runs/digits", ["tflite"], "exported")  # doctest: +SKIP
    """
    options = {"dynamic_batch": dynamic_batch, "uint8": uint8, "any_size": any_size}
    rows = select(formats, **options)
    for row in rows:
        packages.need(
            row.name, row.runtime.packages, hint=", or leave it out", extra="export"
        )
    out = expand_home(out)
    check_replaceable(out, RECORD, _files_of, "export")
    loaded = _load(model, image_size, features)
    bits, notes = loaded.bits(data_options.bits)
    set_bits(loaded.model, bits)
    # Features have no classes by which to choose matrices for float16.
    aim = (min_agreement or None) if has_head(loaded.model) else None
    threads = threads or os.cpu_count()
    with scratch_folder("export") as scratch:
        scratch = pathlib.Path(scratch)
        if dataset is None and "dataset" not in loaded.config:
            if names := [row.name for row in rows if row.needs_calibration]:
                raise RunError(f"{names[0]} needs calibration images: pass --dataset.")
            samples = sample_images.generate(loaded, str(scratch / "images"), compared)
        else:
            for note in notes:
                print(note)
            is_calibrated = any(
                row.needs_calibration or (aim and row.is_quantized) for row in rows
            )
            samples = sample_images.read(
                loaded,
                str(scratch / "images"),
                compared,
                calibration=calibration if is_calibrated else None,
                central_crop=central_crop,
                dataset=dataset,
                split=split,
                options=dataclasses.replace(data_options, bits=bits),
            )
        reference = Reference(loaded, samples, threads)
        about = {"command": command, "threads": threads, "bits": bits, **options}
        arguments = options | {
            "calibration": samples.calibration,
            "min_agreement": None if samples.calibration is None else aim,
            "class_names": samples.class_names,
        }
        exports = _Exports(loaded, reference, arguments, min_agreement, about)
        if any_size:
            exports.allow_any_size(scratch)
        exports.write(rows, out)
    return exports.results


def _load(model, image_size, features):
    """Returns the `LoadedModel` in the precision of exports."""
    loaded = loaded_model.load(model, image_size=image_size, features=features)
    with_head = has_head(loaded.model)
    if with_head:
        evaluation_data.num_logits(loaded)
    return dataclasses.replace(
        loaded,
        model=in_float32(loaded.model),
        class_names=loaded.class_names if with_head else None,
    )


class Reference:
    """The outputs of a Keras model for sample images, to compare exports with.

    The model is saved beside these, and runs in a process of its own as exports do.
    """

    def __init__(self, loaded, samples, threads):
        self.samples, self.threads = samples, threads
        file = pathlib.Path(f"{samples.path}.keras")
        loaded.model.save(file)
        self.outputs, facts = self._run("keras", file)
        if not np.isfinite(self.outputs).all():
            raise RunError(
                f"The model {loaded.name} has outputs that are not finite, with which "
                "nothing can be compared: pass an earlier checkpoint."
            )
        # On generated images the largest logit exceeds the next by little.
        of_data_set = samples.about["data_set"] is not None
        has_classes = has_head(loaded.model) and self.outputs.shape[1] > 1
        self.top_1 = has_classes and of_data_set
        self.row = {"name": "keras", **facts, **self._compare(self.outputs)}
        self.row |= {"bytes": file.stat().st_size, "files": []}

    def compared(self, row: Format, path: pathlib.Path) -> tuple[dict, dict]:
        """Returns facts on a run of an export, and how its outputs compare."""
        outputs, facts = self._run(row.name, path)
        return facts, self._compare(outputs)

    def _run(self, name, path):
        images, count = self.samples.path, self.samples.about["count"]
        return parity.run(name, path, images, threads=self.threads, count=count)

    def _compare(self, outputs):
        return parity.compare(
            outputs, self.outputs, top_1=self.top_1, labels=self.samples.labels
        )


class _Exports:
    """The formats of one model in a folder, and `results`, what `export` returns.

    `arguments` are those of the writers, `about` what the results have of the call.
    """

    def __init__(self, loaded, reference, arguments, min_agreement, about):
        self.loaded, self.reference = loaded, reference
        self.arguments, self.min_agreement = arguments, min_agreement
        self.of_any_size = self.other_size = None
        outputs = reference.outputs
        self.results = {
            "model": loaded.name,
            "input_shape": list(loaded.model.input_shape[1:]),
            "output_shape": list(outputs.shape[1:]),
            "head": has_head(loaded.model),
            "agreement_of": "top-1" if reference.top_1 else "cosine",
            "largest_answer": float(np.abs(outputs).max()),
            "all_alike": len(outputs) > 1 and not np.ptp(outputs, axis=0).any(),
            "images": reference.samples.about,
            "cpu": cpu_name(),
            **{name: value for name, value in about.items() if value is not None},
            "exports": [reference.row],
            "refused": [],
        }

    def allow_any_size(self, scratch: pathlib.Path) -> None:
        """Exports for images of any size where a format can, compared at another one.

        They are compared on synthetic images, with a Keras model for that size alone.
        """
        model = self.loaded.model
        self.of_any_size = _of_any_size(model)
        height, width = model.input_shape[1:3]
        size = nearest_size((1.5 * height, 0.75 * width), size_step(model))
        other = dataclasses.replace(
            self.loaded, model=keras_vit.at_image_size(model, size)
        )
        path = str(scratch / "others")
        samples = sample_images.generate(other, path, _AT_ANOTHER_SIZE)
        self.other_size = size, Reference(other, samples, self.reference.threads)

    def write(self, rows: Sequence[Format], out: pathlib.Path) -> None:
        """Writes the formats and the report; an `ExportError` where one is refused."""
        with whole_folder(out) as folder:
            for row in rows:
                print(f"writing {row.name}", flush=True)
                self.add(row, folder)
            self.write_report(out, folder)
        if self.results["refused"]:
            names = ", ".join(row["name"] for row in self.results["exports"][1:])
            raise ExportError(f"Written to {out}: {names}", self.results)

    def add(self, row: Format, folder: pathlib.Path) -> None:
        """Writes and runs one format; a failure leaves the others as they are."""
        before, entry = set(folder.iterdir()), {"name": row.name}
        exact = self.min_agreement is not None
        required = self.min_agreement if exact else row.min_agreement
        try:
            entry |= self._written(row, folder) | {"min_agreement": required}
            why = _shortfall(self.results, entry, row, exact=exact)
        except RunError as error:
            why = str(error).removeprefix(f"{row.name} ")
        # An error in one format, ours or a library's, must not lose the others.
        except Exception as error:
            why = f"{type(error).__name__}: {first_line(error)}"
        if why is None:
            self.results["exports"].append(entry)
            if entry.get("aim") is not None:
                print(report.matrices(entry), flush=True)
            return
        self.results["refused"].append(entry | {"why": why, "files": []})
        for path in set(folder.iterdir()) - before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        print(f"{row.name} is refused: {why}", flush=True)

    def _written(self, row, folder):
        """Writes one format, runs it, and returns what the results have of it."""
        is_of_any_size = self.of_any_size is not None and "any_size" in row.takes
        model = self.of_any_size if is_of_any_size else self.loaded.model
        files = _write(row, model, folder, self.arguments)
        facts, comparison = self.reference.compared(row, folder / row.file)
        entry = facts | comparison | files
        if is_of_any_size:
            size, reference = self.other_size
            _, comparison = reference.compared(row, folder / row.file)
            count = {"image_size": list(size), "count": _AT_ANOTHER_SIZE}
            entry["other_size"] = count | comparison
        return entry

    def write_report(self, out: pathlib.Path, folder: pathlib.Path) -> None:
        """Writes results, page and names of the classes, unless nothing is written."""
        if len(self.results["exports"]) == 1:
            raise ExportError(f"Nothing was written to {out}", self.results)
        class_names = self.reference.samples.class_names
        write_json(folder / RECORD, self.results, "--out")
        page = report.page(self.results, class_names)
        write_text(folder / PAGE, page, "--out")
        if class_names is not None:
            names = "".join(f"{name}\n" for name in class_names)
            write_text(folder / CLASS_NAMES, names, "--out")


def _files_of(record):
    """Returns the files of an earlier export by its `export.json`."""
    own = {file["path"] for row in record["exports"] for file in row["files"]}
    return own | {PAGE, CLASS_NAMES}


def _of_any_size(model):
    try:
        resized = keras_vit.at_image_size(model, (None, None))
        own_image_size(resized)
    except ValueError as error:
        raise RunError(
            f"{model.name} cannot be exported for images of any size: leave --any_size "
            f"out. {error}"
        ) from error
    return resized


def _write(row, model, folder, arguments):
    """Writes one format; returns what `export.json` holds of its files."""
    before = file_names(folder)
    arguments = arguments | {"precision": row.precision}
    arguments = {name: arguments[name] for name in ("class_names", *row.takes)}
    arguments.pop("any_size", None)
    writer = pkgutil.resolve_name(row.runtime.writer)
    try:
        matrices = writer(model, folder / row.file, **arguments)
    except ValueError as error:
        raise RunError(f"the model cannot be written: {error}") from error
    files = [
        {
            "path": file,
            "bytes": (folder / file).stat().st_size,
            "sha256": digest(folder / file, "sha256"),
        }
        for file in sorted(file_names(folder) - before)
    ]
    facts = {"bytes": sum(file["bytes"] for file in files), "files": files}
    if matrices is not None:
        facts |= {"aim": arguments.get("min_agreement"), "matrices": matrices}
    return facts


def _shortfall(results, entry, row, *, exact):
    """Returns why an export agrees too little, None where it agrees enough."""
    # Below the default the conversion is broken, which few images cannot prove: compare
    # the upper end of the interval. Cosines have none.
    is_interval = not exact and "agreement_high" in entry
    reached = entry["agreement_high" if is_interval else "agreement"]
    other = entry.get("other_size")
    if other is not None and other["agreement"] < entry["min_agreement"]:
        height, width = other["image_size"]
        return (
            f"its agreement with the model is {other['agreement']:.6f} on images of "
            f"{height}x{width}, less than the {entry['min_agreement']} required: leave "
            "--any_size out."
        )
    if reached >= entry["min_agreement"]:
        return None
    remedy = "leave it out, or lower --min_agreement if its accuracy is enough"
    if row.is_quantized and entry["aim"] is None:
        remedy += "; with a data set, --min_agreement=0.995 keeps matrices in float16"
    return (
        "its agreement with the model is "
        f"{report.agreement(results, entry['agreement'], entry)} on "
        f"{results['images']['count']} images, less than the "
        f"{report.agreement(results, entry['min_agreement'])} required: {remedy}."
    )

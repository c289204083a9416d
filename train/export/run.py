"""Exports a model: writes each format, runs it and compares it with the model."""

import dataclasses
import json
import os
import pathlib
import pkgutil
import shutil
import tempfile

import numpy as np

from train.common import packages
from train.common.errors import RunError, first_line
from train.common.files import check_replaceable, file_names, whole_file, whole_folder
from train.common.hardware import cpu_name
from train.export import parity, report, sample_images
from train.export.formats import select
from train.inference import evaluation_data, loaded_model
from train.inference.heads import has_head
from train.inference.model_writing import in_float32
from zoo.store import digest

PAGE, RECORD, CLASS_NAMES = "export.md", "export.json", "class_names.txt"
_KERAS = "train.export.runtimes:keras"


class ExportError(RunError):
    """Some formats cannot be written, do not run, or disagree with the model.

    Attributes:
        results: dict, see `export`, of the formats that are written.
    """

    def __init__(self, message, results):
        super().__init__(message)
        self.results = results


def export(
    model,
    formats,
    out,
    *,
    dataset=None,
    data_dir=None,
    skip_corrupt=False,
    split="test",
    central_crop=False,
    image_size=None,
    features=False,
    compared=None,
    calibration=128,
    min_agreement=None,
    dynamic_batch=False,
    uint8=False,
    threads=None,
    command="",
):
    """Exports a model, and compares each export with it in the format's own runtime.

    They are compared on images of a data set, spread evenly over the split, or else on
    synthetic ones. Formats that agree are written to `out`; those that do not are left
    out, and an error at the end names them.

    Args:
        model: str, see `train.inference.loaded_model.load`.
        formats: sequence of str, names in `train.export.formats.FORMATS`, or `"all"`.
        out: path of the folder of the exports. An earlier export in it is replaced as a
            whole.
        dataset: str, see `train.data.sources.load`; by default that of the run that the
            model comes from. Without any, images are generated.
        data_dir: path of the TFDS data, None for the default one.
        skip_corrupt: bool, whether to leave out images that cannot be read.
        split: `"test"`, `"validation"` or `"train"`, whose images are compared.
        central_crop: bool, see `train.inference.evaluation_data.center_crop`.
        image_size: int or (height, width) in pixels; by default that of the model.
        features: bool, whether to leave the head out.
        compared: int, the number of images compared; by default 500 of a data set, or
            64 synthetic ones.
        calibration: int, the number of images of the training split that calibrate
            int8, and from which the effect of `min_agreement` is estimated.
        min_agreement: float in [0, 1], required of every export, see
            `train.export.parity.compare`. By default it is that of each format, and the
            upper end of the agreement's 95% interval must reach it. If given, the
            agreement itself must, and quantized exports keep as many matrices in
            float16 as that takes, by an estimate from images of the data set.
        dynamic_batch: bool, whether TFLite takes any batch size.
        uint8: bool, whether full int8 takes and returns uint8.
        threads: int, for the runtimes; by default one per core.
        command: str, the command line, for the report.

    Returns:
        Dict, the content of `export.json`.

    Raises:
        ValueError: a format is unknown, or an option has no effect.
        ExportError: a format cannot be written, does not run, or falls short of
            `min_agreement`; the others are written, unless there are none.
        RunError: model, data, packages or folder do not fit; the message names the
            remedy.

    Example:

    >>> export("runs/digits", ["tflite"], "exported")  # doctest: +SKIP
    """
    options = {"dynamic_batch": dynamic_batch, "uint8": uint8}
    rows = select(formats, **options)
    for row in rows:
        packages.need(
            row.name, row.runtime.packages, hint=", or leave it out", extra="export"
        )
    out = pathlib.Path(out).expanduser()
    check_replaceable(out, RECORD, _files_of, "export")
    given = loaded_model.load(model, image_size=image_size, features=features)
    with_head = has_head(given.model)
    if with_head:
        evaluation_data.num_logits(given)
    given = dataclasses.replace(
        given,
        model=in_float32(given.model),
        class_names=given.class_names if with_head else None,
    )
    # Features have no classes by which to choose the matrices that stay in float16.
    target = (min_agreement or None) if with_head else None
    threads = threads or os.cpu_count()
    with tempfile.TemporaryDirectory() as scratch:
        samples = _sample_images(
            given,
            os.path.join(scratch, "images"),
            compared,
            rows,
            calibration=calibration,
            is_estimated=target is not None,
            central_crop=central_crop,
            dataset=dataset,
            data_dir=data_dir,
            skip_corrupt=skip_corrupt,
            split=split,
        )
        saved = pathlib.Path(scratch) / "model.keras"
        given.model.save(saved)
        count = samples.about["count"]

        def outputs(name, loader, path):
            return parity.run(
                name, loader, path, samples.path, threads=threads, count=count
            )

        expected, facts = outputs("keras", _KERAS, saved)
        if not np.isfinite(expected).all():
            raise RunError(
                f"The model {given.name} has outputs that are not finite, with which "
                "nothing can be compared: pass an earlier checkpoint."
            )
        # Generated images have no class: the largest logit is so by little.
        of_data_set = samples.about["data_set"] is not None
        top_1 = with_head and expected.shape[1] > 1 and of_data_set
        parity_of = {"top_1": top_1, "labels": samples.labels}
        keras_row = {"name": "keras", **facts}
        keras_row |= parity.compare(expected, expected, **parity_of)
        results = {
            "model": given.name,
            "command": command,
            "input_shape": list(given.model.input_shape[1:]),
            "output_shape": list(expected.shape[1:]),
            "head": with_head,
            "agreement_of": "top-1" if top_1 else "cosine",
            "largest_answer": float(np.abs(expected).max()),
            "all_alike": len(expected) > 1
            and bool(np.ptp(expected, axis=0).max() == 0),
            "images": samples.about,
            "cpu": cpu_name(),
            "threads": threads,
            **options,
            "exports": [keras_row | {"bytes": saved.stat().st_size, "files": []}],
            "refused": [],
        }

        def written(row, folder):
            files = _write(row, given.model, folder, samples, target, options)
            found, facts = outputs(row.name, row.runtime.loader, folder / row.file)
            return facts | parity.compare(found, expected, **parity_of) | files

        with whole_folder(out) as folder:
            for row in rows:
                print(f"writing {row.name}", flush=True)
                _add(results, row, folder, written, min_agreement)
            if len(results["exports"]) == 1:
                raise _error(results, f"Nothing was written to {out}")
            _describe(folder, results, samples.class_names)
    if results["refused"]:
        names = ", ".join(row["name"] for row in results["exports"][1:])
        raise _error(results, f"Written to {out}: {names}")
    return results


def _files_of(record):
    """Returns the files of an earlier export by its `export.json`."""
    own = {file["path"] for row in record["exports"] for file in row["files"]}
    return own | {PAGE, CLASS_NAMES}


def _sample_images(given, path, count, rows, *, calibration, is_estimated, **options):
    calibrated = [row.name for row in rows if row.needs_calibration]
    if options["dataset"] is None and "dataset" not in given.config:
        if calibrated:
            raise RunError(f"{calibrated[0]} needs calibration images: pass --dataset.")
        return sample_images.generate(given, path, count)
    if not calibrated and not (is_estimated and any(row.is_quantized for row in rows)):
        calibration = None
    return sample_images.read(given, path, count, calibration=calibration, **options)


def _write(row, model, folder, samples, target, options):
    """Writes one format; returns what `export.json` holds of its files."""
    before = file_names(folder)
    arguments = {name: options[name] for name in row.options}
    if row.precision is not None:
        arguments["precision"] = row.precision
    if row.is_quantized:
        arguments["calibration"] = samples.calibration
        arguments["min_agreement"] = target if samples.calibration is not None else None
    writer = pkgutil.resolve_name(row.runtime.writer)
    try:
        matrices = writer(
            model, folder / row.file, class_names=samples.class_names, **arguments
        )
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


def _add(results, row, folder, written, min_agreement):
    """Writes and runs one format; a failure leaves the others as they are."""
    before, entry = set(folder.iterdir()), {"name": row.name}
    required = row.min_agreement if min_agreement is None else min_agreement
    try:
        entry |= written(row, folder) | {"min_agreement": required}
        why = _shortfall(results, entry, row, exact=min_agreement is not None)
    except RunError as error:
        why = str(error).removeprefix(f"{row.name} ")
    # A mistake in one format, of ours or of a library, is no reason to lose the others.
    except Exception as error:
        why = f"{type(error).__name__}: {first_line(error)}"
    if why is None:
        results["exports"].append(entry)
        if entry.get("aim") is not None:
            print(report.matrices(entry), flush=True)
        return
    results["refused"].append(entry | {"why": why, "files": []})
    for path in set(folder.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(f"{row.name} is refused: {why}", flush=True)


def _shortfall(results, entry, row, *, exact):
    """Returns why an export agrees too little, None where it agrees enough."""
    found = entry["agreement"]
    if not exact:
        # Less than the default means a broken conversion, which few images cannot
        # prove. Cosines have no interval.
        found = entry.get("agreement_high", found)
    if found >= entry["min_agreement"]:
        return None
    remedy = "leave it out, or lower --min_agreement if its accuracy is enough"
    if row.is_quantized and entry["aim"] is None:
        remedy += "; with a data set, --min_agreement=0.995 keeps matrices in float16"
    return (
        f"its agreement with the model is "
        f"{report.agreement(results, entry['agreement'], entry)} on "
        f"{results['images']['count']} images, less than the "
        f"{report.agreement(results, entry['min_agreement'])} required: {remedy}."
    )


def _error(results, written):
    refused = results["refused"]
    reasons = "".join(f"\n{row['name']}: {row['why']}" for row in refused)
    count = len(refused) + len(results["exports"]) - 1
    return ExportError(
        f"{len(refused)} of {count} exports failed. {written}.{reasons}", results
    )


def _describe(folder, results, class_names):
    texts = {
        RECORD: json.dumps(results, indent=2, ensure_ascii=False) + "\n",
        PAGE: report.page(results, class_names),
    }
    if class_names is not None:
        texts[CLASS_NAMES] = "".join(f"{name}\n" for name in class_names)
    for name, text in texts.items():
        with whole_file(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")

"""Exports a model: writes each format, runs it and compares it with the model."""

import dataclasses
import functools
import os
import pathlib
import pkgutil
import shutil

import numpy as np

import keras_vit
from keras_vit.runtimes.precision import in_precision
from keras_vit.structure import bits_of, own_image_size, set_bits, size_step
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
from train.export import parity, report, sample_images
from train.export.formats import select
from train.inference import evaluation_data, finding, loaded_model
from train.inference.model_writing import has_head
from zoo.machine import cpu_name
from zoo.regular_files import expand_home
from zoo.store import digest

PAGE, RECORD, CLASS_NAMES = "export.md", "export.json", "class_names.txt"
# How many images of another size exports for any size are compared on.
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
    model,
    formats,
    out,
    *,
    dataset=None,
    data_dir=None,
    skip_corrupt=False,
    bits=None,
    split="test",
    central_crop=None,
    image_size=None,
    features=False,
    compared=None,
    calibration=128,
    min_agreement=None,
    dynamic_batch=False,
    uint8=False,
    any_size=False,
    threads=None,
    command="",
):
    """Exports a model, and compares each export with it in the format's own runtime.

    They are compared on images of a data set, spread evenly over the split, or else on
    synthetic ones. Formats that agree are written to `out`; those that do not are left
    out, and an error at the end names them.

    The arguments are the flags of `python -m train.export`: `formats`, a sequence of
    str, is --format, `compared` --images, and `calibration` --calibration_images.
    `central_crop` is None for what the model says. In addition, `command` is the
    command line for the report.

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
    loaded = loaded_model.load(model, image_size=image_size, features=features)
    with_head = has_head(loaded.model)
    if with_head:
        evaluation_data.num_logits(loaded)
    loaded = dataclasses.replace(
        loaded,
        model=in_precision(loaded.model),
        class_names=loaded.class_names if with_head else None,
    )
    bits, notes = finding.bits_of(model, bits_of(loaded.model), bits)
    set_bits(loaded.model, bits)
    # Features have no classes by which to choose the matrices that stay in float16.
    target = (min_agreement or None) if with_head else None
    threads = threads or os.cpu_count()
    with scratch_folder("export") as scratch:
        images = os.path.join(scratch, "images")
        if dataset is None and "dataset" not in loaded.config:
            if names := [row.name for row in rows if row.needs_calibration]:
                raise RunError(f"{names[0]} needs calibration images: pass --dataset.")
            samples = sample_images.generate(loaded, images, compared)
        else:
            for note in notes:
                print(note)
            calibrated = any(
                row.needs_calibration or (target and row.is_quantized) for row in rows
            )
            samples = sample_images.read(
                loaded,
                images,
                compared,
                calibration=calibration if calibrated else None,
                central_crop=central_crop,
                dataset=dataset,
                data_dir=data_dir,
                skip_corrupt=skip_corrupt,
                bits=bits,
                split=split,
            )
        saved = pathlib.Path(scratch) / "model.keras"
        loaded.model.save(saved)
        outputs_of = functools.partial(
            parity.run,
            images=samples.path,
            threads=threads,
            count=samples.about["count"],
        )
        expected, facts = outputs_of("keras", "keras", saved)
        if not np.isfinite(expected).all():
            raise RunError(
                f"The model {loaded.name} has outputs that are not finite, with which "
                "nothing can be compared: pass an earlier checkpoint."
            )
        # On generated images the largest logit exceeds the next by little.
        of_data_set = samples.about["data_set"] is not None
        top_1 = with_head and expected.shape[1] > 1 and of_data_set
        compare = functools.partial(
            parity.compare, expected=expected, top_1=top_1, labels=samples.labels
        )
        keras_row = {"name": "keras", **facts, **compare(expected)}
        keras_row |= {"bytes": saved.stat().st_size, "files": []}
        results = {
            "model": loaded.name,
            "command": command,
            "input_shape": list(loaded.model.input_shape[1:]),
            "output_shape": list(expected.shape[1:]),
            "head": with_head,
            **({} if bits is None else {"bits": bits}),
            "agreement_of": "top-1" if top_1 else "cosine",
            "largest_answer": float(np.abs(expected).max()),
            "all_alike": len(expected) > 1
            and bool(np.ptp(expected, axis=0).max() == 0),
            "images": samples.about,
            "cpu": cpu_name(),
            "threads": threads,
            **options,
            "exports": [keras_row],
            "refused": [],
        }

        arguments = options | {
            "calibration": samples.calibration,
            "min_agreement": None if samples.calibration is None else target,
            "class_names": samples.class_names,
        }

        compare_other, of_any_size = None, None
        if any_size:
            of_any_size = _of_any_size(loaded.model)
            compare_other = _comparison_at_another_size(
                loaded, pathlib.Path(scratch), threads
            )

        def written(row, folder):
            is_any = of_any_size is not None and "any_size" in row.takes
            model = of_any_size if is_any else loaded.model
            files = _write(row, model, folder, arguments)
            path = folder / row.file
            outputs, facts = outputs_of(row.name, row.runtime.name, path)
            entry = facts | compare(outputs) | files
            if is_any:
                entry["other_size"] = compare_other(row.name, row.runtime.name, path)
            return entry

        with whole_folder(out) as folder:
            for row in rows:
                print(f"writing {row.name}", flush=True)
                _add(results, row, folder, written, min_agreement)
            if len(results["exports"]) == 1:
                raise ExportError(f"Nothing was written to {out}", results)
            write_json(folder / RECORD, results, "--out")
            page = report.page(results, samples.class_names)
            write_text(folder / PAGE, page, "--out")
            if samples.class_names is not None:
                names = "".join(f"{name}\n" for name in samples.class_names)
                write_text(folder / CLASS_NAMES, names, "--out")
    if results["refused"]:
        names = ", ".join(row["name"] for row in results["exports"][1:])
        raise ExportError(f"Written to {out}: {names}", results)
    return results


def _comparison_at_another_size(loaded, scratch, threads):
    """Returns a function from an export to how it compares at another image size.

    On synthetic images, with a Keras model for that size alone.
    """
    model = loaded.model
    steps = zip(model.input_shape[1:3], size_step(model), (1.5, 0.75), strict=True)
    size = tuple(
        max(round(scale * side / step), 1) * step for side, step, scale in steps
    )
    other = dataclasses.replace(loaded, model=keras_vit.at_image_size(model, size))
    samples = sample_images.generate(other, str(scratch / "others"), _AT_ANOTHER_SIZE)
    saved = scratch / "other.keras"
    other.model.save(saved)
    run = functools.partial(
        parity.run, images=samples.path, threads=threads, count=_AT_ANOTHER_SIZE
    )
    expected, _ = run("keras", "keras", saved)

    def compare(name, runtime, path):
        outputs, _ = run(name, runtime, path)
        found = parity.compare(outputs, expected, top_1=False)
        return {"image_size": list(size), "count": _AT_ANOTHER_SIZE, **found}

    return compare


def _files_of(record):
    """Returns the files of an earlier export by its `export.json`."""
    own = {file["path"] for row in record["exports"] for file in row["files"]}
    return own | {PAGE, CLASS_NAMES}


def _of_any_size(model):
    try:
        found = keras_vit.at_image_size(model, (None, None))
        own_image_size(found)
    except ValueError as error:
        raise RunError(
            f"{model.name} cannot be exported for images of any size: leave --any_size "
            f"out. {error}"
        ) from error
    return found


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
    # Less than the default means a broken conversion, which few images cannot prove.
    # Cosines have no interval.
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

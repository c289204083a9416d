"""A model as files for other runtimes, each proven equal to it."""

import dataclasses
import json
import os
import pathlib
import shutil
import tempfile

import numpy as np

from train.common.errors import RunError, first_line
from train.common.files import check_replaceable, whole_file, whole_folder
from train.common.hardware import cpu_name
from train.export import page, parity, trial
from train.export.formats import FORMATS, chosen, need_packages
from train.export.writing import write
from train.inference import evaluation_data, given_model
from train.inference.heads import has_head
from train.inference.model_writing import in_float32

PAGE, NUMBERS, CLASS_NAMES = "export.md", "export.json", "class_names.txt"


class Refused(RunError):
    """Some formats cannot be made of the model, or do not answer as it does.

    Attributes:
        results: dict, what `export.json` holds of those that are written.
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
    """Exports a model, and compares every export with it in its own runtime.

    They are compared on images of a data set, spread evenly over the split, or else on
    generated ones. What agrees is written to `out`, what does not is left out and
    named by an error at the end.

    Args:
        model: str, see `train.inference.given_model.load`.
        formats: sequence of str, names in `train.export.formats.FORMATS`, or
            `"all"`.
        out: path of the folder of the exports. An earlier export that is there is
            replaced whole.
        dataset: str, see `train.data.sources.load`; by default that of the run that the
            model comes from. Without any, images are generated.
        data_dir: path of the TFDS data, None for the usual one.
        skip_corrupt: bool, whether to leave out images that cannot be read.
        split: `"test"`, `"validation"` or `"train"`, whose images are compared.
        central_crop: bool, see `train.inference.evaluation_data.center_crop`.
        image_size: int or (height, width) in pixels; by default that of the model.
        features: bool, whether to leave the head out.
        compared: int, how many images are compared; by default 500 of a data set, or
            64 that are generated.
        calibration: int, how many images of the training split calibrate int8, and
            tell what `min_agreement` takes.
        min_agreement: float in [0, 1], for every export, see
            `train.export.parity.compare`; by default that of each format, which
            the upper end of the 95% interval must reach. Given, the agreement itself
            must, and quantised exports keep in float16 what it takes to reach it, by
            an estimate from images of the data set.
        dynamic_batch: bool, whether TFLite takes any number of images at a time.
        uint8: bool, whether full int8 takes and gives uint8.
        threads: int, that the runtimes compute with; by default all cores.
        command: str, what was typed, for the report.

    Returns:
        Dict, what `export.json` holds.

    Raises:
        ValueError: a format is unknown, or an option without effect.
        Refused: a format cannot be made of the model, does not run, or falls short of
            `min_agreement`; the others are written, unless there are none.
        RunError: model, data, packages or folder are not as needed; the message says
            what to do.

    Example:

    >>> export("runs/digits", ["tflite"], "exported")  # doctest: +SKIP
    """
    names = chosen(formats, dynamic_batch=dynamic_batch, uint8=uint8)
    need_packages(names)
    out = pathlib.Path(out).expanduser()
    check_replaceable(out, NUMBERS, _files_of, "export")
    given = given_model.load(model, image_size=image_size, features=features)
    given = dataclasses.replace(given, model=in_float32(given.model))
    with_head = has_head(given.model)
    if with_head:
        evaluation_data.num_logits(given)
    has_classes = with_head and len(given.model.output_shape) == 2
    # Of features no best class can change, so nothing tells what is to be kept.
    aim = (min_agreement or None) if has_classes else None
    threads = threads or os.cpu_count()
    with tempfile.TemporaryDirectory() as scratch:
        tried = _tried_on(
            given,
            os.path.join(scratch, "images"),
            compared,
            calibration,
            [
                name
                for name in names
                if name == "tflite-int8" or (FORMATS[name].is_quantised and aim)
            ],
            central_crop,
            dataset=dataset,
            data_dir=data_dir,
            skip_corrupt=skip_corrupt,
            split=split,
        )
        if not with_head:
            tried = dataclasses.replace(tried, class_names=None)
        saved = pathlib.Path(scratch) / "model.keras"
        given.model.save(saved)
        expected, facts = parity.answers(
            "keras", "keras", saved, tried.images, threads=threads
        )
        if not np.isfinite(expected).all():
            raise RunError(
                f"The model {given.name} answers with numbers that are not finite, to "
                "which nothing can be compared: take an earlier checkpoint."
            )
        # Generated images are of no class: the largest logit is by little.
        top_1 = (
            with_head and expected.shape[1] > 1 and tried.about["data_set"] is not None
        )
        rows = [_row("keras", facts, expected, expected, top_1, tried.labels)]
        rows[0] |= {"bytes": saved.stat().st_size, "files": []}
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
            "images": tried.about,
            "cpu": cpu_name(),
            "threads": threads,
            "dynamic_batch": dynamic_batch,
            "uint8": uint8,
            "exports": rows,
            "refused": [],
        }

        def exported(name, folder):
            written = write(
                name,
                given.model,
                folder,
                tried,
                min_agreement=aim,
                dynamic_batch=dynamic_batch,
                uint8=uint8,
            )
            kind, path = FORMATS[name].kind, folder / FORMATS[name].file
            found, facts = parity.answers(
                name, kind, path, tried.images, threads=threads
            )
            row = _row(name, facts, found, expected, top_1, tried.labels)
            wanted = min_agreement
            if wanted is None:
                wanted = FORMATS[name].min_agreement
            return row | written | {"min_agreement": wanted}

        with whole_folder(out) as folder:
            for name in names:
                print(f"writing {name}", flush=True)
                _add(results, name, folder, exported, exact=min_agreement is not None)
            if len(rows) == 1:
                raise _refusal(results, f"Nothing was written to {out}")
            _describe(folder, results, tried.class_names)
    if results["refused"]:
        written = ", ".join(row["name"] for row in rows[1:])
        raise _refusal(results, f"Written to {out}: {written}")
    return results


def _files_of(earlier):
    """Of the `export.json` of an earlier export."""
    own = {file["path"] for row in earlier["exports"] for file in row["files"]}
    return own | {PAGE, CLASS_NAMES}


def _tried_on(given, path, compared, calibration, calibrated, central_crop, **data):
    if data["dataset"] is not None or "dataset" in given.config:
        return trial.on_data_set(
            given,
            path,
            compared,
            calibration=calibration if calibrated else None,
            central_crop=central_crop,
            **data,
        )
    if "tflite-int8" in calibrated:
        raise RunError(
            "tflite-int8 needs images like those that the model is for, to find out "
            "how large its numbers become: pass --dataset."
        )
    return trial.on_clouds(given, path, compared)


def _row(name, facts, found, expected, top_1, labels):
    try:
        compared = parity.compare(found, expected, top_1=top_1, labels=labels)
    except ValueError as error:
        raise RunError(f"{name} is not what it should be: {error}.") from error
    return {"name": name} | facts | compared


def _add(results, name, folder, exported, *, exact):
    """Writes one format and runs it; what fails leaves the others as they are."""
    before, row = set(folder.iterdir()), {"name": name}
    try:
        row = exported(name, folder)
        why = _too_little(results, row, exact)
    except RunError as error:
        why = str(error).removeprefix(f"{name} ")
    # A mistake in one format, of ours or of a library, is no reason to lose the others.
    except Exception as error:
        why = f"{type(error).__name__}: {first_line(error)}"
    if why is None:
        results["exports"].append(row)
        if row.get("aim") is not None:
            print(page.matrices(row), flush=True)
        return
    results["refused"].append(row | {"why": why, "files": []})
    for path in set(folder.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(f"{name} is refused: {why}", flush=True)


def _too_little(results, row, exact):
    """Says what is wrong with an export that agrees too little, None if it does not."""
    found = row["agreement"]
    if not exact:
        # What is below the default is broken, which few images may not tell. Cosines
        # have no interval.
        found = row.get("agreement_high", found)
    if found >= row["min_agreement"]:
        return None
    remedy = "leave it out, or lower --min_agreement if its accuracy is enough"
    if FORMATS[row["name"]].is_quantised and row["aim"] is None:
        remedy += "; with a data set, --min_agreement=0.995 keeps matrices in float16"
    return (
        f"it agrees with the model by {page.agreement(results, row['agreement'], row)} "
        f"on {results['images']['count']} images, and "
        f"{page.agreement(results, row['min_agreement'])} is wanted: {remedy}."
    )


def _refusal(results, written):
    refused = results["refused"]
    reasons = "".join(f"\n{row['name']}: {row['why']}" for row in refused)
    count = len(refused) + len(results["exports"]) - 1
    return Refused(
        f"{len(refused)} of {count} exports failed. {written}.{reasons}", results
    )


def _describe(folder, results, class_names):
    texts = {
        NUMBERS: json.dumps(results, indent=2, ensure_ascii=False) + "\n",
        PAGE: page.export_page(results, class_names),
    }
    if class_names is not None:
        texts[CLASS_NAMES] = "".join(f"{name}\n" for name in class_names)
    for name, text in texts.items():
        with whole_file(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")

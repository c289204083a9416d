"""A model as files for other runtimes, each proven equal to it."""

import dataclasses
import json
import os
import pathlib
import tempfile

import numpy as np

from train import evaluation, given_model
from train.earlier import check_replaceable
from train.errors import RunError
from train.exporters import page, parity, trial
from train.exporters.formats import FORMATS, chosen, need_packages
from train.exporters.precision import in_float32
from train.exporters.writing import write
from train.files import whole_file, whole_folder
from train.heads import has_head
from train.machine import cpu_name

PAGE, NUMBERS, CLASS_NAMES = "export.md", "export.json", "class_names.txt"


class Refused(RunError):
    """An export answers too little as the model does.

    Attributes:
        results: dict, what `export.json` would have held.
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
    generated ones. Nothing is written to `out` unless all agree.

    Args:
        model: str, see `train.given_model.load`.
        formats: sequence of str, names in `train.exporters.formats.FORMATS`, or
            `"all"`.
        out: path of the folder of the exports. An earlier export that is there is
            replaced whole.
        dataset: str, see `train.data.sources.load`; by default that of the run that the
            model comes from. Without any, images are generated.
        data_dir: path of the TFDS data, None for the usual one.
        skip_corrupt: bool, whether to leave out images that cannot be read.
        split: `"test"`, `"validation"` or `"train"`, whose images are compared.
        central_crop: bool, see `train.evaluation.centred`.
        image_size: int or (height, width) in pixels; by default that of the model.
        features: bool, whether to leave the head out.
        compared: int, how many images are compared; by default 500 of a data set, or
            64 that are generated.
        calibration: int, how many images of the training split calibrate int8, and
            tell how much dynamic changes.
        min_agreement: float in [0, 1], for every export, see
            `train.exporters.parity.compare`; by default that of each format. Given,
            quantised exports keep in higher precision what it takes to reach it.
        dynamic_batch: bool, whether TFLite takes any number of images at a time.
        uint8: bool, whether full int8 takes and gives uint8.
        threads: int, that the runtimes compute with; by default all cores.
        command: str, what was typed, for the report.

    Returns:
        Dict, what `export.json` holds.

    Raises:
        ValueError: a format is unknown, or an option without effect.
        Refused: an export falls short of `min_agreement`; nothing is written.
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
        evaluation.classes_of(given)
    has_classes = with_head and len(given.model.output_shape) == 2
    aims = _aims(names, min_agreement, has_classes)
    threads = threads or os.cpu_count()
    with tempfile.TemporaryDirectory() as scratch:
        tried = _tried_on(
            given,
            os.path.join(scratch, "images"),
            compared,
            calibration,
            [name for name in names if name == "tflite-int8" or aims[name]],
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
        }
        with whole_folder(out) as folder:
            for name in names:
                print(f"writing {name}", flush=True)
                written = write(
                    name,
                    given.model,
                    folder,
                    tried,
                    min_agreement=aims[name],
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
                rows.append(row | written | {"min_agreement": wanted})
            _check_agreement(results, out)
            _describe(folder, results, tried.class_names)
    return results


def _files_of(earlier):
    """Of the `export.json` of an earlier export."""
    own = {file["path"] for row in earlier["exports"] for file in row["files"]}
    return own | {PAGE, CLASS_NAMES}


def _aims(names, min_agreement, has_classes):
    """Returns the agreement that each quantised export is written for, None for any."""
    aims = dict.fromkeys(names)
    for name in names:
        export = FORMATS[name]
        if export.is_quantised and has_classes:
            aims[name] = (
                export.aim if min_agreement is None else min_agreement
            ) or None
    return aims


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


def _check_agreement(results, out):
    low = [
        row
        for row in results["exports"]
        if row["agreement"] < row.get("min_agreement", 0.0)
    ]
    if low:
        named = ", ".join(
            f"{row['name']} {page.agreement(results, row['agreement'])} (at least "
            f"{page.agreement(results, row['min_agreement'])} wanted)"
            for row in low
        )
        remedy = "leave these out of --format, or lower --min_agreement"
        if any(FORMATS[row["name"]].is_quantised for row in low):
            remedy += "; with a data set, --min_agreement=1 keeps most in float16"
        raise Refused(
            f"Too little of what the exports answer to {results['images']['count']} "
            f"images agrees with the model: {named}. Nothing was written to {out}: "
            f"{remedy}.",
            results,
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

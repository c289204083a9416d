"""Writes the report of what a model attends to in photos: figures and numbers."""

import csv
import pathlib

import numpy as np

import keras_vit
from keras_vit.explain import attention_distance
from keras_vit.structure import grid_size, num_layers, pooling_of
from train.common import files
from train.common.progress import progress_bar
from train.data.sources.folder_source import heic_remedy
from train.data.sources.splits import named
from train.data.sources.subset import spread
from train.engine.loop import explaining_full_memory
from train.explain import figures
from train.explain.page import render
from train.explain.photos import Photos
from train.inference import loaded_model
from train.inference.classes import classes_of
from train.inference.loaded_model import image_shape_of

PAGE, NUMBERS, PREDICTIONS = "report.html", "report.json", "predictions.csv"
_BATCH_SIZE = 8


def explain(
    model,
    images,
    out,
    *,
    image_size=None,
    central_crop=False,
    shown=12,
    class_name=None,
    command="",
):
    """Writes a report of what a model attends to in photos; returns `report.json`.

    The arguments are the flags of `python -m train.explain`, `class_name` being
    `--class`; `image_size` may be (height, width), and `command` is the command line,
    for the report.

    Raises:
        RunError: photos, model or folder cannot be used; the message says what to do.

    Example:
        >>> explain("runs/digits", ["photos"], "report")  # doctest: +SKIP
    """
    out = pathlib.Path(out).expanduser()
    files.check_replaceable(out, NUMBERS, lambda earlier: earlier["files"], "report")
    photos = Photos(images, without=out)
    if photos.ignored:
        print(
            f"ignored, no images by their names ({len(photos.ignored)}): "
            f"{named(photos.ignored)}{heic_remedy(photos.ignored)}"
        )
    loaded = loaded_model.load(model, image_size=image_size)
    photos.prepare_for(image_shape_of(loaded, channels=(1, 3)), central_crop)
    classes = classes_of(loaded)
    target = None if class_name is None else classes.find(class_name)

    memory = explaining_full_memory("lower --image_size, or give a smaller model.")
    with files.whole_folder(out) as folder, memory:
        for name in ("figures", "numbers"):
            (folder / name).mkdir()
        outputs, distance = predict(loaded.model, photos)
        top, why_no_predictions = [None] * len(photos), None
        try:
            probabilities, top = classes.predict(outputs)
        except ValueError as error:
            why_no_predictions = str(error)
        else:
            numbers = {"probabilities": probabilities, "class_names": classes.names}
            figures.write_numbers(
                folder, "predictions", numbers | {"photos": photos.names}
            )

        inspected, places = [], spread(len(photos), shown)
        drawing = {"total": len(places), "unit": "photo", "desc": "drawing"}
        for photo in progress_bar(iterable=photos.chosen(places), **drawing):
            one = figures.PhotoInspection(loaded, photo, top[photo.place], target)
            one.figures = figures.write(folder, "photo", one, photo)
            inspected.append(one)
        of_photos = figures.write(folder, "photos", inspected)
        whole = figures.ModelInspection(loaded, photos.names, distance)
        of_model = figures.write(folder, "model", whole)
        of_each = [figure for one in inspected for figure in one.figures]

        pooled = {"token": "the class token", "gap": "the mean of the patches"}
        results = {
            "model": loaded.name,
            "command": command,
            "image_shape": list(photos.shape),
            "preparation": "central crop" if central_crop else "squashed",
            "parameters": loaded.model.count_params(),
            **(figures.available(lambda: _sizes(loaded.model)) or {}),
            "attention_of": pooled[pooling_of(loaded.model)],
            "class": None if target is None else target[1],
            "why_no_class_names": classes.why_no_names,
            "why_no_predictions": why_no_predictions,
            "missing": {
                figure.kind.name: figure.why_not
                for figure in (*of_each, *of_photos, *of_model)
                if figure.why_not
            },
            "photos": [
                {"file": str(path), "name": name, "predictions": best}
                for path, name, best in zip(
                    photos.paths, photos.names, top, strict=True
                )
            ],
        }
        page = render(results, *of_photos, inspected, of_model)
        files.write_text(folder / PAGE, page, "--out")
        if why_no_predictions is None:
            _write_table(folder / PREDICTIONS, results["photos"])
        results["files"] = sorted({*files.file_names(folder), NUMBERS})
        files.write_json(folder / NUMBERS, results, "--out")
    return results


def _sizes(model):
    return {"patches": list(grid_size(model)), "layers": num_layers(model)}


def predict(model, photos):
    """Returns the outputs for all photos, and the attention distance or why none."""
    predictor = keras_vit.Predictor(model, _BATCH_SIZE)
    outputs, distances, why_none = [], [], None
    with progress_bar(total=len(photos), unit="photo", desc="predicting") as bar:
        for batch in photos.batches(_BATCH_SIZE):
            outputs.append(predictor(batch))
            if why_none is None:
                try:
                    distances.append(attention_distance(model, batch))
                except ValueError as error:
                    why_none = str(error)
            bar.update(len(batch))
    return np.concatenate(outputs), why_none or np.concatenate(distances, axis=1)


def _write_table(path, photos):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["photo", "rank", "class_number", "class", "probability"])
        writer.writerows(
            [photo["file"], rank, *found]
            for photo in photos
            for rank, found in enumerate(photo["predictions"], start=1)
        )

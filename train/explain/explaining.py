"""A report of what a model sees in photos: the paper's figures, and their numbers."""

import csv
import json
import pathlib

import numpy as np

import keras_vit
from train.common.earlier import check_replaceable
from train.common.errors import RunError
from train.common.files import file_names, whole_folder
from train.common.progress import progress_bar
from train.data.sources.folder_source import heic_remedy
from train.data.sources.splits import named
from train.data.sources.subset import spread
from train.engine.loop import explaining_full_memory
from train.explain import html_report
from train.explain.book import Book
from train.explain.head import head_of
from train.explain.looks import Gathered, Looker
from train.explain.photos import Photos, shape_for_photos
from train.inference import given_model

PAGE, NUMBERS, PREDICTIONS = "report.html", "report.json", "predictions.csv"
_AT_ONCE = 8


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
    """Looks inside a model with photos, and writes a report.

    Args:
        model: str, see `train.inference.given_model.load`.
        images: sequence of paths, files and folders, see
            `train.explain.photos.Photos`.
        out: path of the folder of the report. An earlier report that is there is
            replaced whole.
        image_size: int or (height, width) in pixels; by default that of the model.
        central_crop: bool, see
            `train.inference.evaluation_data.center_crop`; without it photos are
            squashed.
        shown: int, how many photos, evenly spread, get figures of their own.
        class_name: str, the name or number of the class that the gradient-weighted
            attention is for; by default each photo's most likely.
        command: str, what was typed, for the report.

    Returns:
        Dict, what `report.json` holds.

    Raises:
        RunError: photos, model or folder are not as needed; the message says what to
            do.

    Example:

    >>> explain("runs/digits", ["photos"], "explained")  # doctest: +SKIP
    """
    out = pathlib.Path(out).expanduser()
    check_replaceable(out, NUMBERS, lambda earlier: earlier["files"], "report")
    photos = Photos(images, without=out)
    if photos.ignored:
        print(
            f"ignored, no images by their names ({len(photos.ignored)}): "
            f"{named(photos.ignored)}{heic_remedy(photos.ignored)}"
        )
    given = given_model.load(model, image_size=image_size)
    shape = shape_for_photos(given)
    head, why_no_predictions = _head(given)
    asked = None
    if class_name is not None:
        if head is None:
            raise RunError(f"{why_no_predictions} Leave --class out.")
        asked = head.find(class_name)

    chosen = spread(len(photos), shown)
    memory = explaining_full_memory("lower --image_size, or give a smaller model.")
    with whole_folder(out) as folder, memory:
        book = Book(folder)
        looker = Looker(given, book)
        outputs, distances = [], Gathered(looker.distances, axis=1)
        predictor = keras_vit.Predictor(given.model, _AT_ONCE)
        with progress_bar(total=len(photos), unit="photo", desc="predicting") as bar:
            for batch in photos.batches(shape, _AT_ONCE, central_crop=central_crop):
                outputs.append(predictor(batch))
                distances.add(batch)
                bar.update(len(batch))
        best = None
        if head is not None:
            try:
                best = _predictions(head, np.concatenate(outputs), photos, book)
            except ValueError as error:
                why_no_predictions = str(error)

        looks, captions = [], []
        drawing = progress_bar(iterable=chosen, unit="photo", desc="drawing")
        for number, place in enumerate(drawing, start=1):
            photo = photos.one(place, number, shape, central_crop=central_crop)
            wanted, caption = asked, photo.name
            if best is not None:
                class_number, name, probability = best[place][0]
                wanted = asked or (class_number, name)
                caption = f"{name} {probability:.0%}"
            looks.append(looker.at_photo(photo, wanted))
            captions.append(caption)
        of_all = looker.at_all(looks, captions)
        of_model = looker.at_model(distances, photos.names)

        results = {
            "model": given.name,
            "command": command,
            "image_shape": list(shape),
            "preparation": "central crop" if central_crop else "squashed",
            "parameters": given.model.count_params(),
            **looker.sizes(),
            "who_looks": looker.who_looks,
            "class": None if asked is None else asked[1],
            "why_no_class_names": None if head is None else head.why_no_names,
            "why_no_predictions": None if best else why_no_predictions,
            "missing": book.missing,
            "photos": _photos(photos, best),
        }
        page = html_report.page(results, of_all=of_all, looks=looks, of_model=of_model)
        (folder / PAGE).write_text(page, encoding="utf-8")
        if best is not None:
            _write_table(folder / PREDICTIONS, results["photos"])
        results["files"] = sorted({*file_names(folder), NUMBERS})
        text = json.dumps(results, indent=2) + "\n"
        (folder / NUMBERS).write_text(text, encoding="utf-8")
    return results


def _head(given):
    try:
        return head_of(given), None
    except ValueError as error:
        return None, str(error)


def _predictions(head, outputs, photos, book):
    """Returns the most likely classes of each photo, and notes all probabilities."""
    probabilities = head.probabilities(outputs)
    best = head.best(probabilities)
    book.note(
        "predictions",
        probabilities=probabilities,
        class_names=head.names,
        photos=photos.names,
    )
    return best


def _photos(photos, best):
    """What `report.json` has of the photos."""
    if best is None:
        best = [None] * len(photos)
    return [
        {"file": str(path), "name": name, "predictions": predictions}
        for path, name, predictions in zip(
            photos.paths, photos.names, best, strict=True
        )
    ]


def _write_table(path, photos):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["photo", "rank", "class_number", "class", "probability"])
        for photo in photos:
            for rank, found in enumerate(photo["predictions"], start=1):
                writer.writerow([photo["file"], rank, *found])

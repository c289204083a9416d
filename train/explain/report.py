"""Writes the report of what a model attends to in photos: figures and numbers."""

import csv
import os
from collections.abc import Sequence

from keras_vit.structure import kind_of_pooling, num_layers, pooling_of, preparation_of
from keras_vit.structure.image_sizes import grid_size
from train.common import files
from train.common.errors import RunError, explaining_full_memory
from train.data.checking import heic_remedy
from train.data.sources.subset import spread
from train.explain import figures, inspection
from train.explain.page import render
from train.explain.photos import Photos
from train.models import loaded_model
from train.models.classes import classes_of
from train.models.finding import FoundModel
from train.models.loaded_model import image_shape_of
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import named
from zoo.network.preparation import asked_for
from zoo.store.progress import progress_bar

PAGE, NUMBERS, PREDICTIONS = "report.html", "report.json", "predictions.csv"


def explain(
    model: str | FoundModel,
    images: Sequence[str | os.PathLike],
    out: str | os.PathLike,
    *,
    image_size: int | tuple[int, int] | None = None,
    central_crop: bool | None = None,
    bits: int | None = None,
    shown: int = 12,
    class_name: str | None = None,
    overwrite: bool = False,
    command: str = "",
) -> dict:
    """Writes a report of what a model attends to in photos; returns `report.json`.

    The arguments are the flags of `python -m train.explain`, `class_name` being
    `--class`; `image_size` may be (height, width), `central_crop` is None for what the
    model says, and `command` is the command line, for the report.

    Raises:
        RunError: photos, model or folder cannot be used; the message says what to do.

    Example:
        >>> explain("runs/digits", ["photos"], "report")  # doctest: +SKIP
    """
    out = expand_home(out)
    _check_folder(out, overwrite)
    photos = Photos(images, without=out)
    if photos.ignored:
        print(
            f"ignored, no images by their names ({len(photos.ignored)}): "
            f"{named(photos.ignored)}{heic_remedy(photos.ignored)}"
        )
    loaded = loaded_model.load(model, image_size=image_size)
    preparation = asked_for(central_crop, preparation_of(loaded.model))
    bits, notes = loaded.bits(bits)
    for note in notes:
        print(note)
    photos.prepare_for(image_shape_of(loaded, channels=(1, 3)), preparation, bits)
    classes = classes_of(loaded)
    target = None
    if class_name is not None:
        target = classes.find(class_name, remedy="Leave --class out.")

    memory = explaining_full_memory("lower --image_size, or give a smaller model.")
    with files.whole_folder(out) as folder, memory:
        for name in ("figures", "numbers"):
            (folder / name).mkdir()
        places = spread(len(photos), shown)
        outputs, distance, chosen, sinks = inspection.run(
            loaded.model, photos, set(places)
        )
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

        inspected = []
        drawn = progress_bar(
            iterable=photos.chosen(places),
            total=len(places),
            unit="photo",
            desc="drawing",
        )
        for photo in drawn:
            best, seen = top[photo.place], chosen[photo.place]
            each = figures.PhotoInspection(loaded, photo, best, target, seen)
            each.figures = figures.write(folder, "photo", each, photo)
            inspected.append(each)
        of_photos = figures.write(folder, "photos", inspected)
        whole = figures.ModelInspection(loaded, photos.names, distance)
        of_model = figures.write(folder, "model", whole)
        of_each = [figure for each in inspected for figure in each.figures]

        sizes = figures.available(lambda: _sizes(loaded.model)) or {}
        whose = {"token": "the class token", "gap": "the mean of the patches"}
        whose = whose[pooling_of(loaded.model)]
        by_query = kind_of_pooling(loaded.model) == "map"
        results = {
            "model": loaded.name,
            "command": command,
            "image_shape": list(photos.shape),
            "preparation": preparation,
            **({} if bits is None else {"bits": bits}),
            "parameters": loaded.model.count_params(),
            **sizes,
            "attention_of": "the query of the pooling" if by_query else whose,
            "layers_show": whose,
            "class": None if target is None else target[1],
            "why_no_class_names": classes.why_no_names,
            "why_no_predictions": why_no_predictions,
            "attention_sinks": sinks,
            "about_attention_sinks": inspection.describe_sinks(
                sinks, sizes.get("patches")
            ),
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
        page = render(results, of_photos, inspected, of_model)
        files.write_text(folder / PAGE, page, "--out")
        if why_no_predictions is None:
            _write_table(folder / PREDICTIONS, results["photos"])
        results["files"] = sorted({*files.file_names(folder), NUMBERS})
        files.write_json(folder / NUMBERS, results, "--out")
    return results


def _check_folder(out, overwrite):
    """Refuses a folder that holds something else, or a report unless it may go."""
    files.check_replaceable(out, NUMBERS, lambda earlier: earlier["files"], "report")
    if not overwrite and out.exists() and any(out.iterdir()):
        raise RunError(
            f"{out} holds an earlier report: pass --overwrite to replace it, or "
            "another --out."
        )


def _sizes(model):
    return {"patches": list(grid_size(model)), "layers": num_layers(model)}


def _write_table(path, photos):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["photo", "rank", "class_number", "class", "probability"])
        writer.writerows(
            [photo["file"], rank, *prediction]
            for photo in photos
            for rank, prediction in enumerate(photo["predictions"], start=1)
        )

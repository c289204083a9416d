"""Photos of test images on which runs differ, with the answers of the runs."""

import os

import numpy as np

from train.common.errors import RunError
from train.compare.answers import Answered, Image, images
from train.compare.differences import Pair
from train.data.options import DataOptions
from train.models.loaded_model import LoadedModel
from train.reports import gallery
from train.scoring import evaluation_data

# A group has at most this many photos.
SHOWN = 12


def groups(
    pair: Pair,
    answers: dict[str, dict[Image, Answered]],
    loaded: LoadedModel,
    data_dir: str | os.PathLike | None = None,
) -> tuple[list[gallery.Group], str | None]:
    """Returns the groups of images on which two runs differ, with their photos.

    `loaded` is the model of one of the runs, whose data set is read. Also returns why
    the data set cannot be, None where it can.
    """
    titles = {
        f"Only {pair.first} is right": pair.first_only,
        f"Only {pair.second} is right": pair.second_only,
        "Both are wrong, with different answers": pair.both_wrong,
    }
    shown = {title: images[:SHOWN] for title, images in titles.items() if images}
    pictures, why_not = {}, None
    try:
        pictures = _pictures(sum(shown.values(), []), loaded, data_dir)
    except RunError as error:
        why_not = f"The photos are not shown: {error}"

    def photo(image: Image) -> gallery.Photo:
        picture = pictures.get(image, "It is not among the images of the data set.")
        is_shown = not isinstance(picture, str)
        return gallery.Photo(
            file=image[0],
            truth=image[1],
            answers=tuple(
                gallery.Answer(one.name, one.probability, one.is_correct, name)
                for name in (pair.first, pair.second)
                for one in [answers[name][image]]
            ),
            pixels=picture if is_shown else None,
            why_not=None if is_shown else picture,
        )

    return [
        gallery.Group(title, [photo(image) for image in images], len(titles[title]))
        for title, images in shown.items()
    ], why_not


def _pictures(wanted, loaded, data_dir):
    """Returns a dict of images to their pixels, or to why there are none, a str."""
    bits, _ = loaded.bits()
    source, part = evaluation_data.load_split(
        loaded, None, "test", DataOptions(data_dir, bits=bits)
    )
    truths = [source.class_names[label] for label in part.labels()]
    # The files of runs have names that are not UTF-8 so.
    names = [name.encode("utf-8", "backslashreplace").decode() for name in part.names()]
    places = {image: place for place, image in enumerate(images(names, truths))}
    known = {places[image]: image for image in wanted if image in places}
    if not known:
        return {}
    pixels, missing = gallery.decoded(part, np.array(sorted(known)))
    return {known[place]: picture for place, picture in (pixels | missing).items()}

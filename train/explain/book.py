"""The figures of a report and the numbers behind them, as files."""

import dataclasses
import pathlib

import numpy as np

_DOTS_PER_INCH = 130


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A figure, or why there is none.

    Args:
        kind: str, what it shows, a key of `train.explain.html_report.KINDS`.
        name: str, of its files.
        picture: `pathlib.Path` of the PNG, None where there is none.
        why_not: str, why there is none.
    """

    kind: str
    name: str
    picture: pathlib.Path | None
    why_not: str | None = None


class Book:
    """Writes figures as PNG and PDF, and numbers as `.npz` under the same name.

    Args:
        folder: `pathlib.Path` of an empty folder.

    Attributes:
        missing: dict of why there is none by kind of figure.
    """

    def __init__(self, folder):
        self.figures, self.numbers = folder / "figures", folder / "numbers"
        self.figures.mkdir()
        self.numbers.mkdir()
        self.missing = {}

    def draw(self, kind, make, photo=None):
        """Draws a figure and writes it down.

        Args:
            kind: str, see `Drawn`.
            make: function that returns a `matplotlib.figure.Figure` and a dict of
                what `note` takes, or raises a ValueError that says why it cannot.
            photo: `train.explain.photos.Photo` that it is of, None for no single one.

        Returns:
            `Drawn`.
        """
        name = kind if photo is None else f"{photo.file_name}-{kind}"
        try:
            figure, numbers = make()
        except ValueError as error:
            self.missing[kind] = str(error)
            return Drawn(kind, name, None, str(error))
        picture = self.figures / f"{name}.png"
        how = {"dpi": _DOTS_PER_INCH, "bbox_inches": "tight"}
        figure.savefig(picture, **how)
        # The layout is found; finding it again takes as long as drawing.
        figure.set_layout_engine("none")
        figure.savefig(picture.with_suffix(".pdf"), **how)
        if photo is not None:
            numbers["photo"] = photo.name
        self.note(name, **numbers)
        return Drawn(kind, name, picture)

    def note(self, name, **numbers):
        """Writes arrays that `numpy.load` reads without pickle.

        Args:
            name: str, of the file.
            **numbers: arrays, numbers, strings or sequences of strings.
        """
        np.savez_compressed(self.numbers / f"{name}.npz", **numbers)

"""What a search has tried: its rows, for the terminal, the report and its picture."""

import dataclasses
import pathlib
from collections.abc import Sequence

from train.reports import figures
from train.reports.contents import Section, Table
from zoo.network import pair

PICTURE = "search.png"


@dataclasses.dataclass
class Tried:
    """A candidate, judged on photos that it was not fitted on.

    Attributes:
        name: str, such as "LDA, class token, ViT-Ti_16 at 224".
        photos: int, how many judged it.
        accuracy: float.
        log_loss: float.
        seconds: float, what it took; features are shared by the probes on them.
        share: float, its weight in the answers, 0 for none.
        model: str, the backbone.
        is_balanced: bool, whether all classes have the same part in accuracy and loss.
    """

    name: str
    photos: int
    accuracy: float
    log_loss: float
    seconds: float
    share: float = 0.0
    model: str = ""
    is_balanced: bool = False

    @property
    def line(self) -> str:
        """What is printed as it goes."""
        of = "balanced accuracy on" if self.is_balanced else "of"
        return (
            f"{self.name}: {self.accuracy:.1%} {of} {self.photos:,} held-out photos, "
            f"log loss {self.log_loss:.3f}, {self.seconds:.1f} s"
        )


def sides(size: int | Sequence[int]) -> str:
    """Returns an image size as it is written.

    >>> sides(224), sides((160, 224))
    ('224x224', '160x224')
    """
    return "x".join(map(str, pair(size, "image_size")))


def section(tried: Sequence[Tried], about: Sequence[str]) -> Section:
    """Returns the section of a report, with the sentences `about` the choice."""
    header = ("Tried", _accuracy(tried), "Log loss", "Photos", "Seconds", "Share")
    rows = [
        (
            one.name,
            f"{one.accuracy:.2%}",
            f"{one.log_loss:.3f}",
            f"{one.photos:,}",
            f"{one.seconds:.1f}",
            f"{one.share:.0%}" if one.share else "",
        )
        for one in tried
    ]
    notes = (
        "Accuracy and log loss are those of photos of the training part that were held "
        "out: probes by five folds, a trained network by the validation part, where it "
        "is compared with the probes' answers for the same photos. The test part chose "
        "nothing. Share is the weight in the answers of the model.",
    )
    return Section(
        "What was tried",
        tuple(about),
        table=Table(header, rows, is_sortable=True),
        notes=notes,
        figures=(PICTURE,),
    )


def draw(path: pathlib.Path, tried: Sequence[Tried]) -> None:
    """Draws the accuracy of each candidate; those that answer are blue."""
    figure = figures.new_figure(7, 0.8 + 0.35 * len(tried))
    axes = figure.subplots()
    places = range(len(tried))
    colours = [figures.BLUE if one.share else "0.75" for one in tried]
    axes.barh(places, [100 * one.accuracy for one in tried], color=colours)
    axes.set_yticks(places, [one.name for one in tried], parse_math=False)
    axes.invert_yaxis()
    name = _accuracy(tried)
    axes.set_xlabel(f"{name} on held-out photos (%); blue: part of the model")
    figures.save(figure, path)


def _accuracy(tried):
    return "Balanced accuracy" if tried[0].is_balanced else "Accuracy"

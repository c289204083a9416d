"""The report of masks: classes, confusions at boundaries, the best and worst photos."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from train.engine.metric_log import MetricLog
from train.masks.drawing import overlay
from train.masks.metrics import MaskCounts, MaskMetrics
from train.reports import figures, pages
from train.reports.contents import Section, Table, measures_section
from zoo.photos import resize
from zoo.store.progress import progress_bar

# Rows of tables, and photos in pictures.
_PAIRS, _SHOWN = 20, 6
_LONGER_SIDE = 320
_WORST, _BEST = "worst_photos.png", "best_photos.png"


@dataclasses.dataclass(frozen=True)
class Judged:
    """Photos with masks, and the answers to them.

    Attributes:
        class_names: those of the classes.
        found: the metrics.
        names: of the photos.
        drawn: the photo, its mask and the answer by the places of photos, uint8
            pictures (height, width, 3), reduced.
    """

    class_names: Sequence[str]
    found: MaskMetrics
    names: Sequence[str]
    drawn: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]


def judged(
    photos: Iterable[tuple[str, np.ndarray, np.ndarray]],
    count: int,
    answer: Callable[[np.ndarray], np.ndarray],
    class_names: Sequence[str],
) -> Judged:
    """Answers photos in their own size, and counts what is right.

    `photos` yields names, photos and masks, see `train.masks.source.photos_and_masks`,
    `count` of them; `answer` returns the class of every pixel of a photo.
    """
    counts = MaskCounts(len(class_names))
    names, drawn, scores = [], {}, []
    with progress_bar(total=count, unit="photo", desc="testing masks") as bar:
        for place, (name, photo, truth) in enumerate(photos):
            answered = answer(photo)
            counts.add(truth, answered)
            names.append(name)
            scores.append(counts.last_photo_iou)
            if np.isfinite(scores[-1]):
                drawn[place] = _pictures(photo, truth, answered)
            _forget(drawn, scores)
            bar.update()
    return Judged(class_names, counts.metrics(), names, drawn)


def _forget(drawn, scores):
    """Keeps pictures of as many of the best and the worst photos as may be shown."""
    if len(drawn) > 4 * _SHOWN:
        order = sorted(drawn, key=lambda place: scores[place])
        for place in order[2 * _SHOWN : -2 * _SHOWN]:
            del drawn[place]


def _pictures(photo, truth, answered):
    """Returns small pictures of a photo, its mask over it, and the answer."""
    sides = np.array(photo.shape[:2])
    size = np.maximum(1, sides * _LONGER_SIDE // max(sides.max(), _LONGER_SIDE))
    rows, columns = (
        np.arange(new) * side // new for new, side in zip(size, sides, strict=True)
    )
    small = resize(photo, tuple(size.tolist())).astype(np.uint8)
    maps = (one[np.ix_(rows, columns)] for one in (truth, answered))
    return small, *(overlay(small, one) for one in maps)


def write(
    folder: pathlib.Path,
    judged: Judged,
    *,
    settings: dict,
    results: dict,
    split: str = "test",
    notes: Sequence[str] = (),
    history: MetricLog | None = None,
) -> dict:
    """Writes the report of answers; returns all results.

    The arguments are those of `train.several_labels.report.write`.
    """
    found = judged.found
    baseline = _of_largest_class(found.confusion)
    measured = {
        **found.mean_iou.named(f"{split}_mean_iou"),
        **found.pixel_accuracy.named(f"{split}_accuracy"),
        **found.boundary_f1.named(f"{split}_boundary_f1"),
        f"{split}_mean_iou_of_largest_class": baseline,
        f"{split}_examples": found.photos,
    }
    folder.mkdir(parents=True, exist_ok=True)
    rows = _rows(judged)
    mean = found.mean_iou
    which = pages.which(found.photos, split)
    return pages.write(
        folder,
        kicker="Report of masks",
        headline=f"{mean.value:.2%} mean IoU",
        about=f"(95% interval {mean.low:.2%} to {mean.high:.2%}) on {which} photos.",
        verdict=_verdict(judged, baseline, which),
        sections=[*_photos(folder, judged), _classes(rows), _confusions(judged)],
        settings=settings,
        results=pages.finite(measured) | results,
        details={"per_class": rows},
        notes=notes,
        history=history,
    )


def _of_largest_class(confusion):
    """Returns the mean IoU of answering the most frequent class everywhere."""
    pixels = confusion.sum(axis=1)
    return float(pixels.max() / pixels.sum() / max((pixels > 0).sum(), 1))


def _verdict(judged: Judged, baseline: float, which: str) -> list[str]:
    found = judged.found
    mean, accuracy = found.mean_iou, found.pixel_accuracy
    told = [
        f"Mean IoU {mean.percent} on {which} photos; the largest class everywhere has "
        f"{baseline:.2%}.",
        f"{accuracy.value:.2%} of the pixels are right ({accuracy.low:.2%} to "
        f"{accuracy.high:.2%}).",
    ]
    present = found.confusion.sum(axis=1) > 0
    never = present & (found.confusion.sum(axis=0) == 0)
    if never.any():
        told.append(
            f"{never.sum():,} of the {present.sum():,} classes in the masks are never "
            "answered."
        )
    return told


def _rows(judged: Judged) -> list[dict]:
    """Returns what is known of each class, a list of dicts for JSON."""
    found = judged.found
    pixels = found.confusion.sum(axis=1)
    return [
        {
            "name": name,
            "iou": _number(found.iou[place]),
            "boundary_f1": _number(found.boundary_f1_of[place]),
            "pixels": int(pixels[place]),
            "answered_pixels": int(found.confusion[:, place].sum()),
        }
        for place, name in enumerate(judged.class_names)
    ]


def _number(value):
    return float(value) if np.isfinite(value) else None


def _classes(rows):
    tested = [row for row in rows if row["iou"] is not None]
    return measures_section(
        "Classes, the largest first",
        "Class",
        sorted(tested, key=lambda row: -row["pixels"]),
        {
            "iou": "IoU",
            "boundary_f1": "Boundary F1",
            "pixels": "Pixels",
            "answered_pixels": "Answered",
        },
        "largest",
    )


def _confusions(judged):
    pairs = judged.found.confused_at_boundaries()[:_PAIRS]
    names = judged.class_names
    rows = [
        (names[true], names[answered], f"{pixels:,}")
        for true, answered, pixels in pairs
    ]
    title = "Classes confused at boundaries"
    if not rows:
        return Section(title, ("No pixel near a boundary is wrong.",))
    return Section(title, table=Table(("True", "Answered", "Pixels"), rows, words=2))


def _photos(folder, judged):
    """Yields sections with pictures of the worst and of the best photos."""
    order = [int(place) for place in judged.found.worst if int(place) in judged.drawn]
    kinds = {
        "Worst photos": (_WORST, order[:_SHOWN]),
        "Best photos": (_BEST, order[: -_SHOWN - 1 : -1]),
    }
    for title, (file, places) in kinds.items():
        columns = zip(*(judged.drawn[place] for place in places), strict=True)
        names = ("photo", "mask", "answer")
        pictures = {
            name: [one / 127.5 - 1 for one in own]
            for name, own in zip(names, columns, strict=True)
        }
        figures.write_image_table(folder / file, pictures)
        text = [
            f"{judged.names[place]}: {judged.found.photo_iou[place]:.1%}"
            for place in places
        ]
        yield Section(title, ("; ".join(text),), figures=(file,))


def draw_masks(
    path: pathlib.Path, images: np.ndarray, masks: dict[str, np.ndarray]
) -> None:
    """Draws images in [-1, 1], and each kind of masks over them, (n, height, width)."""
    images = images[:_SHOWN]
    photos = np.rint((np.clip(images, -1, 1) + 1) * 127.5).astype(np.uint8)
    columns = {"image": images}
    for name, own in masks.items():
        pairs = zip(photos, own[:_SHOWN], strict=True)
        drawn = [overlay(photo, np.asarray(one)) / 127.5 - 1 for photo, one in pairs]
        columns[name] = np.stack(drawn)
    figures.write_image_table(path, columns)

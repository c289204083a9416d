"""What a review of a data set says: lines for the terminal, and its JSON."""

from collections.abc import Sequence

import numpy as np

from train.common import library_messages
from train.data.correction_files import left_out_by
from train.data.photo_names import relative
from train.data.review import Review
from train.scoring.label_errors import LabelErrors
from train.scoring.uneven import is_uneven
from zoo.common.safe_text import class_text, counted, printable
from zoo.photos.sixteen_bits import DarkPhotoWarning

# With fewer photos to train on, a class is hard to learn.
_FEW = 10
# Groups of copies that a line names.
_SHOWN = 3
# Values of 12 bits in 16 end below this one of 256 levels: such a photo is black.
_DARK = 16


def findings(review: Review, dataset: str) -> list[str]:
    """Returns a line for each thing about a data set that somebody should know."""
    names = relative(review.names, dataset)
    lines = [*_classes(review), *_unread(review, dataset), *_dark(review, dataset)]
    kinds = {
        "identical": ("", review.identical),
        "near-identical": ("", review.near),
        "contradictions": (", the same under several labels", review.contradictions),
        "leaks": (", copies in several parts", review.leaks),
    }
    for name, (what, groups) in kinds.items():
        if groups:
            photos = sum(map(len, groups))
            shown = [" = ".join(names[place] for place in group) for group in groups]
            lines.append(
                f"{name}: {counted(photos, 'photo')} in "
                f"{counted(len(groups), 'group')}{what}: {_first(shown)}"
            )
    return [printable(line) for line in lines]


def overview(review: Review, dataset: str) -> list[str]:
    """Returns lines about the sizes of a data set, its classes and its files."""
    parts = {part: review.parts.count(part) for part in dict.fromkeys(review.parts)}
    divided = ", ".join(f"{count:,} {part}" for part, count in parts.items())
    line = f"{dataset}: {counted(len(review.names), 'photo')}"
    line += f" ({divided})" if len(parts) > 1 else ""
    counts = review.class_counts()
    fewest, most = counts.argmin(), counts.argmax()
    kind = "classes" if review.labels.ndim == 1 else "labels"
    line += f" of {len(counts):,} {kind}, {counts[fewest]:,}"
    if counts[fewest] != counts[most]:
        line += f" ({class_text(review.class_names[fewest])}) to {counts[most]:,}"
        line += f" ({class_text(review.class_names[most])})"
    return [printable(f"{line} each"), *_files(review)]


def label_error_lines(
    errors: LabelErrors | None, review: Review, dataset: str
) -> list[str]:
    """Returns a line about suspected label errors, None where none can be judged."""
    if errors is None:
        return ["label errors: not sought, fewer than two classes have 5 photos"]
    if not len(errors.places):
        return ["label errors: none"]
    rows = _label_errors(review, errors, relative(review.names, dataset))
    shown = [
        f"{row['path']} ({class_text(row['given'])}, rather {class_text(row['label'])})"
        for row in rows
    ]
    return [
        printable(
            f"label errors: {counted(len(rows), 'label')} in doubt, some of which may "
            f"be right (look at the page before --relabel takes them): {_first(shown)}"
        )
    ]


def left_out_line(results: dict, file: str) -> str | None:
    """Returns what --without leaves out by the JSON of a check, None if nothing."""
    count = len({*left_out_by(results)})
    kinds = {
        "of copies all but one": results["identical"] or results["near"],
        "all of contradictions": results["contradictions"],
        "those unread": results["unread"],
    }
    what = ", ".join(kind for kind, found in kinds.items() if found)
    text = f"--without={file} leaves out {counted(count, 'photo')}: {what}"
    return printable(text) if count else None


def record(review: Review, errors: LabelErrors | None, dataset: str) -> dict:
    """Returns a review as JSON has it; paths start at the data set's folder.

    `identical`, `near`, `contradictions` and `leaks` are lists of groups of paths; in
    each the photo to keep is the first. `label_errors` are dicts of a path, the label
    suggested, the one that it has and the probability of the first, the most certain
    first. `unread` has reasons by path.
    """
    names = relative(review.names, dataset)

    def paths(groups: Sequence[np.ndarray]) -> list:
        return [[names[place] for place in group] for group in groups]

    counts = {
        part: review.class_counts(part).tolist() for part in dict.fromkeys(review.parts)
    }
    sizes = sorted(
        review.counted(lambda header: (header.width, header.height)), key=_area
    )
    unread = review.unread
    return {
        "dataset": dataset,
        "photos": len(names),
        "classes": review.class_names,
        "class_counts": counts,
        "formats": review.counted(lambda header: header.format),
        "bits": review.counted(lambda header: header.bits),
        "channels": review.counted(lambda header: header.channels),
        "sizes": [sizes[0], sizes[-1]] if sizes else [],
        "identical": paths(review.identical),
        "near": paths(review.near),
        "contradictions": paths(review.contradictions),
        "leaks": paths(review.leaks),
        "label_errors": [] if errors is None else _label_errors(review, errors, names),
        "unread": dict(zip(relative(unread, dataset), unread.values(), strict=True)),
    }


def _label_errors(review, errors, names):
    columns = (errors.places, errors.suggested, errors.probabilities)
    return [
        {
            "path": names[place],
            "label": review.class_names[suggested],
            "given": review.class_names[review.labels[place]],
            "probability": round(float(probability), 4),
        }
        for place, suggested, probability in zip(*columns, strict=True)
    ]


def _classes(review):
    """Yields lines about classes that are too small, or much smaller than others."""
    part = "train" if "train" in review.parts else None
    counts = review.class_counts(part)
    if not len(counts):
        return
    few = [
        f"{class_text(review.class_names[place])} ({counts[place]:,})"
        for place in np.argsort(counts, kind="stable")
        if counts[place] < _FEW
    ]
    if few:
        to_train = " to train on" if part else ""
        kind = "class" if review.labels.ndim == 1 else "label"
        plural = "" if len(few) == 1 else "es" if kind == "class" else "s"
        yield (
            f"few: {len(few):,} {kind}{plural} of fewer than "
            f"{_FEW} photos{to_train}, which are hard to learn: {_first(few)}; add some"
        )
    if is_uneven(counts) and review.labels.ndim == 1:
        training = "training photos" if part else "photos"
        ratio = counts.max() / counts[counts > 0].min()
        yield (
            f"uneven: the largest class has {ratio:.1f} times the {training} of the "
            "smallest: judge by the balanced accuracy. "
            "finetune --minutes does so itself, and one training does with "
            "--class_weights=balanced"
        )


def _files(review):
    """Yields a line about formats, sizes, bits and colours."""
    formats = review.counted(lambda header: header.format)
    if not formats:
        return
    sizes = review.counted(lambda header: (header.width, header.height))
    ordered = sorted(sizes, key=_area)
    text = f"files: {_counts(formats)}; "
    text += " to ".join(f"{width} x {height}" for width, height in _ends(ordered))
    text += " pixels"
    deep = sum(
        count
        for bits, count in review.counted(lambda header: header.bits).items()
        if bits > 8
    )
    if deep:
        text += f"; {deep:,} of 16 bits"
    channels = review.counted(lambda header: header.channels)
    if len(channels) > 1:
        text += f"; {channels[1]:,} gray, {channels[3]:,} in colour"
    yield text


def _unread(review, dataset):
    """Yields a line about photos that cannot be decoded."""
    if unread := review.unread:
        shown = relative(list(unread)[:_SHOWN], dataset)
        yield (
            f"unread: {counted(len(unread), 'photo')} cannot be decoded: "
            f"{_first(shown, len(unread))}; --skip_corrupt leaves them out"
        )


def flags_of(review: Review) -> list[str]:
    """Returns the flags with which such photos should be read."""
    dark, deep = _dark_photos(review)
    # Photos that use all bits would be refused.
    return ["--bits=12"] if dark and len(dark) == deep else []


def _dark_photos(review: Review) -> tuple[list[str], int]:
    """Returns the names of photos of 16 bits that use few, and counts all of 16."""
    pairs = zip(review.names, review.fingerprints, strict=False)
    deep = [
        (name, one.small.max())
        for name, one in pairs
        if one.header is not None and one.header.bits > 8
    ]
    return [name for name, top in deep if top < _DARK], len(deep)


def _dark(review, dataset):
    """Yields a line about photos of 16 bits that use the lower ones alone."""
    dark, deep = _dark_photos(review)
    if dark:
        yield (
            f"dark: {len(dark):,} of {counted(deep, 'photo')} of 16 bits "
            f"{'is' if len(dark) == 1 else 'are'} nearly black, as if only 12 or fewer "
            "bits were in use: pass --bits=12, or as many as the camera has; without "
            f"it copies of them are not found: {_first(relative(dark, dataset))}"
        )
        # This line has said it of all of them.
        library_messages.no_more_of(DarkPhotoWarning)


def _area(size):
    return size[0] * size[1]


def _ends(ordered):
    return dict.fromkeys((ordered[0], ordered[-1]))


def _counts(counter):
    return ", ".join(f"{count:,} {name}" for name, count in counter.most_common())


def _first(texts, total=None):
    """Joins the first texts, and counts the others."""
    more = (total or len(texts)) - len(texts[:_SHOWN])
    return ", ".join(texts[:_SHOWN]) + (f" and {more:,} more" if more else "")

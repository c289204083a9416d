"""The card of a model as lines of text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from zoo.catalog.model_card import ModelCard
from zoo.catalog.registry import PublishedModel


def mib(size: int, digits: int = 1) -> str:
    """Formats bytes as MiB, e.g. `330.3 MiB`."""
    return f"{size / 2**20:,.{digits}f} MiB"


def size(card: ModelCard | PublishedModel, digits: int = 1) -> str:
    """Returns the size of a card's file, with `~` where it follows from parameters."""
    if card.file_size is not None:
        return mib(card.file_size, digits)
    return f"~{mib(4 * card.parameters, digits)}"


def image_size(card: ModelCard | PublishedModel) -> str:
    """Returns the side of a card's square images, or height x width."""
    height, width = _sides(card)
    return str(height) if height == width else f"{height}x{width}"


def lines(
    card: ModelCard | PublishedModel, here: str | None
) -> Iterator[tuple[str, str]]:
    """Yields pairs of a fact's name and its text.

    Args:
        card: `ModelCard` or `PublishedModel`.
        here: str or None, the path of its file on this machine.
    """
    sizes = _sizes(card)
    if sizes.get("resnet_stages") is None:
        sizes = {name: sizes[name] for name in sizes if "resnet" not in name}
    yield "handle", card.handle
    yield "variant", card.variant or "one of its own"
    yield "architecture", ", ".join(f"{name} {sizes[name]}" for name in sizes)
    yield "parameters", f"{card.parameters:,}"
    yield "image size", "{} x {}".format(*_sides(card))
    yield "classes", str(card.classes)
    yield from (_released if isinstance(card, ModelCard) else _published)(card)
    yield "URL", card.url
    yield "size", size(card)
    yield "here", here or "no"
    yield "licence", card.licence


def _released(card):
    yield "pooling", card.pooling
    yield "input range", "{:g} to {:g}, RGB".format(*card.input_range)
    yield "head", "usable" if card.usable_head else "all zeros"
    yield "pre_logits", str(card.representation_size or "none")
    yield "trained on", ", then ".join(card.training_data)
    yield "paper", f"{card.citation.title}, {card.citation.url}"
    yield "notes", card.notes or "none"
    for data_set, metric, value, image_size, source in card.accuracies:
        at = f" at {image_size}" if image_size else ""
        yield data_set, f"{value:g}% {metric}{at} ({source})"
    for field, reason in card.inferred:
        yield "inferred", f"{field}, {reason}"


def _published(card):
    shown = ", ".join(card.class_names[:10])
    yield "class names", shown + (", ..." if card.classes > 10 else "")
    yield "input range", "-1 to 1" + (", RGB" if card.channels == 3 else "")
    yield "trained on", card.data_set
    yield "started from", card.base or "random weights"
    for name, value in card.metrics.items():
        yield card.data_set, f"{value:.4g} {name}"


def document(card: ModelCard | PublishedModel, here: str | None) -> dict:
    """Returns all of a card as plain data for JSON; arguments as for `lines`."""
    found = dataclasses.asdict(card)
    names = ["handle", "parameters", "url", "top1"]
    if isinstance(card, ModelCard):
        names += ["input_range", "file", "pooling", "top1_source"]
        found |= {
            "semantics": card.semantics.computed,
            "citation": {**card.citation._asdict(), "url": card.citation.url},
            "accuracies": [accuracy._asdict() for accuracy in card.accuracies],
            "inferred": {note.field: note.reason for note in card.inferred},
        }
    found |= {name: getattr(card, name) for name in names}
    return found | {"architecture": _sizes(card), "cached": here}


def _sides(card):
    if isinstance(card, PublishedModel):
        return card.image_size
    return card.image_size, card.image_size


def _sizes(card):
    if isinstance(card, PublishedModel):
        return dict(card.architecture)
    return card.architecture.sizes

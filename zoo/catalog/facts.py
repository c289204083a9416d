"""What the card of a model says, as lines for people and as a document for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from zoo.catalog.model_card import ModelCard
from zoo.catalog.registry import PublishedModel


def mib(size: int, digits: int = 1) -> str:
    """Returns a number of bytes in MiB.

    Example:
        >>> from zoo import facts
        >>> facts.mib(346_339_542)
        '330.3 MiB'
    """
    return f"{size / 2**20:,.{digits}f} MiB"


def size(card: ModelCard | PublishedModel, digits: int = 1) -> str:
    """Returns the listed size of a card's file, or `~` what its parameters take.

    Example:
        >>> import zoo
        >>> from zoo import facts
        >>> facts.size(zoo.get("vit-l16/sam"), digits=0)
        '~1,161 MiB'
    """
    if card.file_size is not None:
        return mib(card.file_size, digits)
    return f"~{mib(4 * card.parameters, digits)}"


def image_size(card: ModelCard | PublishedModel) -> str:
    """Returns the side of a card's square images, or height x width of others.

    Example:
        >>> import zoo
        >>> from zoo import facts
        >>> facts.image_size(zoo.get("vit-b16/sam"))
        '224'
    """
    height, width = _sides(card)
    return str(height) if height == width else f"{height}x{width}"


def lines(
    card: ModelCard | PublishedModel, here: str | None
) -> Iterator[tuple[str, str]]:
    """Yields what is known of a model.

    Args:
        card: `ModelCard` or `PublishedModel`.
        here: str or None, the path of its file on this machine.

    Yields:
        Pairs of str: what it is, and the fact.

    Example:
        >>> import zoo
        >>> from zoo import facts
        >>> dict(facts.lines(zoo.get("vit-b16/sam"), None))["parameters"]
        '86,567,656'
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
    for accuracy in card.accuracies:
        at = f" at {accuracy.image_size}" if accuracy.image_size else ""
        yield (
            accuracy.data_set,
            f"{accuracy.value:g}% {accuracy.metric}{at} ({accuracy.source})",
        )
    for note in card.inferred:
        yield "inferred", f"{note.field}, {note.reason}"


def _published(card):
    shown = ", ".join(card.class_names[:10])
    yield "class names", shown + (", ..." if card.classes > 10 else "")
    yield "input range", "-1 to 1" + (", RGB" if card.channels == 3 else "")
    yield "trained on", card.data_set
    yield "started from", card.base or "random weights"
    for name, value in card.metrics.items():
        yield card.data_set, f"{value:.4g} {name}"


def document(card: ModelCard | PublishedModel, here: str | None) -> dict:
    """Returns all of a card as JSON has it.

    Args:
        card: `ModelCard` or `PublishedModel`.
        here: str or None, the path of its file on this machine.

    Returns:
        dict of str to plain data.

    Example:
        >>> import zoo
        >>> from zoo import facts
        >>> facts.document(zoo.get("vit-b16/sam"), None)["architecture"]["mlp_dim"]
        3072
    """
    found = dataclasses.asdict(card)
    found |= {
        "handle": card.handle,
        "architecture": _sizes(card),
        "parameters": card.parameters,
        "url": card.url,
        "top1": card.top1,
        "cached": here,
    }
    if isinstance(card, ModelCard):
        found |= {
            "semantics": card.semantics.computed,
            "input_range": card.input_range,
            "file": card.file,
            "pooling": card.pooling,
            "top1_source": card.top1_source,
            "citation": {**card.citation._asdict(), "url": card.citation.url},
            "accuracies": [accuracy._asdict() for accuracy in card.accuracies],
            "inferred": {note.field: note.reason for note in card.inferred},
        }
    return found


def _sides(card):
    if isinstance(card, PublishedModel):
        return card.image_size
    return card.image_size, card.image_size


def _sizes(card):
    """Returns a card's architecture as a dict of its own."""
    if isinstance(card, PublishedModel):
        return dict(card.architecture)
    return card.architecture.sizes

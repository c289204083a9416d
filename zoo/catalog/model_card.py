"""The card of a released file: `ModelCard`."""

import dataclasses
import urllib.parse
from collections.abc import Iterable
from typing import NamedTuple

from zoo.common.safe_text import PrintableError
from zoo.network import VARIANTS, ViTConfig
from zoo.network.head import CLASS_LISTS

BUCKET = "https://storage.googleapis.com/vit_models"
GAP_SUFFIX = "-gap-norep"


class CatalogError(PrintableError, ValueError):
    """A model, variant or release that is not in the catalogue."""


class Accuracy(NamedTuple):
    """One published accuracy.

    Args:
        data_set: str, what was classified, as TFDS calls it (``"imagenet2012"``).
        metric: ``"top1"`` of the file as it is, or e.g. ``"top1 after fine-tuning"``.
        value: float, percent.
        image_size: int or None, side of the images in the evaluation.
        source: str, where it was published.

    Example:
        >>> zoo.get("vit-b16/sam").accuracies[0].value
        80.25
    """

    data_set: str
    metric: str
    value: float
    image_size: int | None
    source: str


class Citation(NamedTuple):
    """The paper that a release came with.

    Args:
        key: str, its BibTeX key in the released code's README.
        title: str.
        authors: str, as BibTeX writes them.
        year: int.
        arxiv: str, its number on arXiv.

    Example:
        >>> zoo.get("vit-b16/sam").citation.url
        'https://arxiv.org/abs/2106.01548'
    """

    key: str
    title: str
    authors: str
    year: int
    arxiv: str

    @property
    def url(self) -> str:
        """The paper on arXiv."""
        return f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def bibtex(self) -> str:
        """The BibTeX entry."""
        return (
            f"@article{{{self.key},\n"
            f"  title={{{self.title}}},\n"
            f"  author={{{self.authors}}},\n"
            f"  journal={{arXiv preprint arXiv:{self.arxiv}}},\n"
            f"  year={{{self.year}}}\n"
            "}"
        )


class Inference(NamedTuple):
    """A field of a card that was inferred, not read from the file or its authors.

    Args:
        field: str, name of the field of `ModelCard`.
        reason: str, what it was inferred from.

    Example:
        >>> [note.field for note in zoo.get("vit-b16/sam").inferred]
        ['representation_size']
    """

    field: str
    reason: str


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """What is known about one released file.

    Args:
        handle: str, unique name, e.g. ``"vit-b16/imagenet21k"``.
        variant: str, architecture as the released code writes it, e.g.
            ``"ViT-B_16"``, or ``"ViT-B_16-gap-norep"`` without a class token.
        release: str, e.g. ``"imagenet21k+imagenet2012-224"``.
        image_size: int, side in pixels of the square images it was trained on.
        classes: int, outputs of the released head.
        representation_size: int or None, width of the released ``pre_logits``.
        usable_head: bool, False where the released head is all zeros.
        url: str, where the file is.
        training_data: tuple of str, the data sets it was trained on, in order.
        citation: `Citation`, the paper it came with.
        file_size: int or None, bytes, approximate (from a listing that rounds to
            as little as two digits); None where no listing has it.
        sha256: str or None; no checksum of a released file has been published.
        accuracies: tuple of `Accuracy`, the best evidence for this file first.
        semantics: `ViTConfig` without sizes, what the model computes and the range of
            its input: for every released model RGB in [-1, 1].
        licence: str, SPDX identifier.
        notes: str, remarks for users.
        inferred: the fields whose value was inferred; the others are known.

    Example:
        >>> card = zoo.get("vit-b16/imagenet21k")
        >>> card.usable_head, card.parameters
        (False, 103186515)
    """

    handle: str
    variant: str
    release: str
    image_size: int
    classes: int
    representation_size: int | None
    usable_head: bool
    url: str
    training_data: tuple[str, ...]
    citation: Citation
    file_size: int | None = None
    sha256: str | None = None
    accuracies: tuple[Accuracy, ...] = ()
    semantics: ViTConfig = ViTConfig.released()
    licence: str = "Apache-2.0"
    notes: str = ""
    inferred: tuple[Inference, ...] = ()

    @property
    def class_names(self) -> str | None:
        """The list of `zoo.class_names` that its outputs are in the order of."""
        return self.training_data[-1] if self.training_data[-1] in CLASS_LISTS else None

    @property
    def slugs(self) -> tuple[str, str]:
        """The names that its handles begin with, the second without ``-gap-norep``."""
        slug = self.handle.partition("/")[0]
        return slug, slug.removesuffix(GAP_SUFFIX)

    @property
    def file(self) -> str:
        """The file's path in the bucket, e.g. ``"sam/ViT-B_16.npz"``."""
        return urllib.parse.unquote(self.url.removeprefix(f"{BUCKET}/"))

    @property
    def architecture(self) -> ViTConfig:
        """The sizes of the encoder."""
        return VARIANTS[self.variant.removesuffix(GAP_SUFFIX)]

    @property
    def input_range(self) -> tuple[float, float]:
        """The values of black and white after normalisation."""
        mean, std = self.semantics.input_mean[0], self.semantics.input_std[0]
        return (0 - mean) / std, (1 - mean) / std

    @property
    def pooling(self) -> str:
        """``"token"``, or ``"gap"`` for the average of all tokens."""
        return "gap" if self.variant.endswith(GAP_SUFFIX) else "token"

    @property
    def parameters(self) -> int:
        """Parameters of the released model, `pre_logits` and head included."""
        return self.architecture.count_parameters(
            self.image_size,
            self.classes,
            self.representation_size,
            class_token=self.pooling == "token",
        )

    @property
    def top1(self) -> float | None:
        """Published ImageNet top-1 accuracy in percent of the file as it is."""
        return top1_of(self.accuracies)[0]

    @property
    def top1_source(self) -> str | None:
        """The source of `top1`."""
        return top1_of(self.accuracies)[1]


def top1_of(accuracies: Iterable[Accuracy]) -> tuple[float | None, str | None]:
    """Returns the first ImageNet top-1 accuracy and its source, (None, None) if none.

    Example:
        >>> top1_of(zoo.get("vit-b16/imagenet21k").accuracies)
        (None, None)
    """
    for data_set, metric, value, _, source in accuracies:
        if (data_set, metric) == ("imagenet2012", "top1"):
            return value, source
    return None, None


def either(names: Iterable[str]) -> str:
    """Joins names for an error message: a, b or c."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last

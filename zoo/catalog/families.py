"""Models of other families that the Hugging Face hub has, as cards.

`families.csv` has one row per model: repository, image size, classes and licence are
those of timm 1.0.31's `pretrained_cfg`, the parameters those of the model that it
builds; `architecture` is timm's name of the network where it is not the one that the
repository is called by. `segmentation.csv` has EoMT's, by its authors' model zoo, with
the parameters that our model has. `families_accuracies.csv` has one row per published
accuracy, the best evidence first.
"""

import dataclasses

from zoo.catalog.cards import CITATIONS, read_accuracies, read_table
from zoo.catalog.model_card import Accuracy, Citation, top1_of
from zoo.libraries.architectures import implied
from zoo.network import ViTConfig
from zoo.network.head import CLASS_LISTS

# The architecture of the rows of `segmentation.csv`.
_EOMT = "EoMT"
# Licences that need a word before a model is used, as the hub writes them.
_TERMS = {
    "cc-by-nc-4.0": "for non-commercial use only",
    "fair-noncommercial-research-license": "for non-commercial research only",
    "apple-amlr": "for research only",
    "apple-ascl": "with terms of its own: read them first",
    "dinov3-license": "with terms of its own: read them first",
}


@dataclasses.dataclass(frozen=True)
class HubModel:
    """What is known about a model of another family on the Hugging Face hub.

    Args:
        handle: str, unique name, e.g. ``"dinov2-s14/lvd142m"``.
        repository: str, its place on the hub.
        image_size: int, side in pixels of the square images it was trained on.
        classes: int, outputs of its head but that for no object; 0 of one without head.
        parameters: int, those of the head included.
        licence: str, as the hub writes it.
        architecture: str, the name of its network in timm, or `"EoMT"`.
        added_to: str, the repository of the weights that its own are differences to,
            which nothing here adds up; else "".
        citation: `Citation` or None, the paper it came with.
        accuracies: tuple of `Accuracy`, the best evidence first.

    Example:
        >>> card = zoo.get("dinov2-s14/lvd142m")
        >>> card.url, card.accuracies[0].value
        ('hf://timm/vit_small_patch14_dinov2.lvd142m', 81.1)
    """

    handle: str
    repository: str
    image_size: int
    classes: int
    parameters: int
    licence: str
    architecture: str
    added_to: str = ""
    citation: Citation | None = None
    accuracies: tuple[Accuracy, ...] = ()
    # Not published; the hub has checksums of its own.
    file_size = sha256 = None

    @property
    def url(self) -> str:
        """Its handle on the hub."""
        return f"hf://{self.repository}"

    @property
    def class_names(self) -> str | None:
        """The list of `zoo.class_names` that its outputs are in the order of.

        In this catalogue heads of these sizes are ImageNet's, in the released order.
        """
        lists = {count: name for name, count in CLASS_LISTS.items()}
        return lists.get(self.classes)

    @property
    def semantics(self) -> ViTConfig:
        """What it computes, where the settings in its repository may say otherwise.

        Of OpenAI's and other CLIP weights timm has two networks, with the exact GELU
        and with the quick one that they were trained with, and one repository.
        """
        if self.architecture in (_of_repository(self.repository), _EOMT):
            return ViTConfig()
        return ViTConfig(activation=implied(self.architecture)["act_layer"])

    @property
    def timm_names(self) -> set[str]:
        """What timm calls it, with and without the tag of its weights."""
        names = {self.architecture, _of_repository(self.repository)}
        tag = self.repository.partition(".")[2]
        return names | {f"{name}.{tag}" for name in names}

    @property
    def terms(self) -> str:
        """The licence, and what it asks of users if it is not a free one."""
        terms = _TERMS.get(self.licence)
        return f"{self.licence}, {terms}" if terms else self.licence

    @property
    def is_free(self) -> bool:
        """Whether the licence allows any use."""
        return self.licence not in _TERMS

    @property
    def top1(self) -> float | None:
        """Published ImageNet top-1 accuracy in percent of the model as it is."""
        return top1_of(self.accuracies)[0]


def _of_repository(repository):
    return repository.partition("/")[2].partition(".")[0]


def _model(row):
    return HubModel(
        handle=row["handle"],
        repository=row["repository"],
        image_size=int(row["image_size"]),
        classes=int(row["classes"] or 0),
        parameters=int(row["parameters"]),
        licence=row["licence"],
        architecture=row.get("architecture", _EOMT)
        or _of_repository(row["repository"]),
        added_to=row.get("added_to", ""),
        citation=CITATIONS[row["paper"]] if row["paper"] else None,
        accuracies=tuple(_ACCURACIES.get((row["handle"],), ())),
    )


_ACCURACIES = read_accuracies("families_accuracies.csv", "handle")
_ROWS = read_table("families.csv") + read_table("segmentation.csv")
MODELS = {model.handle: model for model in map(_model, _ROWS)}
# The same by their place on the hub.
OF_HUB = {model.url: model for model in MODELS.values()}

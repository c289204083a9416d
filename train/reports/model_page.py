"""The model card (README.md) of a published model.

The YAML header is written with PyYAML: `huggingface_hub.ModelCardData` gives the same
keys, but is only in the extra `hub`, and publishing into a folder works without it.
"""

import contextlib
import pathlib
from collections.abc import Sequence

import keras
import yaml

import zoo
from train.common import markdown
from train.reports.contents import class_table
from zoo.catalog.cards import CITATIONS

PICTURES = ("learning_curve.png", "confusion_matrix.png", "predictions.png")
_TEMPLATE = pathlib.Path(__file__).parent / "templates" / "model.md.jinja"
# The hub's type and name of each metric in the report.
_HUB_METRICS = {
    "test_accuracy": ("accuracy", "Accuracy"),
    "test_top5_accuracy": ("accuracy", "Top-5 accuracy"),
    "test_macro_precision": ("precision", "Macro precision"),
    "test_macro_recall": ("recall", "Macro recall"),
    "test_macro_f1": ("f1", "Macro F1"),
}


def model_page(card: zoo.PublishedModel, report: dict, pictures: Sequence[str]) -> str:
    """Returns the README.md of a `zoo.PublishedModel`, with its run's `report.json`.

    `pictures` are file names; https://huggingface.co/docs/hub/model-cards.
    """
    return markdown.render(
        _TEMPLATE,
        header=markdown.Block(
            yaml.safe_dump(_header(card), sort_keys=False, allow_unicode=True)
        ),
        card=card,
        # The name stands in code, where no character has to be escaped.
        name=markdown.Block(card.name),
        architecture=" ".join(filter(None, ("Vision Transformer", card.variant))),
        height=card.image_size[0],
        width=card.image_size[1],
        report=report,
        sizes=_sizes(card),
        results=_results(card, report),
        pictures=pictures,
        keras_version=keras.__version__,
        settings=(row for row in markdown.flat(report["config"]) if row[1] is not None),
        classes=class_table(
            report["per_class"][: markdown.TABLE_ROWS], {"examples": "Test images"}
        ),
        unshown=max(card.classes - markdown.TABLE_ROWS, 0),
        citations=_citations(card),
    )


def _header(card):
    result = {
        "task": {"type": "image-classification", "name": "Image Classification"},
        "dataset": {"type": card.data_set, "name": card.data_set, "split": "test"},
        "metrics": [
            {"type": kind, "name": label, "value": card.metrics[name]}
            for name, (kind, label) in _HUB_METRICS.items()
            if name in card.metrics
        ],
    }
    base = {}
    if card.base is not None and card.base.startswith("hf://"):
        base["base_model"] = card.base.removeprefix("hf://").partition("@")[0]
    return {
        "license": card.licence,
        "library_name": "keras_vit",
        "pipeline_tag": "image-classification",
        "tags": ["image-classification", "vision-transformer", "keras"],
        "datasets": [card.data_set],
        "metrics": ["accuracy"],
        **base,
        "model-index": [{"name": card.name, "results": [result]}],
    }


def _sizes(card):
    if card.variant is not None:
        yield "variant", card.variant
    for name, value in card.architecture.items():
        if value is not None and ("resnet" not in name or card.is_hybrid):
            yield name, value
    yield "image size", "{} x {}".format(*card.image_size)
    yield "channels", card.channels
    yield "classes", card.classes
    yield "parameters", f"{card.parameters:,}"


def _results(card, report):
    results = {**card.metrics, "test_examples": report["test_examples"]}
    for name, value in results.items():
        # Reports of earlier versions do not name the loss.
        has_loss = name == "test_loss" and "loss_function" in report
        label = f"{name} ({report['loss_function']})" if has_loss else name
        yield label, markdown.result_text(name, value)


def _citations(card):
    """Returns the papers of the architecture, and of the weights if it is another."""
    papers = [CITATIONS["imagenet21k"]]
    if card.variant is not None and card.base is not None:
        # The weights may be a file of the user's own.
        with contextlib.suppress(zoo.CatalogError):
            papers.append(zoo.find(card.variant, card.base).citation)
    return dict.fromkeys(papers)

"""The page of a published model, as the Hugging Face hub reads it."""

import contextlib
import pathlib
import re

import keras
import yaml

import zoo
from train.data.registry import kind_of
from train.reports import markdown
from train.reports.html_page import figure_text, flat
from zoo.catalog.cards import CITATIONS

PICTURES = ("learning_curve.png", "confusion_matrix.png", "predictions.png")
_SHOWN_CLASSES = 100
# What the hub calls the metrics of the report.
_HUB_METRICS = {
    "test_accuracy": ("accuracy", "Accuracy"),
    "test_top5_accuracy": ("accuracy", "Top-5 accuracy"),
    "test_macro_precision": ("precision", "Macro precision"),
    "test_macro_recall": ("recall", "Macro recall"),
    "test_macro_f1": ("f1", "Macro F1"),
}


def model_page(card, report, pictures):
    """Returns the README.md of a published model.

    Args:
        card: `zoo.PublishedModel`.
        report: dict, the run's `report.json`.
        pictures: names of the pictures that lie beside the page.

    Returns:
        str, Markdown behind a header in YAML.

    Source:
        https://huggingface.co/docs/hub/model-cards
    """
    header = yaml.safe_dump(_header(card), sort_keys=False, allow_unicode=True)
    name = markdown.escape(card.name)
    what = markdown.escape(f"{_architecture(card)}, fine-tuned on {card.data_set}")
    accuracy = figure_text("test_accuracy", report["test_accuracy"])
    parts = [
        f"---\n{header}---",
        f"# {name}",
        f"{what}: **{accuracy} accuracy** on all {report['test_examples']:,} images of "
        "its test split.",
        "## Use it",
        *_usage(card),
        "## Model",
        markdown.table(("", "Value"), _sizes(card)),
        "## Results",
        "Measured once, on the test split, after training.",
        markdown.table(("Result", "Value"), _results(card, report)),
        *map(markdown.embedded, pictures),
        "## Training",
        _started_from(card),
        markdown.code(report.get("command", "")),
        markdown.table(("Setting", "Value"), _settings(report["config"])),
        "## Classes",
        markdown.table(
            ("Class", "Precision", "Recall", "F1", "Test images"), _classes(report)
        ),
        *_more_classes(card),
        "## What it is not",
        "It tells apart the classes above and no others: to any image it gives one of "
        "them. The accuracy is that on images like those it was trained on, and what "
        "is one-sided in them, or in the data of the weights it started from, is in "
        "the model too.",
        "## Licence and citation",
        f"{markdown.escape(card.licence)}; the data set has terms of its own.",
        *(f"```bibtex\n{citation.bibtex}\n```" for citation in _citations(card)),
    ]
    return "\n\n".join(parts) + "\n"


def _header(card):
    header = {
        "license": card.licence,
        "library_name": "keras_vit",
        "pipeline_tag": "image-classification",
        "tags": ["image-classification", "vision-transformer", "keras"],
        "datasets": [card.data_set],
        "metrics": ["accuracy"],
    }
    if card.base is not None and card.base.startswith("hf://"):
        header["base_model"] = card.base.removeprefix("hf://").partition("@")[0]
    metrics = [
        {"type": kind, "name": label, "value": card.metrics[name]}
        for name, (kind, label) in _HUB_METRICS.items()
        if name in card.metrics
    ]
    result = {
        "task": {"type": "image-classification", "name": "Image Classification"},
        "dataset": {"type": card.data_set, "name": card.data_set, "split": "test"},
        "metrics": metrics,
    }
    header["model-index"] = [{"name": card.name, "results": [result]}]
    return header


def _architecture(card):
    return (
        f"Vision Transformer {card.variant}" if card.variant else "Vision Transformer"
    )


def _usage(card):
    height, width = card.image_size
    yield (
        f"Images are resized to {height} x {width}, bilinearly and without antialias, "
        "as they were when it was tested. "
        "With `keras_vit`, from a registry that `KERAS_VIT_REGISTRY` names, or by the "
        "path of this folder, or where it is on the Hugging Face hub "
        '(`"hf://org/name"`), in place of the name:'
    )
    yield f"""```python
import keras_vit, zoo

model = keras_vit.load_model("{card.name}")
images = ...  # uint8 (batch, {height}, {width}, {card.channels})
logits = model.predict(keras_vit.preprocess_input(images))
names = zoo.get("{card.name}").class_names
print(keras_vit.decode_predictions(logits, class_names=names))
```"""
    yield (
        "With TensorFlow alone, in this folder, images in [0, 1] of any size, which it "
        'resizes; `tensorflow_hub.load("saved_model")` gives the same, and '
        "`hub.KerasLayer(..., trainable=True)` fine-tunes it:"
    )
    yield f"""```python
import tensorflow as tf

model = tf.saved_model.load("saved_model")
images = tf.zeros((1, {height}, {width}, {card.channels}))  # yours, float32 in [0, 1]
probabilities = tf.nn.softmax(model(images))
features = model.signatures["image_feature_vector"](images)["default"]
files = tf.stack([tf.io.read_file("photo.jpg")])
labels = model.signatures["serve_bytes"](image_bytes=files)["label"]
```"""
    yield (
        f"TensorFlow Serving takes a copy of it at `models/{card.name}/1`: its "
        "signature `serving_default` takes images in [-1, 1] of "
        f"{height} x {width}, `serve_bytes` JPEG or PNG files."
    )
    yield (
        "`model.keras` is the model as it was trained, for `keras.saving.load_model` "
        f"once `keras_vit` is imported; `{card.weights}` has its arrays under the "
        "names of the released checkpoints."
    )


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
    for name, value in {
        **card.metrics,
        "test_examples": report["test_examples"],
    }.items():
        label = name
        # Reports of earlier versions do not name it.
        if name == "test_loss" and "loss_function" in report:
            label = f"{name} ({report['loss_function']})"
        yield label, figure_text(name, value)


def _started_from(card):
    started = "random weights" if card.base is None else f"the weights {card.base}"
    return f"From {markdown.escape(started)}, with keras {keras.__version__}:"


def _settings(config):
    for name, value in flat(config):
        if value is not None:
            yield name, value


def _classes(report):
    for row in report["per_class"][:_SHOWN_CLASSES]:
        shares = (f"{row[name]:.1%}" for name in ("precision", "recall", "f1"))
        yield (row["name"], *shares, row["examples"])


def _more_classes(card):
    more = card.classes - _SHOWN_CLASSES
    if more > 0:
        yield f"And {more:,} more, in `report.json`."


def _citations(card):
    """The paper of the architecture, and that of the weights if it is another."""
    papers = [CITATIONS["imagenet21k"]]
    if card.variant is not None and card.base is not None:
        # Nobody knows the paper of a file of one's own.
        with contextlib.suppress(zoo.CatalogError):
            papers.append(zoo.find(card.variant, card.base).citation)
    return dict.fromkeys(papers)


def data_set_name(dataset):
    """Returns what a data set is called where its local folder means nothing.

    Args:
        dataset: str, as in the recipe.

    Returns:
        str.

    Example:

    >>> [data_set_name(name) for name in ("/me/photos/", "cifar100:3.*.*", "vtab/dtd")]
    ['photos', 'cifar100', 'vtab-dtd']
    """
    if kind_of(dataset).name == "vtab":
        return dataset.replace("/", "-")
    name = pathlib.Path(dataset.partition(":")[0]).name
    return re.sub(r"[^\w.+-]+", "_", name.removesuffix(".csv"))

"""Few-shot probe: accuracy of a small classifier on a model's features."""

import os
import pathlib
from collections.abc import Callable, Sequence

import keras
import numpy as np

import keras_vit
from keras_vit.structure import preparation_of
from train.common import markdown, predictors
from train.common.files import write_json, write_text
from train.data import early_checks, sources
from train.data.options import DEFAULTS, DataOptions
from train.data.registry import short_name
from train.data.sources.splits import Split, pick
from train.models import loaded_model
from train.models.finding import FoundModel
from train.scoring import probes
from train.scoring.evaluation_data import report_folder
from train.scoring.features import FEW_SHOT, rows_of
from train.scoring.learning_curve import Point
from train.scoring.metrics import classification_summary
from train.scoring.probe_fits import RIDGE_L2
from train.scoring.probe_kinds import KINDS
from train.scoring.ranked import ranked
from zoo.network.head import softmax

_TEMPLATE = pathlib.Path(__file__).with_name("few_shot.md.jinja")


def run(
    model: str | FoundModel,
    *,
    dataset: str,
    data_options: DataOptions = DEFAULTS,
    shots: Sequence[int] = (1, 5, 10, 25),
    seeds: int = 3,
    image_size: int | tuple[int, int] | None = None,
    batch_size: int = 32,
    engine: str = "auto",
    precision: str = "float32",
    probe: str = "ridge",
    cache: str | os.PathLike | None = None,
    out_dir: str | os.PathLike | None = None,
    command: str = "",
    judge: Callable[[dict, Sequence[Point]], Sequence[str]] | None = None,
) -> dict:
    """Fits classifiers on a model's features of few images, writes a report.

    The arguments are the flags of `python -m train.few_shot`; `image_size` may be
    (height, width), and `command` is the command line, for the report. `judge` returns
    sentences about the first draw of the most images, from its
    `classification_summary` and the points of a learning curve.

    Returns:
        Dict as in `few_shot.json`, `report` being the path of the page.

    Raises:
        RunError: model, data or directory cannot be used; the message says what to do.

    Source:
        big_vision, `evaluators/fewshot_lsr.py`.

    Example:
        >>> run("vit-b16/imagenet21k", dataset="cifar100")  # doctest: +SKIP
    """
    early_checks.check_one_class(dataset, data_options)
    loaded = loaded_model.load(model, image_size=image_size, features=True)
    bits, notes = loaded.bits(data_options.bits)
    for note in notes:
        print(note)
    image_size = loaded_model.image_shape_of(loaded)[:2]
    source = sources.load(dataset, data_options, bits=bits)
    name = f"{loaded.name}-{short_name(source.name)}-few-shot"
    name += predictors.suffix(engine, precision)
    name += "" if probe == "ridge" else f"-{probe}"
    directory, model_source = report_folder(
        loaded.source, out_dir, name, "few_shot.json"
    )

    predictor = predictors.predictor(loaded.model, batch_size, engine, precision)
    train_labels = source.train.labels()
    draws = {
        count: [draw(train_labels, count, seed) for seed in range(seeds)]
        for count in shots
    }
    # More images than there are change nothing.
    of_size = {}
    for count in shots:
        of_size.setdefault(len(draws[count][0]), count)
    shots = [*of_size.values()]
    needed = np.unique(np.concatenate(sum(draws.values(), [])))
    predictor.expect(len(needed) + source.test.num_examples)
    train_features = features_of(predictor, pick(source.train, needed), cache)
    test_labels = source.test.labels()
    test_features = features_of(predictor, source.test, cache)
    classes = len(source.class_names)

    rows, curve, summary = [], [], {}
    for count in shots:
        hits = []
        for drawn in draws[count]:
            fitted = probes.fit(
                probe,
                train_features[np.searchsorted(needed, drawn)],
                train_labels[drawn],
                classes,
            )
            logits = fitted.logits(test_features)
            hits.append(logits.argmax(axis=1) == test_labels)
            if count == max(shots) and drawn is draws[count][0]:
                answered = ranked(test_labels, softmax(logits))
                summary = classification_summary(answered, source.class_names)
        accuracies = [float(np.mean(hit)) for hit in hits]
        examples = len(draws[count][0])
        curve.append(Point(examples, np.mean(hits, axis=0)))
        had = np.bincount(train_labels[draws[count][0]], minlength=classes)
        rows.append(
            {
                "shots": count,
                # How many the classes really had.
                "fewest": int(had.min()),
                "most": int(had.max()),
                "train_examples": examples,
                "accuracies": accuracies,
                "mean": float(np.mean(accuracies)),
                # The sample standard deviation, which one draw does not have.
                "deviation": float(np.std(accuracies, ddof=1)) if seeds > 1 else None,
            }
        )
    results = {
        "model": loaded.name,
        "source": model_source,
        "dataset": source.name,
        "image_size": list(image_size),
        "preparation": preparation_for(loaded.model),
        "features": int(test_features.shape[1]),
        "test_examples": len(test_labels),
        "probe": probe,
        **({"l2": RIDGE_L2} if probe == "ridge" else {}),
        "engine": predictor.engine,
        "precision": precision,
        **({} if bits is None else {"bits": bits}),
        "command": command,
        "rows": rows,
        "verdict": [] if judge is None else list(judge(summary, curve)),
    }
    page = directory / "few_shot.md"
    filled = {"title": KINDS[probe], "accuracies": table(results)}
    write_text(page, markdown.render(_TEMPLATE, **results, **filled))
    write_json(directory / "few_shot.json", results)
    return {**results, "report": str(page)}


def draw(labels: np.ndarray, shots: int, seed: int) -> np.ndarray:
    """Draws indices of training images, by class; all of a class that has fewer.

    More shots with the same seed contain the fewer. As in big_vision.
    """
    generator = np.random.default_rng(seed)
    draws = [
        generator.permutation(np.flatnonzero(labels == label))[:shots]
        for label in range(labels.max() + 1)
    ]
    return np.concatenate(draws)


def preparation_for(model: keras.Model) -> str:
    """Returns how images come to a model's size: as it says, or as big_vision does.

    big_vision's way is for models that say no more than the default, `"squash"`.
    """
    own = preparation_of(model)
    return FEW_SHOT if own == "squash" else own


def features_of(
    predictor: keras_vit.Predictor,
    split: Split,
    cache: str | os.PathLike | None = None,
) -> np.ndarray:
    """Returns the features of a split, prepared as `preparation_for` says."""
    preparation = preparation_for(predictor.model)
    return rows_of(predictor, split, preparation=preparation, cache=cache)


def images_per_class(row: dict) -> str:
    """Returns how many training images the classes of a row had.

    Of 25 it is `"25"`, `"25 (9 to 25)"` where some classes have fewer, or `"all: 16"`
    where none has more.
    """
    shots, fewest, most = (row[key] for key in ("shots", "fewest", "most"))
    had = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    if most < shots:
        return f"all: {had}"
    return f"{shots}" if fewest == shots else f"{shots} ({had})"


def table(results: dict) -> markdown.Block:
    """Returns the accuracies of `run` as a table in Markdown."""
    return markdown.table(
        ("Images per class", "Training images", "Accuracy", "Deviation", "Each draw"),
        [
            (
                images_per_class(row),
                f"{row['train_examples']:,}",
                f"{row['mean']:.2%}",
                "" if row["deviation"] is None else f"{row['deviation']:.2%}",
                ", ".join(f"{accuracy:.2%}" for accuracy in row["accuracies"]),
            )
            for row in results["rows"]
        ],
    )

"""The tasks: what a model learns to answer of a photo, one row each.

Flags, recipes, data and commands read the rows. Nothing is imported before it is used.
"""

import dataclasses
import pkgutil
from typing import Any

from zoo.network.head import NUMBERS, ONE_CLASS, SEVERAL_CLASSES


@dataclasses.dataclass(frozen=True)
class TaskKind:
    """A task: the registration of its folder.

    What is written as `"module:name"` is imported by `of`.

    Attributes:
        title: what it answers, for help and messages.
        run: the subclass of `train.run.task.Task` that trains and reports it.
        labels: the function that makes labels of the texts in a table, see
            `train.data.labels.of_classes`.
        is_seen: the function of a data set and its `Columns` that says whether they
            show by themselves what they are for; empty where they do not.
        evaluation: the function that judges the outputs of a model and writes the
            report, see `train.evaluate.evaluation`; empty where that does it.
        problem_type: what the head of its models answers, see `zoo.network.head`.
        needs_table: whether labels are read from a table alone.
        may_have_indicators: whether a table may have a column of 0 and 1 for each.
        settings: what the recipe of own data has otherwise.
        of_heads: what it has otherwise with a `mask_head`.
        prediction: the function that writes answers that are no rows of a table, see
            `train.masks.prediction.predict`; empty for `keras-vit predict` itself.
    """

    title: str
    run: str
    labels: str
    evaluation: str
    problem_type: str
    is_seen: str = ""
    needs_table: bool = True
    may_have_indicators: bool = False
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    of_heads: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    prediction: str = ""

    @property
    def has_classes(self) -> bool:
        """Whether the outputs of its models are classes."""
        return self.problem_type in (ONE_CLASS, SEVERAL_CLASSES)

    def of(self, name: str) -> Any:
        """Returns what an attribute names."""
        return pkgutil.resolve_name(getattr(self, name))


CLASSES, MASKS = "classes", "masks"
# A training that begins with a probe as its head, on data of a user's own.
_FEW_EPOCHS = {
    "optimizer": "adam",
    "learning_rate": 3e-4,
    "layer_decay": 0.75,
    "epochs": 10.0,
    "batch_size": 32,
    "crop": "gentle",
}
TASKS = {
    CLASSES: TaskKind(
        title="one class of several",
        run="train.run.classification:FineTuning",
        labels="train.data.labels:of_classes",
        evaluation="",
        problem_type=ONE_CLASS,
        needs_table=False,
    ),
    "labels": TaskKind(
        title="any number of labels, of a table whose column has them with | between, "
        "or that has a column of 0 and 1 for each",
        run="train.several_labels.task:SeveralLabels",
        labels="train.several_labels.reading:of_texts",
        evaluation="train.several_labels.evaluation:evaluate",
        problem_type=SEVERAL_CLASSES,
        is_seen="train.several_labels.reading:is_seen",
        may_have_indicators=True,
        settings={"loss": "sigmoid", **_FEW_EPOCHS},
    ),
    "number": TaskKind(
        title="a number, of a table whose column has it",
        run="train.numbers.task:Number",
        labels="train.numbers.reading:of_texts",
        evaluation="train.numbers.evaluation:evaluate",
        problem_type=NUMBERS,
        settings={"loss": "huber", **_FEW_EPOCHS},
    ),
    MASKS: TaskKind(
        title="a class for every pixel, of a folder of photos and one of masks",
        run="train.masks.task:Masks",
        labels="",
        evaluation="train.masks.evaluation:evaluate",
        problem_type="masks",
        is_seen="train.masks.pairs:is_seen",
        needs_table=False,
        settings={
            **_FEW_EPOCHS,
            "loss": "pixels",
            "learning_rate": 3e-3,
            "layer_decay": 1.0,
            "epochs": 20.0,
            "batch_size": 8,
            "frozen": True,
        },
        of_heads={"eomt": {"frozen": False, "learning_rate": 3e-4, "layer_decay": 0.8}},
        prediction="train.masks.prediction:predict",
    ),
}


def kind_of_task(name: str | None) -> TaskKind:
    """Returns the task of a name, of None that of classes.

    Example:
        >>> kind_of_task(None).title
        'one class of several'
    """
    return TASKS[name or CLASSES]


def of_problem_type(problem_type: str) -> str:
    """Returns the name of the task whose models have heads of a type.

    Example:
        >>> of_problem_type("regression")
        'number'
    """
    return next(
        name for name, kind in TASKS.items() if kind.problem_type == problem_type
    )


def seen(dataset: str, columns: Any) -> str:
    """Returns the name of the task that data show by themselves, else of classes.

    `columns` are the `train.data.columns.Columns` of a table.
    """
    shown = (
        name
        for name, kind in TASKS.items()
        if kind.is_seen and kind.of("is_seen")(dataset, columns)
    )
    return next(shown, CLASSES)

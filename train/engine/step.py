"""What the training step is on every backend: its parts, metrics and averages."""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import keras
from keras import ops

from train.common.errors import RunError
from train.data.pipeline import NO_LABEL
from train.engine.checkpoints import Checkpoints
from train.engine.losses import count_correct, softmax_cross_entropy

# Only `Optimizer.apply` honours these settings, and it is not called here.
_OF_APPLY = (
    *("weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema"),
    *("loss_scale_factor", "gradient_accumulation_steps"),
)


@dataclasses.dataclass(eq=False, repr=False)
class Trainer:
    """Steps of gradient descent on batches cut into micro-batches.

    A step adds up the gradients of the micro-batches on each device, then those of all
    devices, clips the norm of the sum and updates. The model is made in the scope of
    the strategy. `micro_batches` are the parts of a device's share of a batch; `loss`
    and `accuracy` take logits and labels, and return one number per example;
    `rate_scales` maps paths of variables to factors of their learning rate;
    `average_decay` is what averages of the weights keep at a step, 0 for no averages.

    A backend adds:

    - `step`, which takes one on a batch that is spread over the devices. It returns a
      dict of float32 scalars on the device: `loss`, `accuracy`, `gradient_norm` (before
      the clip), `learning_rate`; in float16 also `loss_scale`, where a step whose
      gradients overflow changes nothing and has norm 0.
    - `fetch`, which returns the dicts of several steps with floats, in one transfer.
    - `answers`: labels, float32 logits and losses per example, of all hosts. They are
      on the device, and not waited for; the loss of `NO_LABEL` is that of label 0.
    - `gather`, which returns distributed values of all hosts as one NumPy array.
    - `first_device`: what the first device of this host has of distributed values.
    - `spread_seeds`, which gives each device random numbers of its own.
    """

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    _: dataclasses.KW_ONLY
    strategy: Any
    micro_batches: int = 1
    clip_norm: float | None = 1.0
    loss: Callable = softmax_cross_entropy
    accuracy: Callable = count_correct
    rate_scales: dataclasses.InitVar[dict[str, float] | None] = None
    average_decay: float = 0.0

    # This many steps may still run while `fetch` returns the ones before.
    ahead = 0
    step: ClassVar[Any]
    fetch: ClassVar[Any]
    answers: ClassVar[Any]
    gather: ClassVar[Any]
    first_device: ClassVar[Any]
    spread_seeds: ClassVar[Any]

    def __post_init__(self, rate_scales):
        for name in _OF_APPLY:
            if getattr(self.optimizer, name, None):
                raise ValueError(
                    f"The trainer would ignore the optimizer's {name}, which only its "
                    "apply() applies: build it without."
                )
        trained = self.model.trainable_variables
        scales = rate_scales or {}
        self.rate_scales = [scales.get(variable.path, 1.0) for variable in trained]
        with self.strategy.scope():
            self.optimizer.build(trained)
            averaged = trained if self.average_decay else ()
            self.averages = [self._average(variable) for variable in averaged]
            is_half = self.model.compute_dtype == "float16"
            self.loss_scale = LossScale() if is_half else None

    @property
    def variables(self) -> list:
        """All variables of a checkpoint, in an order that stays the same."""
        scale = self.loss_scale.variables if self.loss_scale else []
        return self.model.variables + self.optimizer.variables + self.averages + scale

    def whole_weights(self) -> list | None:
        """Returns the model's weights as NumPy arrays where hosts have but parts.

        All hosts call it, and the first gets them. None where each has them all.
        """
        return None

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Gives the model the averages of its weights, if any, within the context."""
        self._exchange_averages()
        try:
            yield
        finally:
            self._exchange_averages()

    def _average(self, variable, value=None, layout=None):
        return keras.Variable(
            ops.convert_to_numpy(variable) if value is None else value,
            trainable=False,
            name=f"{variable.path.replace('/', '_')}_average",
            layout=layout,
        )

    def _exchange_averages(self):
        trained = self.model.trainable_variables
        for average, weight in zip(self.averages, trained, strict=False):
            kept = ops.convert_to_numpy(weight)
            weight.assign(ops.convert_to_numpy(average))
            average.assign(kept)

    def _finish(self, sums):
        """Returns clipped gradients, whether they are finite, and the metrics."""
        gradients, loss, accuracy = sums
        metrics = {"loss": loss, "accuracy": accuracy}
        if self.loss_scale:
            factor = 1.0 / self.loss_scale.scale.value
            gradients = [gradient * factor for gradient in gradients]
        gradients, norm = self._clip(gradients)
        is_finite = ops.isfinite(norm)
        if self.loss_scale:
            metrics["loss_scale"] = self.loss_scale.scaled(1.0)
            norm = ops.where(is_finite, norm, 0.0)
        metrics["gradient_norm"] = norm
        metrics["learning_rate"] = ops.cast(self.optimizer.learning_rate, "float32")
        return gradients, is_finite, metrics

    def _decay(self):
        """Returns the decay of the averages at this step."""
        # Begin with a smaller decay, or the initial weights would dominate.
        steps = ops.cast(self.optimizer.iterations, "float32")
        return ops.minimum(self.average_decay, (1.0 + steps) / (10.0 + steps))

    def _losses(self, logits, labels):
        # Any value may be a number's, so labels of several values have NaN instead.
        is_integer = keras.backend.is_int_dtype(labels.dtype)
        is_filling = labels == NO_LABEL if is_integer else ops.isnan(labels)
        return self.loss(logits, ops.where(is_filling, 0, labels))


class LossScale:
    """A factor of the loss that keeps float16 gradients from underflow.

    It doubles after 2,000 steps without overflow, and halves at every overflow.

    Source:
        Mixed Precision Training, arXiv 1710.03740, section 3.2.
    """

    def __init__(self):
        self.scale = keras.Variable(2.0**15, trainable=False, name="loss_scale")
        self.good_steps = keras.Variable(
            0, trainable=False, dtype="int32", name="good_steps"
        )
        self.variables = [self.scale, self.good_steps]

    def scaled(self, loss: keras.KerasTensor) -> Any:
        return loss * self.scale.value

    def update(self, is_finite: keras.KerasTensor) -> None:
        good_steps = ops.where(is_finite, self.good_steps + 1, 0)
        grows = good_steps >= 2_000
        factor = ops.where(is_finite, ops.where(grows, 2.0, 1.0), 0.5)
        self.scale.assign(self.scale * factor)
        self.good_steps.assign(ops.where(grows, 0, good_steps))


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run; `host` numbers the run's processes.

    A backend adds:

    - `count`: how many parts of a batch are computed side by side, on all hosts; each
      by one device, or by several that share the model.
    - `is_cpu`: whether the processor computes, in the memory of this machine.
    - `bfloat16`: whether the devices multiply in it, and why so, in words.
    - `trainer`, which returns that of a model made in the strategy's scope.
    - `batches`, which spreads those of `make` over the devices: a function of a
      `train.data.pipeline.Share` as `share` to a `tf.data.Dataset`.
    """

    count: ClassVar[Any]
    is_cpu: ClassVar[Any]
    bfloat16: ClassVar[Any]
    trainer: ClassVar[Any]
    batches: ClassVar[Any]
    strategy: Any
    host: int = 0

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files of the run and prints."""
        return self.host == 0

    @property
    def has_hosts(self) -> bool:
        """Whether other processes take part."""
        return False

    @property
    def shares_model(self) -> bool:
        """Whether each device holds a part of the model only."""
        return False

    @property
    def saves(self) -> bool:
        """Whether this process writes checkpoints, or a part of each."""
        return self.is_chief or self.shares_model

    def on_processor(self) -> contextlib.AbstractContextManager:
        """Keeps what is made in the context in the memory of this machine."""
        return contextlib.nullcontext()

    def wait(self) -> None:
        """Waits until all hosts are done."""

    def checkpoints(self, folder: str | os.PathLike) -> Checkpoints:
        """Returns the checkpoints in a folder, which is made."""
        return Checkpoints(folder)

    @property
    def description(self) -> str:
        """What a run prints of its devices, empty for one."""
        return f"on {self.count} devices" if self.count > 1 else ""

    def print(self, line: str) -> None:
        if self.is_chief:
            print(line)

    def all_gather(self, value: int) -> list:
        """Returns the int of every device's host, a list, from that of this host."""
        return [value] * self.count

    def explain_lost_worker(self) -> contextlib.AbstractContextManager:
        """Raises a `RunError` where another process of the run ended."""
        return contextlib.nullcontext()

    def micro_batches(self, batch_size: int, parts: int) -> int:
        """Returns the micro-batches per device if the whole batch has `parts` parts.

        Raises a `RunError` where the batch cannot be shared equally.
        """
        count = -(-parts // self.count)
        if batch_size % (self.count * count):
            each = f" in {count} parts each" if count > 1 else ""
            raise RunError(
                f"A batch of {batch_size} cannot be shared equally by {self.count} "
                f"devices{each}: pass a --batch_size that is a "
                f"multiple of {self.count * count}."
            )
        return count


def one_behind(items: Iterable) -> Iterator:
    """Yields each item once the next one is made, while devices work on that."""
    for item, _ in itertools.pairwise(itertools.chain(items, [None])):
        yield item

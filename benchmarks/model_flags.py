"""The flags that say which model is measured, on what."""

import dataclasses

from absl import flags

from benchmarks.ours import CLASSES

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()


def define(*, model, batch, peers):
    """Defines the flags.

    Args:
        model: str, the default.
        batch: int, the default.
        peers: str, the default.
    """
    flags.DEFINE_string("model", model, "A variant such as ViT-B_16.")
    flags.DEFINE_integer("batch", batch, "Images a step.", lower_bound=1)
    flags.DEFINE_integer("image_size", 224, "Pixels a side.", lower_bound=1)
    flags.DEFINE_list("peers", peers, "What to compare with, or all.")
    flags.DEFINE_string(
        "profile",
        None,
        "Folder for a trace of the first of ours, taken instead of measuring.",
    )


def stem(benchmark):
    """Returns what the result of a benchmark of these flags is called."""
    given = flags.FLAGS
    size = "" if given.image_size == 224 else f"-{given.image_size}"
    return f"{benchmark}-{given.model}{size}-b{given.batch}"


@dataclasses.dataclass(frozen=True)
class Setting:
    """A model and its batch as jobs take them.

    Args:
        ours: dict, what a job of ours takes.
        parameters: int, or None for a hybrid.
        operations: int, floating-point operations of the logits of a batch.
    """

    ours: dict
    parameters: int | None
    operations: int

    @property
    def peers(self):
        """What a job of a peer takes, a dict."""
        return {**self.ours, "parameters": self.parameters}


def setting():
    """Returns the flags as a `Setting`.

    Raises:
        ValueError: as of `describe`, or no peer has such a model.
    """
    given = flags.FLAGS
    described = describe(given.model, given.image_size, given.batch)
    if described.parameters is None and given.peers:
        raise ValueError(
            f"--model={given.model}: no peer has the ResNet of a hybrid, pass --peers= "
            "for none."
        )
    return described


def describe(model, image_size, batch):
    """Returns the `Setting` of a variant.

    Args:
        model: str, a name in `keras_vit.VARIANTS`.
        image_size: int.
        batch: int.

    Raises:
        ValueError: there is no such model, or it does not take such images.
    """
    import keras_vit
    from benchmarks import flops

    if model not in keras_vit.VARIANTS:
        raise ValueError(
            f"Unknown model {model!r}: choose from {', '.join(keras_vit.VARIANTS)}."
        )
    config = keras_vit.VARIANTS[model]
    config.grid_size(image_size, name=model)
    ours = {
        "sizes": dataclasses.asdict(config),
        "image_size": image_size,
        "batch": batch,
    }
    parameters = None
    if not config.is_hybrid:
        parameters = flops.parameters(config, image_size, CLASSES)
    multiply_adds = flops.multiply_adds(config, image_size, CLASSES)
    return Setting(ours, parameters, 2 * multiply_adds * batch)

"""The flags that say which model is measured, on what."""

import dataclasses
import math

from absl import flags

from benchmarks import families, peer_models
from benchmarks.contest import choose
from benchmarks.ours import CLASSES

CHANNELS = 3

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()


def define(*, model, batch, peers):
    """Defines the flags."""
    flags.DEFINE_string(
        "model",
        model,
        "A variant such as ViT-B_16, a handle such as dinov2-s14/lvd142m, or timm's "
        "name of an architecture.",
    )
    flags.DEFINE_integer("batch", batch, "Images a step.", lower_bound=1)
    flags.DEFINE_integer("image_size", 224, "Pixels a side.", lower_bound=1)
    flags.DEFINE_list("peers", peers, "What to compare with, or all.")
    flags.DEFINE_string(
        "profile",
        None,
        "Folder for a trace of the first of ours, taken instead of measuring.",
    )


def stem(benchmark, output=None):
    """Returns what the result of a benchmark of these flags is called."""
    given = flags.FLAGS
    size = "" if given.image_size == 224 else f"-{given.image_size}"
    size += f"-{output}" if output else ""
    return f"{benchmark}-{given.model.replace('/', '-')}{size}-b{given.batch}"


def contenders(of_ours, of_peers, mine, theirs, **fields):
    """Returns the contenders that `--ours` and `--peers` name in two tables.

    `mine` and `theirs` are the settings of either, `fields` others of `Contender`.
    """
    given = flags.FLAGS
    found = [
        dataclasses.replace(one, settings=one.settings | mine, ours=True, **fields)
        for one in choose(of_ours, given.ours, "ours")
    ]
    found += [
        dataclasses.replace(one, settings=theirs, **fields)
        for one in choose(of_peers, given.peers, "peers")
    ]
    if not found:
        raise ValueError("--ours and --peers are both empty: name one.")
    return found


@dataclasses.dataclass(frozen=True)
class Setting:
    """A model and its batch as jobs take them."""

    ours: dict
    parameters: int | None
    operations: int

    @property
    def peers(self):
        """What a job of a peer takes, a dict."""
        return {**self.ours, "parameters": self.parameters}


def setting(output=None):
    """Returns the flags as a `Setting`.

    Models of other families give an `output` of `benchmarks.ours.OUTPUTS`, by
    default what keras-hub's encoder gives.
    """
    given = flags.FLAGS
    architecture = families.architecture_of(given.model)
    if architecture is not None:
        _check_peers(architecture)
        return of_family(architecture, given.image_size, given.batch, output)
    described = describe(given.model, given.image_size, given.batch)
    if output in ("tokens", "features"):
        raise ValueError(
            f"--output={output} is of other families, and {given.model} gives logits: "
            "leave it out."
        )
    if described.parameters is None and given.peers:
        raise ValueError(
            f"--model={given.model}: no peer has the ResNet of a hybrid, pass --peers= "
            "for none."
        )
    return described


def describe(model, image_size, batch):
    """Returns the `Setting` of a variant."""
    import keras_vit
    import zoo

    if model not in keras_vit.VARIANTS:
        raise ValueError(
            f"Unknown model {model!r}: choose from {', '.join(keras_vit.VARIANTS)}, or "
            'pass a handle of `keras-vit zoo list "*dinov2*"` and the like.'
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
        parameters = zoo.VARIANTS[model].count_parameters(image_size, CLASSES)
    count = multiply_adds(config, image_size, CLASSES)
    return Setting(ours, parameters, 2 * count * batch)


def _check_peers(architecture):
    given = flags.FLAGS
    lacking = {"vit-keras", "transformers"}
    if peer_models.keras_hub_output(architecture) is None:
        lacking |= {"keras-hub", "keras-hub-jax", "keras-hub-xla"}
    if without := lacking.intersection(given.peers):
        raise ValueError(
            f"--model={given.model}: {', '.join(sorted(without))} has no such model "
            f"here, leave it out of --peers={','.join(given.peers)}, or pass "
            "--peers=torch for timm alone."
        )


def of_family(architecture, image_size, batch, output=None):
    """Returns the `Setting` of an architecture of another family."""
    import zoo

    output = output or peer_models.keras_hub_output(architecture) or "features"
    family = families.written(architecture, image_size, output)
    checkpoint = zoo.read(family.file)
    classes = CLASSES if output == "logits" else 0
    parameters = sum(math.prod(shape) for shape in checkpoint.shapes.values())
    if classes:
        parameters += (checkpoint.hidden_size + 1) * classes
    ours = {
        "sizes": dataclasses.asdict(checkpoint.config),
        "image_size": image_size,
        "batch": batch,
        "family": vars(family),
    }
    count = multiply_adds(
        checkpoint.config,
        image_size,
        classes,
        checkpoint.class_token,
        None if output == "tokens" else checkpoint.pooling_mlp_dim,
    )
    return Setting(ours, parameters, 2 * count * batch)


def multiply_adds(config, image_size, classes, class_token=True, pooling_mlp_dim=None):
    """Returns the multiply-adds of one image's output: products and convolutions.

    Those of no head with 0 classes, and of attention pooling with `pooling_mlp_dim`.
    """
    patches = math.prod(config.grid_size(image_size))
    others = (config.num_registers or 0) + bool(config.distillation_token)
    tokens = patches + others + class_token
    hidden = config.hidden_size
    stem, features = _resnet(config, image_size) if config.is_hybrid else (0, CHANNELS)
    embedding = patches * math.prod(_pair(config.patch_size)) * features * hidden
    # Query, key, value and output; scores and their weighted sum; those of the MLP.
    in_mlp = 3 if config.activation == "swiglu" else 2
    block = tokens * (4 * hidden**2 + in_mlp * hidden * config.mlp_dim)
    block += 2 * tokens**2 * hidden
    pooling = 0
    if pooling_mlp_dim is not None:
        pooling = 2 * hidden * (tokens * hidden + tokens + hidden + pooling_mlp_dim)
    return stem + embedding + config.num_layers * block + pooling + hidden * classes


def _pair(size):
    return (size, size) if isinstance(size, int) else size


def _resnet(config, image_size):
    """Multiply-adds of a hybrid's ResNet, and the channels that leave it."""
    height, width = (math.ceil(side / 2) for side in _pair(image_size))
    channels = config.resnet_width
    total = height * width * 7 * 7 * CHANNELS * channels
    height, width = math.ceil(height / 2), math.ceil(width / 2)
    for stage, units in enumerate(config.resnet_stages):
        filters = config.resnet_width * 2**stage
        for unit in range(units):
            total += height * width * channels * filters
            halves = stage > 0 and unit == 0
            if halves:
                height, width = math.ceil(height / 2), math.ceil(width / 2)
            positions = height * width
            total += positions * (9 * filters**2 + 4 * filters**2)
            if halves or channels != 4 * filters:
                total += positions * channels * 4 * filters
            channels = 4 * filters
    return total, channels

"""Builds the model, optimizer and loss of a recipe."""

import keras_vit
import zoo
from keras_vit.weights.loading import read_weights
from train import baselines
from train.common.errors import RunError
from train.data.sources.splits import named
from train.engine.choices import LOSSES, OPTIMIZERS, SCHEDULES
from train.recipes.recipe import brings_weights


def trainer(task, devices, micro_batches, schedule=None):
    """Returns the trainer of a task that is built, in the scope of the devices.

    `micro_batches` are those of each device; `schedule` replaces the recipe's.
    """
    recipe = task.recipe
    return devices.trainer(
        task.model,
        optimizer(recipe, schedule),
        micro_batches=micro_batches,
        clip_norm=recipe.clip_norm,
        loss=task.loss,
        accuracy=task.accuracy,
        rate_scales=task.rate_scales,
        average_decay=recipe.average_decay,
    )


def optimizer(recipe, schedule=None):
    """Returns the recipe's optimizer, with its schedule or another one."""
    schedule = schedule or SCHEDULES[recipe.schedule].of(recipe)()
    return OPTIMIZERS[recipe.optimizer].of(recipe)(schedule)


def model(recipe, classes):
    """Returns the recipe's model: its weights, and a new head of so many classes."""
    if recipe.model in baselines.BASELINES:
        return _baseline(recipe, classes)
    try:
        recipe.check()
        config, weights, pooling = _network(recipe)
        return keras_vit.VisionTransformer(
            config,
            weights,
            image_size=recipe.image_size,
            classes=classes,
            pooling=pooling,
            # As validation and test images are prepared, whatever the weights say.
            preparation="squash",
            representation_size=(
                config_of(recipe).hidden_size if recipe.pre_logits else None
            ),
            # A linear probe takes the features without noise.
            dropout_rate=0.0 if recipe.frozen else recipe.dropout,
            stochastic_depth_rate=(
                0.0 if recipe.frozen else recipe.stochastic_depth_rate
            ),
            remat=recipe.remat,
            head_bias_init=recipe.head_bias,
            name=None if config is recipe.model else "vision_transformer",
        )
    except (ValueError, zoo.StoreError) as error:
        raise RunError(str(error)) from error


def save_weights(model, recipe, path):
    """Writes a `.npz` in the released naming of the model's kind, if it has one."""
    if recipe.model == "BiT-R50x1":
        baselines.save_bit_weights(model, path)
    elif recipe.model not in baselines.BASELINES:
        keras_vit.save_released_weights(model, path)


def _baseline(recipe, classes):
    for name in ("pre_logits", "dropout_rate", "stochastic_depth_rate", "remat"):
        if getattr(recipe, name):
            raise RunError(
                f"{recipe.model} has no {name}: leave it out, or choose a Vision "
                "Transformer."
            )
    if recipe.head_bias:
        raise RunError(f"{recipe.model} has no head_bias: pass --head_bias=0.")
    return baselines.build(
        recipe.model,
        weights=recipe.weights,
        image_size=recipe.image_size,
        classes=classes,
    )


def config_of(recipe):
    """Returns the `ViTConfig` of the recipe's model."""
    model = recipe.model
    if not isinstance(model, str):
        return model
    if model in keras_vit.VARIANTS:
        return keras_vit.VARIANTS[model]
    if not brings_weights(model):
        raise RunError(
            f"{model} is not a Vision Transformer: pass another --model, one of "
            f"{', '.join(keras_vit.VARIANTS)}."
        )
    return read_weights(model).config


def _network(recipe):
    """Returns the network of a recipe, weights without their head or None, and pooling.

    The network is the name of a variant or a `ViTConfig`.
    """
    model = recipe.model
    is_config = not isinstance(model, str)
    if is_config or model in keras_vit.VARIANTS:
        of_kind = (None, model.num_heads) if is_config else (model,)
        weights = recipe.weights and read_weights(recipe.weights, *of_kind)
        return model, weights and weights.without_head(), "token"
    if recipe.weights not in (None, model):
        raise RunError(
            f"The model {model} has weights of its own: leave out "
            f"--weights={recipe.weights}, or pass none for random ones."
        )
    found = read_weights(model)
    if recipe.weights is None:
        return found.config, None, found.pooling
    return keras_vit.ViTConfig(), found.without_head(), found.pooling


def loss(recipe, source):
    """Returns the recipe's loss, a function of logits and labels."""
    weights = recipe.class_weights
    if weights == "balanced":
        counts = source.train.class_counts(len(source.class_names))
        present = (counts > 0).sum()
        # A class that is not there has no weight to share.
        weights = tuple(
            float(source.train.num_examples / (present * count)) if count else 0.0
            for count in counts
        )
    elif weights is not None and len(weights) != len(source.class_names):
        raise RunError(
            f"--class_weights has {len(weights)} numbers, but {source.name} has "
            f"{len(source.class_names)} classes: give one for each, in the order of "
            f"{named(source.class_names)}; or balanced."
        )
    return LOSSES[recipe.loss].of(recipe, class_weights=weights)

"""What a recipe asks for: model, optimizer and loss."""

import functools

import keras_vit
import zoo
from keras_vit.weights import read_weights
from train import baselines
from train.common.errors import RunError
from train.data.sources.splits import named
from train.engine import losses
from train.engine.optimizers import Adam, MomentumSGD
from train.engine.schedules import WarmupCosine, WarmupLinear


def optimizer(recipe):
    """Returns the recipe's optimizer, with its schedule."""
    schedule = {"cosine": WarmupCosine, "linear": WarmupLinear}[recipe.schedule](
        recipe.learning_rate, recipe.steps, recipe.warmup_steps
    )
    if recipe.optimizer == "adam":
        return Adam(
            schedule,
            kernel_decay=recipe.weight_decay,
            momentum_dtype=recipe.momentum_dtype,
        )
    return MomentumSGD(schedule, recipe.momentum, recipe.momentum_dtype)


def model(recipe, classes):
    """Returns the recipe's model with a new head, its weights loaded.

    Args:
        recipe: `train.recipes.Recipe`.
        classes: int.

    Returns:
        `keras.Model`.

    Raises:
        RunError: the model, its size or its weights are not to be had.
    """
    if recipe.model in baselines.BASELINES:
        return _baseline(recipe, classes)
    known = [*keras_vit.VARIANTS, *baselines.BASELINES]
    if isinstance(recipe.model, str) and recipe.model not in known:
        raise RunError(
            f"There is no model {recipe.model!r}: choose one of {', '.join(known)}."
        )
    try:
        return keras_vit.VisionTransformer(
            recipe.model,
            weights=_checkpoint(recipe),
            image_size=recipe.image_size,
            classes=classes,
            representation_size=(
                config_of(recipe).hidden_size if recipe.pre_logits else None
            ),
            # A probe learns from what the model says to images, not from its noise.
            dropout_rate=0.0 if recipe.frozen else recipe.dropout,
            stochastic_depth_rate=(
                0.0 if recipe.frozen else recipe.stochastic_depth_rate
            ),
            remat=recipe.remat,
            head_bias_init=recipe.head_bias,
        )
    except (ValueError, zoo.StoreError) as error:
        raise RunError(str(error)) from error


def save_weights(model, recipe, path):
    """Writes the weights in the released naming of the model's kind, if it has one.

    Args:
        model: `keras.Model` of the recipe.
        recipe: `train.recipes.Recipe`.
        path: path, `.npz`.
    """
    if recipe.model == "BiT-R50x1":
        keras_vit.save_bit_weights(model, path)
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
    if isinstance(recipe.model, str):
        return keras_vit.VARIANTS[recipe.model]
    return recipe.model


def _checkpoint(recipe):
    """The weights without their head, which is always new, or None."""
    if recipe.weights is None:
        return None
    variant, num_heads = recipe.model, None
    if not isinstance(recipe.model, str):
        variant, num_heads = None, recipe.model.num_heads
    return read_weights(recipe.weights, variant, num_heads).without_head()


def loss(recipe, source):
    """Returns the recipe's loss, a function of logits and labels.

    Args:
        recipe: `train.recipes.Recipe`.
        source: `train.data.sources.Source`, for the weights of its classes.

    Raises:
        RunError: there are not as many weights as classes.
    """
    function = {
        "softmax": losses.softmax_cross_entropy,
        "sigmoid": losses.sigmoid_cross_entropy,
    }[recipe.loss]
    return functools.partial(
        function,
        label_smoothing=recipe.label_smoothing,
        class_weights=_class_weights(recipe, source),
    )


def loss_name(recipe):
    """Returns what the loss of a run is called, in training and validation alike.

    Args:
        recipe: `train.recipes.Recipe`.

    Example:

    >>> from train.recipes import for_dataset
    >>> loss_name(for_dataset("digits").override(label_smoothing=0.1))
    'softmax cross-entropy, label smoothing 0.1'
    """
    parts = [f"{recipe.loss} cross-entropy"]
    if recipe.label_smoothing:
        parts.append(f"label smoothing {recipe.label_smoothing:g}")
    if recipe.class_weights == "balanced":
        parts.append("balanced class weights")
    elif recipe.class_weights is not None:
        parts.append("class weights")
    return ", ".join(parts)


def training_only(recipe):
    """Returns what training has and validation has not, in words.

    Args:
        recipe: `train.recipes.Recipe`.

    Example:

    >>> from train.recipes import for_dataset
    >>> training_only(for_dataset("cifar100").override(mixup=0.2, dropout_rate=0.1))
    'inception crop, flip, mixup 0.2, dropout 0.1'
    """
    # As in `model`.
    drops = not recipe.frozen
    parts = {
        f"{recipe.crop} crop": recipe.crop != "resize",
        "flip": recipe.flip,
        **dict.fromkeys(recipe.augmentation_titles, True),
        f"dropout {recipe.dropout:g}": drops and recipe.dropout,
        f"stochastic depth {recipe.stochastic_depth_rate:g}": (
            drops and recipe.stochastic_depth_rate
        ),
        "weights that are not averaged": recipe.average_decay,
    }
    return ", ".join(part for part, is_there in parts.items() if is_there) or "nothing"


def _class_weights(recipe, source):
    weights = recipe.class_weights
    if weights == "balanced":
        counts = source.train.class_counts(len(source.class_names))
        # A class that is not there has no weight to share.
        return tuple(
            float(source.train.num_examples / ((counts > 0).sum() * count))
            if count
            else 0.0
            for count in counts
        )
    if weights is not None and len(weights) != len(source.class_names):
        raise RunError(
            f"--class_weights has {len(weights)} numbers, but {source.name} has "
            f"{len(source.class_names)} classes: give one for each, in the order of "
            f"{named(source.class_names)}; or balanced."
        )
    return weights

"""Builds the model, optimizer and loss of a recipe."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras.optimizers.schedules import LearningRateSchedule

import keras_vit
import zoo
from keras_vit.structure import architectures
from train.common.errors import RunError
from train.data.sources.splits import Source
from train.engine.choices import LOSSES, OPTIMIZERS, SCHEDULES
from train.engine.step import Devices, Trainer
from train.recipes import Recipe
from train.recipes.recipe import brings_weights
from train.run.task import Task
from zoo.catalog.locate import read_located
from zoo.common.safe_text import named
from zoo.network import NETWORKS


def trainer(
    task: Task,
    devices: Devices,
    micro_batches: int,
    schedule: LearningRateSchedule | None = None,
) -> Trainer:
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


def optimizer(
    recipe: Recipe, schedule: LearningRateSchedule | None = None
) -> keras.optimizers.Optimizer:
    """Returns the recipe's optimizer, with its schedule or another one."""
    schedule = schedule or SCHEDULES[recipe.schedule].of(recipe)()
    return OPTIMIZERS[recipe.optimizer].of(recipe)(schedule)


def model(recipe: Recipe, classes: int) -> keras.Model:
    """Returns the recipe's model: its weights, and a new head of `classes` outputs."""
    try:
        recipe.check()
        architecture = architecture_of(recipe)
        for field in dataclasses.fields(recipe):
            argument = field.metadata.get("argument")
            is_asked_for = argument and getattr(recipe, field.name)
            if is_asked_for and not architecture.takes(argument):
                raise RunError(
                    f"{recipe.model} has no {field.name}: leave it out, or choose a "
                    "Vision Transformer."
                )
        network, weights, pooling = _network(recipe)
        # A linear probe takes the features without noise.
        rate, depth_rate = recipe.dropout, recipe.stochastic_depth_rate
        options = {
            "pooling": pooling,
            # Validation and test images are prepared so, whatever the weights say.
            "preparation": "squash",
            "new_head": True,
            "representation_size": (
                config_of(recipe).hidden_size if recipe.pre_logits else None
            ),
            "dropout_rate": 0.0 if recipe.frozen else rate,
            "stochastic_depth_rate": 0.0 if recipe.frozen else depth_rate,
            "remat": recipe.remat,
            "head_bias_init": recipe.head_bias,
            "name": None if network is recipe.model else "vision_transformer",
        }
        return architecture.make(
            network,
            weights,
            image_size=recipe.image_size,
            classes=classes,
            **{name: options[name] for name in options if architecture.takes(name)},
        )
    except (ValueError, zoo.StoreError) as error:
        raise RunError(str(error)) from error


def architecture_of(recipe: Recipe) -> architectures.Architecture:
    """Returns the architecture of the recipe's model."""
    if brings_weights(recipe.model):
        return architectures.of_config(zoo.ViTConfig())
    try:
        return architectures.of_config(_known(recipe.model))
    except ValueError as error:
        raise RunError(str(error)) from error


def config_of(recipe: Recipe) -> zoo.ViTConfig:
    """Returns the `ViTConfig` of the recipe's model."""
    model: Any = recipe.model
    if brings_weights(model):
        return read_located(model).config
    config = _known(model)
    if not isinstance(config, zoo.ViTConfig):
        raise RunError(
            f"{model} is not a Vision Transformer: pass another --model, one of "
            f"{', '.join(keras_vit.VARIANTS)}."
        )
    return config


def _known(model):
    """Returns the config of a model that is a name or a config."""
    return NETWORKS.get(model, model)


def _network(recipe):
    """Returns the network of a recipe, weights without their head or None, and pooling.

    The network is the name of one, or its config.
    """
    model, weights = recipe.model, recipe.weights
    if not brings_weights(model):
        config = _known(model)
        if weights and isinstance(config, zoo.ViTConfig):
            of_kind = (None, model.num_heads) if config is model else (model,)
            weights = read_located(weights, *of_kind).without_head()
        return model, weights, "token"
    if weights not in (None, model):
        raise RunError(
            f"The model {model} has weights of its own: leave out "
            f"--weights={weights}, or pass none for random ones."
        )
    checkpoint = read_located(model).without_queries()
    if weights is None:
        return checkpoint.config, None, checkpoint.pooling
    return keras_vit.ViTConfig(), checkpoint.without_head(), checkpoint.pooling


def loss(recipe: Recipe, source: Source) -> Callable:
    """Returns the recipe's loss, a function of logits and labels."""
    weights = class_weights(
        recipe, source, lambda counts: _balanced(source.train.num_examples, counts)
    )
    given = {} if weights is None else {"class_weights": weights}
    return LOSSES[recipe.loss].of(recipe, **given)


def class_weights(
    recipe: Recipe,
    source: Source,
    balanced: Callable[[np.ndarray], tuple[float, ...]],
) -> tuple[float, ...] | None:
    """Returns the weights of the classes of a recipe, None without any.

    `balanced` makes them of the numbers of examples of each. Raises a `RunError` for
    other classes than those of the data.
    """
    weights: Any = recipe.class_weights
    if weights == "balanced":
        return balanced(source.train.class_counts(len(source.class_names)))
    if weights is not None and len(weights) != len(source.class_names):
        raise RunError(
            f"--class_weights has {len(weights)} numbers, but {source.name} has "
            f"{len(source.class_names)} classes: give one for each, in the order of "
            f"{named(source.class_names)}; or balanced."
        )
    return weights


def _balanced(examples, counts):
    present = (counts > 0).sum()
    # A class without images has no weight to share.
    return tuple(
        float(examples / (present * count)) if count else 0.0 for count in counts
    )

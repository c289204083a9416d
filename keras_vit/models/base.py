"""The class of the models: a graph of Keras's layers that knows what it is."""

import dataclasses
from typing import Any

import keras

from keras_vit.layers import TransformerBlock
from keras_vit.layers.forward_pass import running
from keras_vit.structure import architectures, head_of


@dataclasses.dataclass(frozen=True)
class Description:
    """What a model is, as far as its input, its outputs and its head do not say it.

    Attributes:
        config: the network, a `zoo.ViTConfig` or the config of another
            `keras_vit.structure.architectures.Architecture`.
        image_size: (height, width) in pixels that its positions are of.
        class_token: bool, whether there is one.
        pooling: what the head reads, see `VisionTransformer`.
    """

    config: object
    image_size: tuple[int, int]
    class_token: bool = False
    pooling: str | None = "gap"

    def get_config(self) -> dict:
        """Returns the attributes as a dict for JSON, without those of no choice."""
        architecture = architectures.of_config(self.config)
        names = (field.name for field in dataclasses.fields(architecture.config))
        network = {name: getattr(self.config, name) for name in names}
        return {
            **vars(self),
            "architecture": architecture.name,
            "config": {name: one for name, one in network.items() if one is not None},
        }

    @classmethod
    def from_config(cls, config: dict) -> "Description":
        """Returns the description that `get_config` gave."""
        config = dict(config)
        architecture = architectures.named(config.pop("architecture"))
        network = architecture.config(**config["config"])
        size = tuple(config["image_size"])
        return cls(**{**config, "config": network, "image_size": size})


@keras.saving.register_keras_serializable(package="keras_vit")
class Model(keras.Model):
    """A functional `keras.Model` that knows which network it is.

    The last block of a Vision Transformer computes the class token alone where that is
    all that the head reads: 6 to 8% less time, the same output to 2e-6 and the same
    gradients. A part of it, such as
    `keras.Model(model.input, model.get_layer("encoder_norm").output)`, computes all
    tokens, and so does `keras.models.clone_model(model)`, which loses what it is.

    Args:
        *args: inputs and outputs of `keras.Model`.
        description: `Description`, or None for a graph of any kind.
        **kwargs: `name` and `trainable` of `keras.Model`.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> model.config.hidden_size, model.description.pooling
        (192, 'token')
    """

    # Keras takes a class for a functional one that has literally these two.
    def __init__(self, *args, description=None, **kwargs):
        super().__init__(*args, **kwargs)
        if isinstance(description, dict):
            description = Description.from_config(description)
        self.description = description

    @property
    def config(self) -> Any:
        """The config of the network; None of a clone, which does not know it."""
        return self.description and self.description.config

    def call(
        self, inputs: Any, training: bool | None = None, mask: Any = None, **kwargs: Any
    ) -> Any:
        with running(class_token_block=self.class_token_block):
            return super().call(inputs, training=training, mask=mask, **kwargs)

    @property
    def class_token_block(self) -> Any:
        """The block of whose tokens the model needs the first alone, or None."""
        if self.description is None or self.description.pooling != "token":
            return None
        blocks = [one for one in self.layers if isinstance(one, TransformerBlock)]
        return blocks[-1] if blocks else None

    def rebuild(self, **options: Any) -> keras.Model:
        """Returns the network built anew, with this model's weights.

        It is a model of its own, which another head, pooling or dtype may be given;
        weights that do not fit them are refused. What was changed in layers, such as
        what is frozen, and rates of dropout are not carried over.

        Args:
            **options: of the function that makes such models, see
                `keras_vit.VisionTransformer`; the image size, pooling, dtype, name and
                the head are by default this model's.

        Returns:
            `Model`.

        Raises:
            ValueError: the model is a clone, or its weights have no released names; or
                an option does not fit.

        Example:
            >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
            >>> model.rebuild(classes=5, dtype="mixed_bfloat16").output_shape
            (None, 5)
        """
        architecture = architectures.of_config(architectures.config_of(self))
        weights = architectures.files_of(self).weights_of(self)
        head = head_of(self)
        include_top = options.get("include_top", bool(head) or "classes" in options)
        own = {
            "image_size": self.input_shape[1:3],
            "channels": self.input_shape[3],
            "pooling": self.description.pooling,
            "include_top": include_top,
            "classifier_activation": head.activation if head and include_top else None,
            "dtype": next(one for one in self.layers if one.weights).dtype_policy,
            "name": self.name,
        }
        own = {name: one for name, one in own.items() if architecture.takes(name)}
        model = architecture.make(self.config, weights, **(own | options))
        if head is not None and (other := head_of(model)) is not None:
            _hand_facts(head, other, options)
        return model

    def get_config(self) -> dict:
        config = super().get_config()
        if self.description is not None:
            config["description"] = self.description.get_config()
        return config


def _hand_facts(head, other, options):
    """Sets what a head says where no option did: of its classes, if they are kept."""
    names = ["preparation", "bits"]
    if other.units == head.units and not options.get("new_head"):
        names += ["class_names", "problem_type", "thresholds"]
    for name in names:
        if name not in options:
            setattr(other, name, getattr(head, name))


def of_features(model: keras.Model, features: keras.KerasTensor) -> keras.Model:
    """Returns a model of what a model's head reads, a tensor in its graph.

    It knows what it is, if the model does.
    """
    if not isinstance(model, Model):
        return keras.Model(model.inputs[0], features, name=model.name)
    description = model.description
    return Model(model.input, features, name=model.name, description=description)

"""A network whose head is a probe: one model from images to classes."""

from collections.abc import Sequence

import keras

from keras_vit.layers import ClassificationHead
from keras_vit.models.base import Model
from keras_vit.structure import bits_of, preparation_of
from train.scoring.features import features_model, pooled_tensor
from train.scoring.probes import Mlp, Probe


def probed_network(
    network: keras.Model,
    probe: Probe,
    class_names: Sequence[str] | None = None,
    preparation: str | None = None,
) -> keras.Model:
    """Returns a network with a probe as its head, which shares the network's weights.

    Args:
        network: `keras.Model` that the features are of, at the size they are of.
        probe: of `train.scoring.probes.fit`, on `Features.pooled` or `Features.joined`.
        class_names: sequence of str, one per class.
        preparation: str, that of the features; by default the network's.

    Returns:
        `keras.Model` from images to the probe's logits. It can be trained further,
        saved and, with a linear probe, published as other classifiers can.

    Raises:
        ValueError: the probe is on features that the network does not have.

    Example:
        >>> found = extract(network, source.train)  # doctest: +SKIP
        >>> probe = fit("lda", found.joined, found.labels, 5)  # doctest: +SKIP
        >>> model = probed_network(network, probe)  # doctest: +SKIP
    """
    hidden, output = (
        (probe.hidden, probe.output) if isinstance(probe, Mlp) else (None, probe)
    )
    size = probe.size
    joins = pooled_tensor(network).shape[-1] != size
    model = features_model(network, patches=joins)
    if model.output_shape[-1] != size:
        raise ValueError(
            f"The probe is on {size} features, which the model {network.name} does not "
            "have: pass the network that they are of."
        )
    description = getattr(model, "description", None)
    features = model.outputs[0]
    if hidden is not None:
        layer = keras.layers.Dense(len(hidden.bias), activation="relu", name="hidden")
        features = _filled(layer, features, hidden)
        # Networks of released names have no such layer.
        description = None
    head = ClassificationHead(
        len(output.bias),
        class_names=class_names,
        preparation=preparation or preparation_of(network),
        bits=bits_of(network),
        name="head",
    )
    logits = _filled(head, features, output)
    return Model(model.inputs[0], logits, name=network.name, description=description)


def _filled(layer, inputs, linear):
    """Returns what a dense layer with the numbers of a linear classifier gives."""
    outputs = layer(inputs)
    layer.set_weights([linear.kernel, linear.bias])
    return outputs

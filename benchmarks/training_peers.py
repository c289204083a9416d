"""What a training step is compared with: a row and a job a peer.

Every job takes `sizes`, `image_size` and `parameters` as in `benchmarks.peer_models`,
and `batch`. All take a step of SGD with momentum on softmax cross-entropy, in float32.
"""

from benchmarks import peer_models
from benchmarks.ours import random_images, random_labels
from benchmarks.selection import Choice

RATE, MOMENTUM = 1e-3, 0.9

_HUB = ("tensorflow", "keras_hub")

PEERS = {
    "keras-hub": Choice("keras-hub", "benchmarks.training_peers:keras_hub", _HUB),
    "keras-hub-xla": Choice(
        "keras-hub xla", "benchmarks.training_peers:keras_hub_xla", _HUB
    ),
    "vit-keras": Choice(
        "vit-keras", "benchmarks.training_peers:vit_keras", ("tensorflow", "vit_keras")
    ),
    "torch": Choice("timm", "benchmarks.training_peers:timm", ("torch", "timm")),
}


def keras_hub(sizes, image_size, parameters, batch):
    """`train_on_batch` of its model."""
    model = peer_models.keras_hub(sizes, image_size, parameters)
    return _keras_step(model, batch, image_size, jit_compile=False)


def keras_hub_xla(sizes, image_size, parameters, batch):
    """The same, compiled by XLA."""
    model = peer_models.keras_hub(sizes, image_size, parameters)
    return _keras_step(model, batch, image_size, jit_compile=True)


def vit_keras(sizes, image_size, parameters, batch):
    """`train_on_batch` of its model."""
    model = peer_models.vit_keras(sizes, image_size, parameters)
    return _keras_step(model, batch, image_size, jit_compile=False)


def _keras_step(model, batch, image_size, jit_compile):
    import keras

    model.compile(
        optimizer=keras.optimizers.SGD(RATE, momentum=MOMENTUM),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    images, labels = random_images(batch, image_size), random_labels(batch)
    return lambda: model.train_on_batch(images, labels)


def timm(sizes, image_size, parameters, batch):
    """An eager step of its model."""
    import torch

    model = peer_models.timm(sizes, image_size, parameters).train()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM)
    images = torch.from_numpy(random_images(batch, image_size))
    images = images.permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(random_labels(batch)).long()

    def step():
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step

"""Builds a large model and its optimizer on a mesh; prints what a device needs.

python held_bytes.py MODEL MESH

MODEL is a variant or `giant`, of a billion parameters; MESH is `one` for one device.
Prints JSON: `parameters`, the `bytes` of weights and momentum, those that each device
`held`, and of the largest device those that XLA plans for a `step` of 8 images.
"""

import json
import math
import sys

import numpy as np
import tensorflow as tf

import keras_vit
from train.engine import devices
from train.engine.optimizers import MomentumSGD
from zoo.network import NETWORKS

# ViT-g of Scaling Vision Transformers, arXiv 2106.04560, table 2.
GIANT = keras_vit.ViTConfig(
    hidden_size=1408, num_layers=40, num_heads=16, mlp_dim=6144, patch_size=14
)
IMAGES = np.zeros((8, 224, 224, 3), "float32"), np.zeros(8, "int32")


def main(name, mesh):
    given = devices.start(*(["one"] if mesh == "one" else ["sharded", mesh]))
    with given.strategy.scope():
        model = keras_vit.VisionTransformer(
            NETWORKS.get(name, GIANT), image_size=224, classes=1000, remat=True
        )
        trainer = given.trainer(model, MomentumSGD(0.1))
    values = [variable.value for variable in trainer.variables]
    held = {}
    for value in values:
        for shard in value.addressable_shards:
            device = str(shard.device)
            held[device] = held.get(device, 0) + shard.data.nbytes
    images = tf.data.Dataset.from_tensor_slices(IMAGES)
    [batch] = given.batches(lambda share: images.batch(8 // share.devices))
    lowered = trainer._compiled_step.lower(trainer._state(), *batch)
    planned = lowered.compile().memory_analysis()
    counts = [math.prod(variable.shape) for variable in model.trainable_variables]
    found = {
        "parameters": sum(counts),
        "bytes": sum(value.nbytes for value in values),
        "held": held,
        "step": planned.argument_size_in_bytes + planned.temp_size_in_bytes,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Builds a large model and its optimizer on a mesh; prints what each device holds.

python held_bytes.py MODEL MESH

MODEL is a variant or `giant`, of a billion parameters. Prints JSON: `parameters`, the
`bytes` of weights and momentum, and those that each device `held`.
"""

import json
import math
import sys

import keras_vit
from train.engine import devices
from train.engine.optimizers import MomentumSGD
from zoo.network import NETWORKS

# ViT-g of Scaling Vision Transformers, arXiv 2106.04560, table 2.
GIANT = keras_vit.ViTConfig(
    hidden_size=1408, num_layers=40, num_heads=16, mlp_dim=6144, patch_size=14
)


def main(name, mesh):
    config = NETWORKS.get(name, GIANT)
    with devices.start("sharded", mesh).strategy.scope():
        model = keras_vit.VisionTransformer(config, image_size=224, classes=1000)
        optimizer = MomentumSGD(0.1)
        optimizer.build(model.trainable_variables)
    values = [variable.value for variable in model.variables + optimizer.variables]
    held = {}
    for value in values:
        for shard in value.addressable_shards:
            device = str(shard.device)
            held[device] = held.get(device, 0) + shard.data.nbytes
    counts = [math.prod(variable.shape) for variable in model.trainable_variables]
    size = sum(value.nbytes for value in values)
    print(json.dumps({"parameters": sum(counts), "bytes": size, "held": held}))


if __name__ == "__main__":
    main(*sys.argv[1:])

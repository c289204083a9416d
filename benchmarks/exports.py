"""Models as files for runtimes that read them, written by a process of its own.

The runtime's worker would else show the memory of the library that wrote the file.
"""

import json
import pathlib
import subprocess
import sys


def run(exporter, **settings):
    """Runs an exporter of this module in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.exports", exporter, json.dumps(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout)
    if done.returncode:
        last = done.stdout.strip().splitlines()[-1:]
        raise RuntimeError(f"The export failed: {''.join(last)}")


def timm_file(path, architecture, image_size):
    """Writes a random model of timm as it is uploaded to a hub."""
    import timm
    from timm.models import save_for_hf

    arguments = {"img_size": image_size, "num_classes": 0}
    model = timm.create_model(architecture, **arguments)
    save_for_hf(model, path, model_args=arguments, safe_serialization=True)


def timm_onnx(path, sizes, image_size, parameters, batch, family=None):
    """Writes timm's model as ONNX."""
    import torch

    from benchmarks import peer_models

    model = peer_models.timm(sizes, image_size, parameters, family).eval()
    images = torch.zeros(batch, 3, image_size, image_size)
    torch.onnx.export(model, (images,), path, dynamo=True)


def litert(path, sizes, image_size, batch, dynamic_range, family=None):
    """Writes our model as TFLite."""
    import tensorflow as tf

    from benchmarks.ours import build
    from keras_vit.runtimes.litert import tflite

    model = build(sizes, image_size, family)
    images = tf.TensorSpec((batch, image_size, image_size, 3), "float32")

    def call(images):
        return model(images, training=False)

    precision = "dynamic" if dynamic_range else "float32"
    pathlib.Path(path).write_bytes(tflite(model, call, images, precision))


if __name__ == "__main__":
    exporter, settings = sys.argv[1:]
    jobs = {"litert": litert, "timm_file": timm_file, "timm_onnx": timm_onnx}
    jobs[exporter](**json.loads(settings))

"""What inference is compared with: a row and a job a peer.

Every job takes `sizes`, `image_size` and `parameters` as in `benchmarks.peer_models`,
and `batch`.
"""

import os
import pathlib
import tempfile

from benchmarks import exports, peer_models
from benchmarks.ours import as_graph, random_images
from benchmarks.selection import Choice

_HUB = ("tensorflow", "keras_hub")
_TIMM = ("torch", "timm")

PEERS = {
    "keras-hub": Choice("keras-hub", "benchmarks.peers:keras_hub", _HUB),
    "keras-hub-predict": Choice(
        "keras-hub predict", "benchmarks.peers:keras_hub_predict", _HUB
    ),
    "keras-hub-jax": Choice(
        "keras-hub jax", "benchmarks.peers:keras_hub_jax", ("jax", "keras_hub"), "jax"
    ),
    "vit-keras": Choice(
        "vit-keras", "benchmarks.peers:vit_keras", ("tensorflow", "vit_keras")
    ),
    "torch": Choice("timm", "benchmarks.peers:timm", _TIMM),
    "torch-compile": Choice("timm compiled", "benchmarks.peers:timm_compiled", _TIMM),
    "transformers": Choice(
        "transformers", "benchmarks.peers:transformers", ("torch", "transformers")
    ),
    "onnxruntime": Choice(
        "onnxruntime (timm)", "benchmarks.peers:onnxruntime", ("onnxruntime",)
    ),
    "litert": Choice("LiteRT (ours)", "benchmarks.peers:litert", ("ai_edge_litert",)),
    "litert-int8": Choice(
        "LiteRT int8 (ours)", "benchmarks.peers:litert_int8", ("ai_edge_litert",)
    ),
}


def keras_hub(sizes, image_size, parameters, batch):
    """Its model in a `tf.function`."""
    model = peer_models.keras_hub(sizes, image_size, parameters)
    return as_graph(model, random_images(batch, image_size))


def keras_hub_predict(sizes, image_size, parameters, batch):
    """Its model's `predict`."""
    model = peer_models.keras_hub(sizes, image_size, parameters)
    images = random_images(batch, image_size)
    return lambda: model.predict(images, batch_size=batch, verbose=0)


def keras_hub_jax(sizes, image_size, parameters, batch):
    """Its model in `jax.jit`."""
    import jax

    model = peer_models.keras_hub(sizes, image_size, parameters)

    @jax.jit
    def logits(trainable, non_trainable, images):
        return model.stateless_call(trainable, non_trainable, images, training=False)[0]

    trainable = [variable.value for variable in model.trainable_variables]
    non_trainable = [variable.value for variable in model.non_trainable_variables]
    images = jax.numpy.asarray(random_images(batch, image_size))
    return lambda: logits(trainable, non_trainable, images).block_until_ready()


def vit_keras(sizes, image_size, parameters, batch):
    """Its model in a `tf.function`."""
    model = peer_models.vit_keras(sizes, image_size, parameters)
    return as_graph(model, random_images(batch, image_size))


def timm(sizes, image_size, parameters, batch):
    """Its model, eager."""
    return _torch_step(
        peer_models.timm(sizes, image_size, parameters), batch, image_size
    )


def timm_compiled(sizes, image_size, parameters, batch):
    """Its model in `torch.compile`."""
    import torch

    model = peer_models.timm(sizes, image_size, parameters).eval()
    return _torch_step(torch.compile(model), batch, image_size)


def transformers(sizes, image_size, parameters, batch):
    """Its model, eager, with fused attention."""
    return _torch_step(
        peer_models.transformers(sizes, image_size, parameters), batch, image_size
    )


def _torch_step(model, batch, image_size):
    import torch

    model.eval()
    images = torch.from_numpy(random_images(batch, image_size))
    images = images.permute(0, 3, 1, 2).contiguous()

    def step():
        with torch.inference_mode():
            return model(images)

    return step


def onnxruntime(sizes, image_size, parameters, batch):
    """The model of timm, exported once."""
    import onnxruntime

    path = exports.onnx(
        sizes=sizes, image_size=image_size, parameters=parameters, batch=batch
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    [images] = session.get_inputs()
    feed = {images.name: random_images(batch, image_size).transpose(0, 3, 1, 2).copy()}
    return lambda: session.run(None, feed)


def litert(sizes, image_size, parameters, batch):
    """Our model in float32."""
    return _litert_step(sizes, image_size, batch, dynamic_range=False)


def litert_int8(sizes, image_size, parameters, batch):
    """Our model with int8 weights and dynamic ranges."""
    return _litert_step(sizes, image_size, batch, dynamic_range=True)


def _litert_step(sizes, image_size, batch, dynamic_range):
    from ai_edge_litert.interpreter import Interpreter

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.tflite"
        exports.run(
            "litert",
            path=str(path),
            sizes=sizes,
            image_size=image_size,
            batch=batch,
            dynamic_range=dynamic_range,
        )
        interpreter = Interpreter(
            model_content=path.read_bytes(), num_threads=os.cpu_count()
        )
    interpreter.allocate_tensors()
    [images], [logits] = (
        interpreter.get_input_details(),
        interpreter.get_output_details(),
    )
    batch_of_images = random_images(batch, image_size)

    def step():
        interpreter.set_tensor(images["index"], batch_of_images)
        interpreter.invoke()
        return interpreter.get_tensor(logits["index"])

    return step

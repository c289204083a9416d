"""What inference and training are compared with: a row and a job for each peer.

Every job takes `batch`, and the rest as functions of `benchmarks.peer_models` do.
"""

import os
import pathlib
import tempfile

from benchmarks import exports, peer_models
from benchmarks.contest import row
from benchmarks.ours import as_graph, random_images, random_labels

_HUB = ("tensorflow", "keras_hub")
_TIMM = ("torch", "timm")

PEERS = {}
# A step of SGD with momentum on softmax cross-entropy, in float32 unless named.
TRAINING = {}
RATE, MOMENTUM = 1e-3, 0.9


@row(PEERS, "keras-hub", "keras-hub", _HUB)
def keras_hub(sizes, image_size, parameters, batch, family=None):
    """Its model in a `tf.function`."""
    model = peer_models.keras_hub(sizes, image_size, parameters, family)
    return as_graph(model, random_images(batch, image_size))


@row(PEERS, "keras-hub-jax", "keras-hub jax", ("jax", "keras_hub"), "jax")
def keras_hub_jax(sizes, image_size, parameters, batch, family=None):
    """Its model in `jax.jit`."""
    import jax

    model = peer_models.keras_hub(sizes, image_size, parameters, family)

    @jax.jit
    def logits(trainable, non_trainable, images):
        return model.stateless_call(trainable, non_trainable, images, training=False)[0]

    trainable = [variable.value for variable in model.trainable_variables]
    non_trainable = [variable.value for variable in model.non_trainable_variables]
    images = jax.numpy.asarray(random_images(batch, image_size))
    return lambda: logits(trainable, non_trainable, images).block_until_ready()


@row(PEERS, "vit-keras", "vit-keras", ("tensorflow", "vit_keras"))
def vit_keras(sizes, image_size, parameters, batch):
    """Its model in a `tf.function`."""
    model = peer_models.vit_keras(sizes, image_size, parameters)
    return as_graph(model, random_images(batch, image_size))


@row(PEERS, "torch", "timm", _TIMM)
def timm(sizes, image_size, parameters, batch, family=None):
    """Its model, eager."""
    return _torch_step(
        peer_models.timm(sizes, image_size, parameters, family), batch, image_size
    )


@row(PEERS, "torch-compile", "timm compiled", _TIMM)
def timm_compiled(sizes, image_size, parameters, batch, family=None):
    """Its model in `torch.compile`."""
    import torch

    model = peer_models.timm(sizes, image_size, parameters, family).eval()
    return _torch_step(torch.compile(model), batch, image_size)


@row(PEERS, "transformers", "transformers", ("torch", "transformers"))
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


@row(PEERS, "onnxruntime", "onnxruntime (timm)", ("onnxruntime",))
def onnxruntime(sizes, image_size, parameters, batch, family=None):
    """The model of timm, exported."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        settings = {"sizes": sizes, "image_size": image_size, "batch": batch}
        settings["family"] = family
        exports.run("timm_onnx", path=path, parameters=parameters, **settings)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    [images] = session.get_inputs()
    feed = {images.name: random_images(batch, image_size).transpose(0, 3, 1, 2).copy()}
    return lambda: session.run(None, feed)


@row(PEERS, "litert", "LiteRT (ours)", ("ai_edge_litert",))
def litert(sizes, image_size, parameters, batch, family=None):
    """Our model in float32."""
    return _litert_step(sizes, image_size, batch, family, dynamic_range=False)


@row(PEERS, "litert-int8", "LiteRT int8 (ours)", ("ai_edge_litert",))
def litert_int8(sizes, image_size, parameters, batch, family=None):
    """Our model with int8 weights and dynamic ranges."""
    return _litert_step(sizes, image_size, batch, family, dynamic_range=True)


def _litert_step(sizes, image_size, batch, family, dynamic_range):
    from ai_edge_litert.interpreter import Interpreter

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.tflite"
        settings = {"sizes": sizes, "image_size": image_size, "batch": batch}
        settings["family"] = family
        exports.run("litert", path=str(path), dynamic_range=dynamic_range, **settings)
        interpreter = Interpreter(
            model_content=path.read_bytes(), num_threads=os.cpu_count()
        )
    interpreter.allocate_tensors()
    [images] = interpreter.get_input_details()
    [logits] = interpreter.get_output_details()
    batch_of_images = random_images(batch, image_size)

    def step():
        interpreter.set_tensor(images["index"], batch_of_images)
        interpreter.invoke()
        return interpreter.get_tensor(logits["index"])

    return step


@row(TRAINING, "keras-hub", "keras-hub", _HUB)
def keras_hub_training(sizes, image_size, parameters, batch, family=None):
    """`train_on_batch` of its model."""
    model = peer_models.keras_hub(sizes, image_size, parameters, family)
    return _keras_step(model, batch, image_size, jit_compile=False)


@row(TRAINING, "keras-hub-xla", "keras-hub xla", _HUB)
def keras_hub_xla_training(sizes, image_size, parameters, batch, family=None):
    """The same, compiled by XLA."""
    model = peer_models.keras_hub(sizes, image_size, parameters, family)
    return _keras_step(model, batch, image_size, jit_compile=True)


@row(TRAINING, "keras-hub-bfloat16", "keras-hub bfloat16", _HUB)
def keras_hub_bfloat16_training(**settings):
    """`train_on_batch` of its model, computed in bfloat16."""
    import keras

    # Before its layers are made, in a process of its own.
    keras.config.set_dtype_policy("mixed_bfloat16")
    return keras_hub_training(**settings)


def _keras_step(model, batch, image_size, jit_compile):
    import keras

    model.compile(
        optimizer=keras.optimizers.SGD(RATE, momentum=MOMENTUM),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    images, labels = random_images(batch, image_size), random_labels(batch)
    return lambda: model.train_on_batch(images, labels)


@row(TRAINING, "torch", "timm", ("torch", "timm"))
def timm_training(sizes, image_size, parameters, batch, family=None):
    """An eager step of its model."""
    import torch

    model = peer_models.timm(sizes, image_size, parameters, family).train()
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

"""What is measured of keras_vit."""

from benchmarks.contest import Contender, row

CLASSES = 1000
# Outputs to time of a model of another family: all tokens after the last norm, one
# vector, or the head's.
OUTPUTS = {
    "tokens": {"include_top": False, "pooling": None},
    "features": {"include_top": False},
    "logits": {"new_head": True},
}

INFERENCE = {}

# Steps as `train.finetune` computes them.
TRAINING = {}
_TRAINER = ("tensorflow", "keras_vit", "train.engine.tensorflow_backend")


def random_images(batch, image_size):
    """Returns float32 images in [-1, 1] as a NumPy array."""
    import numpy as np

    shape = (batch, image_size, image_size, 3)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def random_labels(batch):
    """Returns int32 labels as a NumPy array."""
    import numpy as np

    return np.random.default_rng(1).integers(0, CLASSES, batch, "int32")


def build(sizes, image_size, family=None, **arguments):
    """Returns our model with random weights, those of a family's file if it is one."""
    import keras_vit

    if family is not None:
        arguments |= OUTPUTS[family["output"]]
        if family["output"] == "logits":
            arguments["classes"] = CLASSES
        return keras_vit.load_model(family["file"], **arguments)
    import numpy as np

    config = keras_vit.ViTConfig(**sizes)
    model = keras_vit.VisionTransformer(
        config, image_size=image_size, classes=CLASSES, **arguments
    )
    # A converter leaves out what adds zeros or multiplies by ones.
    random = np.random.default_rng(2)
    for weight in model.weights:
        if len(weight.shape) == 1:
            weight.assign(weight + random.normal(0, 0.02, weight.shape))
    return model


def as_graph(model, images):
    """Returns the step of a Keras model as a bare TensorFlow graph."""
    import tensorflow as tf

    images = tf.constant(images)

    @tf.function(input_signature=[tf.TensorSpec(images.shape, images.dtype)])
    def logits(images):
        return model(images, training=False)

    return lambda: logits(images).numpy()


@row(INFERENCE, "graph", "keras_vit", ("tensorflow", "keras_vit"))
def graph(sizes, image_size, batch, family=None):
    """The model in a `tf.function`."""
    model = build(sizes, image_size, family)
    return as_graph(model, random_images(batch, image_size))


@row(INFERENCE, "whole-scores", "keras_vit whole scores", ("tensorflow", "keras_vit"))
def graph_of_whole_scores(**settings):
    """`graph` without attention in blocks, which long sequences have."""
    return _of_whole_scores(graph(**settings))


def _of_whole_scores(step):
    from keras_vit.layers.forward_pass import running

    def whole():
        # Only the first step reads it, which traces the graph.
        with running(whole_scores=True):
            return step()

    return whole


@row(INFERENCE, "torch", "keras_vit torch", ("torch", "keras_vit"), "torch")
@row(INFERENCE, "jax", "keras_vit jax", ("jax", "keras_vit"), "jax")
@row(INFERENCE, "predictor", "keras_vit predictor", ("tensorflow", "keras_vit"))
def predictor(sizes, image_size, batch, family=None, any_size=False, **arguments):
    """`keras_vit.Predictor`, on any backend; `arguments` are its own."""
    arguments = {"engine": "keras"} | arguments
    import keras_vit

    model = build(sizes, image_size, family)
    if any_size:
        model = keras_vit.at_image_size(model, (None, None))
    predict = keras_vit.Predictor(model, batch_size=batch, **arguments)
    images = random_images(batch, image_size)
    return lambda: predict(images)


@row(INFERENCE, "xla", "keras_vit predictor, XLA", ("tensorflow", "keras_vit"))
def predictor_xla(sizes, image_size, batch, family=None):
    """`keras_vit.Predictor`, compiled by XLA on TensorFlow."""
    return predictor(sizes, image_size, batch, family, jit_compile=True)


@row(
    INFERENCE, "any-size", "keras_vit predictor, any size", ("tensorflow", "keras_vit")
)
def predictor_any_size(sizes, image_size, batch, family=None):
    """`keras_vit.Predictor` of a model for images of any size, at its own size."""
    return predictor(sizes, image_size, batch, family, any_size=True)


@row(INFERENCE, "keras-predict", "keras_vit keras predict", ("tensorflow", "keras_vit"))
def keras_predict(sizes, image_size, batch, family=None):
    """The model's own `predict`."""
    model = build(sizes, image_size, family)
    images = random_images(batch, image_size)
    return lambda: model.predict(images, batch_size=batch, verbose=0)


@row(TRAINING, "float32", "keras_vit", _TRAINER)
def training_step(
    sizes, image_size, batch, micro_batches, remat, family=None, dtype="float32"
):
    """A step of `TensorFlowTrainer`, as of `train.finetune` but for freed memory."""
    import tensorflow as tf

    from train.engine import tensorflow_backend
    from train.engine.optimizers import MomentumSGD
    from train.engine.tensorflow_backend import TensorFlowTrainer

    tensorflow_backend.start("one")
    trainer = TensorFlowTrainer(
        build(sizes, image_size, family, remat=remat, dtype=dtype),
        MomentumSGD(1e-3),
        micro_batches=micro_batches,
    )
    images = tf.constant(random_images(batch, image_size))
    labels = tf.constant(random_labels(batch))
    return lambda: float(trainer.step(images, labels)["loss"])


@row(TRAINING, "bfloat16", "keras_vit bfloat16", _TRAINER)
def bfloat16_training_step(**settings):
    """The same, computed in bfloat16."""
    return training_step(**settings, dtype="mixed_bfloat16")


@row(TRAINING, "kept-memory", "keras_vit kept memory", _TRAINER)
def kept_memory_training_step(**settings):
    """The same where memory that was freed is kept, as in our commands."""
    from train.common import freed_memory

    if not freed_memory.keep():
        raise RuntimeError("Memory is not kept here, see train.common.freed_memory.")
    return training_step(**settings)


@row(TRAINING, "whole-scores", "keras_vit whole scores", _TRAINER)
def whole_scores_training_step(**settings):
    """The same without attention in blocks, which long sequences have."""
    return _of_whole_scores(training_step(**settings))


# `keras_vit.Predictor` in other runtimes and precisions.
for flag, package, arguments in (
    ("litert", "ai_edge_litert", {"engine": "litert"}),
    ("onnxruntime", "onnxruntime", {"engine": "onnxruntime"}),
    ("openvino", "openvino", {"engine": "openvino"}),
    ("bfloat16", "keras_vit", {"precision": "bfloat16"}),
    ("openvino-bfloat16", "openvino", {"engine": "openvino", "precision": "bfloat16"}),
    ("openvino-int8", "openvino", {"engine": "openvino", "precision": "int8"}),
    (
        "openvino-int8-bfloat16",
        "openvino",
        {"engine": "openvino_bfloat16", "precision": "int8"},
    ),
    ("litert-int8", "ai_edge_litert", {"engine": "litert", "precision": "int8"}),
):
    INFERENCE[flag] = Contender(
        f"keras_vit {flag}",
        "benchmarks.ours:predictor",
        ("tensorflow", "keras_vit", package),
        settings=arguments,
    )

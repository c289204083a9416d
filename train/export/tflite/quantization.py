"""Quantization of a TFLite file: which matrix products are computed in int8, and how.

Int8 throughout breaks a Vision Transformer (docs/export.md has figures and reasons).
Sums of the residual stream, layer norms, GELU, softmax and the products of attention
stay float32 here, and so does the output of the head. Products whose values span many
standard deviations get a scale per token at run time instead of a fixed one.
"""

import collections
import contextlib
import functools
import io
import os
import re
import warnings
from typing import NamedTuple

import numpy as np
from scipy.special import erfc

from zoo.store.progress import progress_bar

# A fixed scale is used where its 255 steps over the range of the values leave eight
# steps per standard deviation.
_MOST_DEVIATIONS = 32
# Leave room for uint8 logits beyond those of the calibration images.
_MARGIN = 1.5
# Images on which the effect of each int8 matrix on the logits is measured.
_PROBES = 8
# Share of the allowed disagreement that the estimate may use up, since it is rough.
_OF_THE_ALLOWED = 2 / 3

_INT8 = {
    "weight_tensor_config": {"num_bits": 8, "granularity": "CHANNELWISE"},
    "compute_precision": "INTEGER",
}
_VALUES = {"num_bits": 8, "symmetric": False}
# ai_edge_quantizer takes these settings for each kind of product, input and output.
_CONFIGURATIONS = {
    "dynamic": _INT8,
    "static": _INT8 | {"activation_tensor_config": _VALUES},
    "uint8": _INT8 | {"activation_tensor_config": _VALUES | {"dtype": "UINT"}},
    "float16": {
        "weight_tensor_config": {"num_bits": 16, "dtype": "FLOAT"},
        "compute_precision": "FLOAT",
        "explicit_dequantize": True,
    },
}


class Product(NamedTuple):
    """A product with a weight matrix, or a convolution, of a TFLite file.

    `name` is that of its output, `tensors` the numbers of its input and output by their
    names; `kind` is as `train.export.tflite.write_tflite` counts them.
    """

    name: str
    operation: str
    kind: str
    elements: int
    tensors: dict[str, int]


def products(content: bytes) -> list[Product]:
    """Returns the `Product`s of a TFLite file (bytes), in order of computation."""
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    [graph] = model.subgraphs
    types = flatbuffer_utils.schema_fb.TensorType
    halves = set()
    listed = []
    for operator in graph.operators:
        operation = flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex)
        inputs = [graph.tensors[number] for number in operator.inputs if number >= 0]
        if operation == "DEQUANTIZE" and inputs[0].type == types.FLOAT16:
            halves.add(operator.outputs[0])
        if operation not in ("FULLY_CONNECTED", "CONV_2D"):
            continue
        if inputs[1].type == types.INT8:
            kind = "static" if inputs[0].type == types.INT8 else "dynamic"
        else:
            kind = "float16" if operator.inputs[1] in halves else "float32"
        numbers = [int(operator.inputs[0]), int(operator.outputs[0])]
        names = [graph.tensors[number].name.decode() for number in numbers]
        tensors = dict(zip(names, numbers, strict=True))
        elements = int(np.prod(inputs[1].shape))
        listed.append(Product(names[1], operation, kind, elements, tensors))
    return listed


def quantize(
    content: bytes,
    images: np.ndarray,
    *,
    static: bool,
    min_agreement: float | None = None,
    uint8: bool = False,
) -> bytes:
    """Returns a float32 TFLite file with its matrices in int8.

    `images` are float32 (images, height, width, channels). With `static`, products have
    fixed scales where input and output span at most 32 standard deviations on the
    images, but for the last. With `uint8`, input and output have fixed scales too.

    With `min_agreement`, products stay in float16, first those that change the logits
    most for their size, until at most two thirds of the allowed share of images are
    estimated to change their most likely class. The estimate: each product alone in
    int8 changes the logits of eight images by so much, independently of the others; and
    a change is like noise that closes the gap between the two largest logits of the
    calibration images.
    """
    listed = products(content)
    answers, ranges = _observed(content, listed, images)
    kinds = {product.name: "dynamic" for product in listed}
    for product in listed[:-1] if static else ():
        ends = (ranges[name] for name in product.tensors)
        if all(high - low <= _MOST_DEVIATIONS * spread for low, high, spread in ends):
            kinds[product.name] = "static"
    quantized = functools.partial(_quantized, bytearray(content), listed, ranges)
    if min_agreement is not None:
        errors = {}
        # Measure the mean squared change of the logits by each product alone.
        for name in progress_bar(iterable=kinds, unit="matrix", desc="int8"):
            run = _Runner(quantized({name: kinds[name]}))
            changed = np.concatenate([run(image) for image in images[:_PROBES]])
            errors[name] = float(np.square(changed - answers[:_PROBES]).mean())
        kinds |= dict.fromkeys(_kept(listed, errors, answers, min_agreement), "float16")
    return quantized(kinds, answers if uint8 else None)


def _observed(content, listed, images):
    """Returns the logits, and the ranges of each product's input and output.

    A range is the least value, the largest, and the standard deviation over all images.
    """
    from ai_edge_litert.interpreter import OpResolverType

    # Delegates would keep the tensors to themselves.
    without = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    run = _Runner(
        content,
        experimental_op_resolver_type=without,
        experimental_preserve_all_tensors=True,
    )
    tensors = dict(pair for product in listed for pair in product.tensors.items())
    figures, answers = collections.defaultdict(list), []
    for image in progress_bar(iterable=images, unit="image", desc="calibration"):
        answers.append(run(image))
        for name, number in tensors.items():
            values = run.interpreter.get_tensor(number)
            square = np.square(values, dtype="float64").mean()
            figures[name].append((values.min(), values.max(), square))
    ranges = {}
    for name, rows in figures.items():
        least, most, squares = np.transpose(rows)
        spread = np.sqrt(squares.mean())
        ranges[name] = (min(least.min(), 0.0), max(most.max(), 0.0), spread)
    return np.concatenate(answers), ranges


def _kept(listed, errors, answers, min_agreement):
    """Returns the names of the products that stay in float16."""
    best = np.sort(answers, axis=1)[:, -2:]
    gaps = best[:, 1] - best[:, 0]
    # Begin with the largest change for the bytes that are saved.
    order = sorted(listed, key=lambda product: -errors[product.name] / product.elements)
    kept, error = [], sum(errors.values())
    for product in order:
        changed = 0.5 * erfc(gaps / (2.0 * np.sqrt(max(error, 1e-30)))).mean()
        if changed <= _OF_THE_ALLOWED * (1.0 - min_agreement):
            break
        kept.append(product.name)
        error -= errors[product.name]
    return kept


def _quantized(content, listed, ranges, kinds, answers=None):
    """Returns the bytes of a TFLite file with some of its products quantized.

    `kinds` are those of products by name, the others stay float32; `answers` the logits
    of the calibration images, for uint8 input and output.
    """
    from ai_edge_quantizer import quantizer

    # A scope is the name of an operation's output and a semicolon.
    places = [
        (f"^{re.escape(product.name)};$", product.operation, kinds[product.name])
        for product in listed
        if product.name in kinds
    ]
    limits = {name: (least, most) for name, (least, most, _) in ranges.items()}
    if answers is not None:
        places += [(".*", "INPUT", "uint8"), (".*", "OUTPUT", "uint8")]
        run = _Runner(content)
        least, most = min(answers.min(), 0.0), max(answers.max(), 0.0)
        limits[run.input["name"]] = (-1.0, 1.0)
        limits[run.output["name"]] = (_MARGIN * float(least), _MARGIN * float(most))
    recipe = [
        {
            "regex": scope,
            "operation": operation,
            "algorithm_key": "float_casting"
            if kind == "float16"
            else "min_max_uniform_quantize",
            "op_config": _CONFIGURATIONS[kind],
        }
        for scope, operation, kind in places
    ]
    statistics = {
        name: {"min": np.array(least), "max": np.array(most)}
        for name, (least, most) in limits.items()
    }
    work = quantizer.Quantizer(content, recipe)
    with _quiet():
        result = work.quantize(
            statistics if work.need_calibration else None,
            enable_progress_bar=False,
            enable_progress_report=False,
        )
    return bytes(result.quantized_model)


@contextlib.contextmanager
def _quiet():
    """Hides a progress bar, and the warning that keeping tensors is for debugging."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore", UserWarning)
        yield


class _Runner:
    """Runs a TFLite file with float32 input and output, one image at a time."""

    def __init__(self, content, **options):
        from ai_edge_litert.interpreter import Interpreter

        with _quiet():
            self.interpreter = Interpreter(
                model_content=bytes(content), num_threads=os.cpu_count(), **options
            )
        self.interpreter.allocate_tensors()
        [self.input] = self.interpreter.get_input_details()
        [self.output] = self.interpreter.get_output_details()

    def __call__(self, image):
        self.interpreter.set_tensor(self.input["index"], image[None])
        self.interpreter.invoke()
        return self.interpreter.get_tensor(self.output["index"])

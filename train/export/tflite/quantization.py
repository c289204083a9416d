"""Quantization of a TFLite file: which matrix products are computed in int8, and how.

Int8 throughout, as the converter's own full quantization makes it, breaks a Vision
Transformer (docs/export.md has the figures). Here:

- Sums of the residual stream, layer norms and GELU, whose values span many powers of
  two, stay float32; so do softmax and the products of attention, which have no weights
  and are slower in int8.
- So does the output of the head: a fixed range would cut off logits larger than those
  of the calibration images.
- The few MLPs in the middle that write one huge value into a token (in ViT-Ti/16 those
  of block 7: over 100 standard deviations) get a scale per token at run time: one fixed
  scale would leave little of the other values.
"""

import collections
import contextlib
import dataclasses
import io
import os
import re
import warnings

import numpy as np
from scipy.special import erfc

from train.common.progress import progress_bar

# A fixed scale is used where its 255 steps over the range of the values leave eight
# steps per standard deviation.
_MOST_DEVIATIONS = 32
# Room for uint8 logits beyond those of the calibration images.
_MARGIN = 1.5
# Images on which the effect of each int8 matrix on the logits is measured.
_PROBES = 8
# Share of the allowed disagreement that the estimate may use up, since it is rough.
_OF_THE_ALLOWED = 2 / 3


@dataclasses.dataclass(frozen=True)
class Product:
    """A product with a weight matrix, or a convolution, of a TFLite file.

    `name` and `input` are the names of its output and input tensor, `tensors` the
    numbers of input and output; `kind` is as `train.export.tflite.write_tflite` counts
    them.
    """

    name: str
    operation: str
    kind: str
    elements: int
    tensors: tuple[int, int]
    input: str


def products(content):
    """Returns the `Product`s of a TFLite file (bytes), in order of computation."""
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    [graph] = model.subgraphs
    types = flatbuffer_utils.schema_fb.TensorType
    halves = set()
    found = []
    for operator in graph.operators:
        operation = flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex)
        inputs = [graph.tensors[number] for number in operator.inputs if number >= 0]
        output = graph.tensors[operator.outputs[0]]
        if operation == "DEQUANTIZE" and inputs[0].type == types.FLOAT16:
            halves.add(operator.outputs[0])
        if operation not in ("FULLY_CONNECTED", "CONV_2D"):
            continue
        if inputs[1].type == types.INT8:
            kind = "static" if inputs[0].type == types.INT8 else "dynamic"
        else:
            kind = "float16" if operator.inputs[1] in halves else "float32"
        found.append(
            Product(
                name=output.name.decode(),
                operation=operation,
                kind=kind,
                elements=int(np.prod(inputs[1].shape)),
                tensors=(int(operator.inputs[0]), int(operator.outputs[0])),
                input=inputs[0].name.decode(),
            )
        )
    return found


def quantize(content, images, *, static, min_agreement=None, uint8=False):
    """Returns a float32 TFLite file with its matrices in int8.

    A product is static where its input and output span at most 32 standard deviations
    on the images, and it is not the last; otherwise it is dynamic.

    With `min_agreement`, products stay in float16, first those that change the logits
    most for their size, until at most two thirds of the allowed share of images are
    estimated to change their most likely class. The estimate: each product alone in
    int8 changes the logits of eight images by so much, independently of the others; and
    a change is like noise that closes the gap between the two largest logits of the
    calibration images.

    `images` are float32 (images, height, width, channels). `static` allows fixed
    scales; with `uint8`, the input and the output are uint8.
    """
    known = products(content)
    ranges, answers = _observed(content, known, images)
    kinds = {product.name: "dynamic" for product in known}
    if static:
        for product in known[:-1]:
            if all(ranges[name].is_even for name in (product.input, product.name)):
                kinds[product.name] = "static"
    quantizer = _Quantizer(content, known, ranges)
    if min_agreement is not None:
        errors = _errors(quantizer, kinds, images[:_PROBES], answers[:_PROBES])
        kinds |= dict.fromkeys(_kept(known, errors, answers, min_agreement), "float16")
    return quantizer.quantized(kinds, answers if uint8 else None)


@dataclasses.dataclass
class _Range:
    """Range and spread of a tensor's values over all images."""

    least: float = 0.0
    most: float = 0.0
    squares: float = 0.0
    count: int = 0

    def add(self, values):
        self.least = min(self.least, float(values.min()))
        self.most = max(self.most, float(values.max()))
        self.squares += float(np.square(values, dtype="float64").sum())
        self.count += values.size

    @property
    def is_even(self):
        deviation = np.sqrt(self.squares / self.count)
        return self.most - self.least <= _MOST_DEVIATIONS * deviation


def _limits(least, most):
    """Returns a range as the quantizer takes it."""
    return {"min": np.array(least), "max": np.array(most)}


def _observed(content, known, images):
    """Returns the `_Range` of each product's input and output, and the logits."""
    from ai_edge_litert.interpreter import OpResolverType

    # Delegates would keep the tensors to themselves.
    without = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    run = _Runner(
        content,
        experimental_op_resolver_type=without,
        experimental_preserve_all_tensors=True,
    )
    tensors = {
        tensor
        for product in known
        for tensor in zip((product.input, product.name), product.tensors, strict=True)
    }
    ranges = collections.defaultdict(_Range)
    answers = []
    for image in progress_bar(iterable=images, unit="image", desc="calibration"):
        answers.append(run(image))
        for name, number in tensors:
            ranges[name].add(run.interpreter.get_tensor(number))
    return ranges, np.concatenate(answers)


def _errors(quantizer, kinds, images, answers):
    """Returns the mean squared change of the logits by each product alone."""
    errors = {}
    for name in progress_bar(iterable=kinds, unit="matrix", desc="int8"):
        run = _Runner(quantizer.quantized({name: kinds[name]}))
        changed = np.concatenate([run(image) for image in images])
        errors[name] = float(np.square(changed - answers).mean())
    return errors


def _kept(known, errors, answers, min_agreement):
    """Returns the names of the products that stay in float16."""
    best = np.sort(answers, axis=1)[:, -2:]
    gaps = best[:, 1] - best[:, 0]
    # First those with the largest change for the bytes they save.
    order = sorted(known, key=lambda product: -errors[product.name] / product.elements)
    kept, error = [], sum(errors.values())
    for product in order:
        changed = 0.5 * erfc(gaps / (2.0 * np.sqrt(max(error, 1e-30)))).mean()
        if changed <= _OF_THE_ALLOWED * (1.0 - min_agreement):
            break
        kept.append(product.name)
        error -= errors[product.name]
    return kept


class _Quantizer:
    """Writes a TFLite file with chosen products quantized."""

    def __init__(self, content, known, ranges):
        self.content = bytearray(content)
        self.operations = {product.name: product.operation for product in known}
        self.statistics = {
            name: _limits(values.least, values.most) for name, values in ranges.items()
        }

    def quantized(self, kinds, answers=None):
        """Returns the bytes of a file.

        `kinds` are those of products by name, the others stay float32; `answers` the
        logits of the calibration images, for uint8 input and output.
        """
        from ai_edge_quantizer import quantizer

        work = quantizer.Quantizer(self.content)
        for name, kind in kinds.items():
            # A scope is the name of an operation's output and a semicolon.
            place = (f"^{re.escape(name)};$", self.operations[name])
            if kind == "static":
                work.add_static_config(*place, 8, 8)
            elif kind == "dynamic":
                work.add_dynamic_config(*place, 8)
            else:
                work.update_quantization_recipe(*place, *_float16())
        statistics = dict(self.statistics)
        if answers is not None:
            run = _Runner(self.content)
            least, most = (
                _MARGIN * float(end) for end in (answers.min(), answers.max())
            )
            statistics[run.input["name"]] = _limits(-1.0, 1)
            statistics[run.output["name"]] = _limits(min(least, 0.0), max(most, 0.0))
            for end in ("INPUT", "OUTPUT"):
                work.update_quantization_recipe(".*", end, _uint8())
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


def _float16():
    """Returns the recipe for weights in float16, computed in float32."""
    from ai_edge_quantizer import qtyping

    weights = qtyping.TensorQuantizationConfig(
        num_bits=16, dtype=qtyping.TensorDataType.FLOAT
    )
    config = qtyping.OpQuantizationConfig(
        weight_tensor_config=weights,
        compute_precision=qtyping.ComputePrecision.FLOAT,
        explicit_dequantize=True,
    )
    return config, "float_casting"


def _uint8():
    """Returns the recipe for an input or output in uint8."""
    from ai_edge_quantizer import qtyping

    return qtyping.OpQuantizationConfig(
        activation_tensor_config=qtyping.TensorQuantizationConfig(
            num_bits=8, symmetric=False, dtype=qtyping.TensorDataType.UINT
        ),
        weight_tensor_config=qtyping.TensorQuantizationConfig(
            num_bits=8, granularity=qtyping.QuantGranularity.CHANNELWISE
        ),
        compute_precision=qtyping.ComputePrecision.INTEGER,
    )


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

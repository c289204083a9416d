"""Which matrix products of a TFLite file are computed in int8, and how.

What breaks a Vision Transformer whose every operation is int8, as the converter's own
full quantisation makes it (docs/export.md has the figures):

- The sums of the residual stream, layer norms and GELU, whose values span many powers
  of two. They stay float32; and softmax and the products of attention, which have no
  weights, since int8 is slower there.
- The head, whose fixed range would cut off the logits that are larger than those of
  the calibration images. What comes out of it stays float32.
- A few perceptrons in the middle that write one huge value into a token (in ViT-Ti/16
  those of block 7: over 100 standard deviations). With one fixed scale little else
  would be left of the tensor; they get a scale for every token when they run.
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
from train.export.tflite.products import products

# A fixed scale is used where 255 steps of it over the range of the values leave eight
# to a standard deviation.
_MOST_DEVIATIONS = 32
# More than the images of the calibration have, for logits as uint8.
_MARGIN = 1.5
# Images that tell how much a matrix in int8 changes the logits.
_PROBES = 8
# An estimate without any room would be missed by every other model.
_OF_THE_ALLOWED = 2 / 3


def quantized(content, images, *, static, min_agreement=None, uint8=False):
    """Returns a float32 TFLite file with its matrices in int8.

    A product is static where its inputs and outputs span no more than 32 standard
    deviations on the images and it is not the last; or else dynamic.

    With `min_agreement`, products are kept in float16, first those that change the
    logits most for their size, until the estimate for the rest is that no more than
    two thirds of the images allowed change their best class. The estimate: each product
    alone in int8 changes the logits of eight images by so much, independently of the
    others; and a change is like noise that closes the gap between the two largest
    logits of the calibration images.

    Args:
        content: bytes of the file, of one signature.
        images: float32 (images, height, width, channels), what the signature takes.
        static: bool, whether fixed scales are used where they can be.
        min_agreement: None, or float in [0, 1].
        uint8: bool, whether images go in and logits come out as uint8.

    Returns:
        Bytes of the new file.
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
    """Of the values of a tensor, over all images."""

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

    def statistics(self):
        return {"min": np.array(self.least), "max": np.array(self.most)}


def _observed(content, known, images):
    """Returns the range of what goes in and out of each product, and the answers."""
    from ai_edge_litert.interpreter import OpResolverType

    # Delegates would keep the tensors to themselves.
    without = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    run = _Runner(
        content,
        experimental_op_resolver_type=without,
        experimental_preserve_all_tensors=True,
    )
    ranges = collections.defaultdict(_Range)
    answers = []
    for image in progress_bar(iterable=images, unit="image", desc="calibration"):
        answers.append(run(image))
        for name, number in {
            (tensor, number)
            for product in known
            for tensor, number in zip(
                (product.input, product.name), product.tensors, strict=True
            )
        }:
            ranges[name].add(run.interpreter.get_tensor(number))
    return ranges, np.concatenate(answers)


def _errors(quantizer, kinds, images, answers):
    """Returns how much each product alone changes the answers: the mean square."""
    errors = {}
    for name in progress_bar(iterable=kinds, unit="matrix", desc="int8"):
        run = _Runner(quantizer.quantized({name: kinds[name]}))
        changed = np.concatenate([run(image) for image in images])
        errors[name] = float(np.square(changed - answers).mean())
    return errors


def _kept(known, errors, answers, min_agreement):
    """Returns the names of the products that stay float16."""
    best = np.sort(answers, axis=1)[:, -2:]
    gaps = best[:, 1] - best[:, 0]
    # The first to go are those that change most for the bytes they save.
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
    """Makes files in which products are computed in one way or another."""

    def __init__(self, content, known, ranges):
        self.content = bytearray(content)
        self.operations = {product.name: product.operation for product in known}
        self.statistics = {name: values.statistics() for name, values in ranges.items()}

    def quantized(self, kinds, answers=None):
        """Returns the bytes of a file.

        Args:
            kinds: dict of names of products and how each is computed; the others stay
                float32.
            answers: what came out, for uint8 in and out; None for float32.
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
            statistics[run.input["name"]] = {"min": np.array(-1.0), "max": np.array(1)}
            least, most = (
                _MARGIN * float(end) for end in (answers.min(), answers.max())
            )
            statistics[run.output["name"]] = {
                "min": np.array(min(least, 0.0)),
                "max": np.array(max(most, 0.0)),
            }
            for end in ("INPUT", "OUTPUT"):
                work.update_quantization_recipe(".*", end, _uint8())
        with _without_debugging_notices():
            result = work.quantize(
                statistics if work.need_calibration else None,
                enable_progress_bar=False,
                enable_progress_report=False,
            )
        return bytes(result.quantized_model)


@contextlib.contextmanager
def _without_debugging_notices():
    """Hides a progress bar, and that to keep all tensors is for debugging."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore", UserWarning)
        yield


def _float16():
    """Returns what says: weights in float16, computed in float32."""
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
    """Returns what says: values in uint8."""
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
    """Answers one image at a time by a TFLite file of float32 in and out."""

    def __init__(self, content, **options):
        from ai_edge_litert.interpreter import Interpreter

        with _without_debugging_notices():
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

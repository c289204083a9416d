"""The packages that exports need besides TensorFlow."""

import functools

from train.common import packages

LITERT = ("ai_edge_litert", "ai_edge_quantizer", "flatbuffers")
ONNX = ("onnx", "onnxruntime")
need = functools.partial(packages.need, extra="export")

"""OpenVINO in int8, with bfloat16 for all but the products of matrices."""

import functools

from keras_vit.runtimes import openvino

converted = functools.partial(openvino.converted, rest="bf16")

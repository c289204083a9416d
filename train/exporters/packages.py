"""The packages that exports need besides TensorFlow."""

import importlib.util

from train.errors import RunError

LITERT = ("ai_edge_litert", "ai_edge_quantizer", "flatbuffers")
ONNX = ("onnx", "onnxruntime")


def need(what, packages, hint=""):
    """Makes sure that packages are installed.

    Args:
        what: str, what needs them.
        packages: tuple of str, as imported.
        hint: str, further words.

    Raises:
        RunError: one is not.

    Example:

    >>> need("An array", ("numpy",))
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise RunError(
                f"{what} needs {package.replace('_', '-')}, which is not installed: "
                f"pip install 'keras_vit[export]'{hint}."
            )

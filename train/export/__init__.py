"""Export to SavedModel, TFLite and ONNX, each file compared with the Keras model."""


def __getattr__(name):
    # Not imported before it is used: TensorFlow takes seconds.
    if name in ("ExportError", "export"):
        from train.export import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

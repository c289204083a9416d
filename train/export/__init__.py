"""Export to SavedModel, TFLite and ONNX, each checked against the Keras model."""

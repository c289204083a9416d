"""Export to SavedModel, TFLite and ONNX, each file compared with the Keras model."""

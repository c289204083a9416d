"""What computes a `Predictor`'s answers: Keras, or another runtime of its model."""

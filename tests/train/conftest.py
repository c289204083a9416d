"""Rooms that need Keras on TensorFlow are left out on another backend."""

import os

if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
    collect_ignore = ["evaluate", "explain", "export", "models/exports"]

"""The version of keras_vit; setup.cfg takes it from here without importing more."""

__version__ = "0.2.0"

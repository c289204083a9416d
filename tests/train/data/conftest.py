import pytest
import tensorflow as tf

from train.data.sources import splits


@pytest.fixture
def png_only(monkeypatch):
    """Splits decode PNG alone: the graph of all formats takes a second to trace."""
    decode_image = splits.decode_image

    def decode(image, choose_window=None, **settings):
        if image.dtype == tf.string:
            image = tf.io.decode_png(image, channels=3)
        return decode_image(image, choose_window)

    monkeypatch.setattr(splits, "decode_image", decode)

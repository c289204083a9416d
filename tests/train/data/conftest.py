import pytest
import tensorflow as tf
from made_data import lay_out

from train.data.sources import load, splits


@pytest.fixture
def png_only(monkeypatch):
    """Splits decode PNG alone: the graph of all formats takes a second to trace."""
    decode_image = splits.decode_image

    def decode(image, choose_window=None, **settings):
        if image.dtype == tf.string:
            image = tf.io.decode_png(image, channels=3)
        return decode_image(image, choose_window)

    monkeypatch.setattr(splits, "decode_image", decode)


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Lays out files in `data`, and loads them by a path that begins there."""
    monkeypatch.chdir(tmp_path)

    def load_files(files, dataset="data", fraction=0.0, **settings):
        lay_out(tmp_path / "data", files)
        return load(dataset, data_dir="data", validation_fraction=fraction, **settings)

    return load_files

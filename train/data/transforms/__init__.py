"""Image decoding, preprocessing and augmentation, for tf.data."""

"""Image decoding, preprocessing and augmentation, for tf.data."""

# What `serve_bytes` of an exported SavedModel reads, for its error and the pages on it.
SERVED_FILES = (
    "JPEG, PNG and GIF, but no CMYK, JPEG without end marker, PNG of 16 bits that uses "
    "fewer or with packed text, GIF with transparency, a comment or a frame smaller "
    "than itself"
)

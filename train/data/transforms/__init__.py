"""Image decoding, preprocessing and augmentation, for tf.data."""

# The files that `serve_bytes` of a SavedModel reads, for its error and its pages.
SERVED_FILES = (
    "JPEG, PNG and GIF, but no CMYK, JPEG without end marker, PNG of 16 bits that uses "
    "fewer or with packed text, GIF with transparency, a comment or a frame smaller "
    "than itself"
)

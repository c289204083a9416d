"""Image decoding, preprocessing and augmentation, for tf.data."""


def served_files(bits: int | None = None) -> str:
    """Returns which files `serve_bytes` of a SavedModel reads, for errors and pages.

    `bits` are those that the model says, None without any.
    """
    values = "only values below 4,096"
    if bits is not None:
        values = f"values of more than the model's {bits} bits"
    return (
        "JPEG, PNG and GIF, but no CMYK, JPEG without end marker, PNG with packed "
        f"text, PNG of 16 bits with an sBIT chunk or {values}, GIF with transparency, "
        "a comment or a frame smaller than itself"
    )

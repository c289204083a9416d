"""Blocks that compute the class token alone, where nobody asks for other tokens."""

import contextlib
import contextvars

_blocks = contextvars.ContextVar("blocks", default=frozenset())


@contextlib.contextmanager
def class_token_alone(blocks):
    """Within it some blocks compute the first token's output alone.

    Args:
        blocks: frozenset of `TransformerBlock`.

    Example:

    >>> block = TransformerBlock(num_heads=3, mlp_dim=768)
    >>> with class_token_alone(frozenset({block})):
    ...     tuple(block(keras.random.normal((2, 7, 192))).shape)
    (2, 1, 192)
    """
    token = _blocks.set(blocks)
    try:
        yield
    finally:
        _blocks.reset(token)


def computes_class_token_alone(block):
    """Tells whether a block is one of those."""
    return block in _blocks.get()

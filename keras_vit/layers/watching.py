"""Watching what blocks compute inside, as `keras_vit.explain` does."""

import contextlib
import contextvars

_watcher = contextvars.ContextVar("watcher", default=None)


class Watcher:
    """Is told what each attention and each block computes; this one looks away.

    While it watches, blocks compute all tokens, also where the model goes on with the
    first one alone.
    """

    def block(self, encode, tokens):
        """Returns what a block puts out.

        Args:
            encode: function of tokens, what the block does with them.
            tokens: float tensor (batch, tokens, hidden_size).
        """
        return encode(tokens)

    def attention(self, weights):
        """Returns the attention weights to go on with.

        Args:
            weights: float32 tensor (batch, num_heads, queries, tokens).
        """
        return weights

    def tokens(self, tokens):
        """Takes notice of a block's output.

        Args:
            tokens: float tensor (batch, tokens, hidden_size).
        """


@contextlib.contextmanager
def watched_by(watcher):
    """Within it, layers that are called tell a watcher.

    Args:
        watcher: `Watcher`.

    Example:

    >>> with watched_by(Watcher()):
    ...     current_watcher() is None
    False
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def current_watcher():
    """Returns the `Watcher` to tell, or None."""
    return _watcher.get()

"""How a forward pass runs, beyond the arguments that a model calls its layers with.

A model calls its layers itself, so nothing can be handed to one of them from outside.
What has to reach them stands in one context variable, set by `running`:

    set by                          field               read by
    keras_vit.explain,              watcher             SelfAttention, TransformerBlock,
      return_attention_weights                            AttentionPooling
    keras_vit.models.base           class_token_block   TransformerBlock
    TransformerBlock with remat     seeds               Dropout, StochasticDepth
    exports of TensorFlow's graph   whole_scores        SelfAttention
"""

import collections.abc
import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from keras_vit.layers.base import Tensor


@dataclasses.dataclass(frozen=True)
class Watcher:
    """Functions that are called with what attention and blocks compute."""

    # From float32 attention weights (batch, num_heads, queries, tokens) to those to
    # go on with.
    attention: collections.abc.Callable = lambda weights: weights
    # Takes a block's output (batch, tokens, hidden_size).
    tokens: collections.abc.Callable = lambda tokens: None
    # Takes the function of a block and its tokens, returns the block's output.
    block: collections.abc.Callable = lambda encode, tokens: encode(tokens)
    # Makes blocks compute all tokens even if the model needs only the first.
    all_tokens: bool = True
    # Like `attention`, for the weights of an attention pooling, which has one query.
    pooling: collections.abc.Callable = lambda weights: weights


@dataclasses.dataclass(frozen=True)
class ForwardPass:
    """How layers run."""

    watcher: Watcher | None = None
    # The `TransformerBlock` that computes the class token alone.
    class_token_block: collections.abc.Callable | None = None
    # Seed generators to iterators over the seeds that they give instead of new ones.
    seeds: dict | None = None
    # Makes attention compute the scores of all queries at once, without a loop.
    whole_scores: bool = False


_PLAIN = ForwardPass()
_current = contextvars.ContextVar("forward_pass", default=_PLAIN)


def forward_pass() -> ForwardPass:
    """Returns the `ForwardPass` that layers are called in."""
    return _current.get()


@contextlib.contextmanager
def running(**changes: Any) -> Iterator[None]:
    """Context in which layers run with changed fields of `ForwardPass`."""
    token = _current.set(dataclasses.replace(_current.get(), **changes))
    try:
        yield
    finally:
        _current.reset(token)


def with_attention_weights(
    function: Callable[..., Any], class_token_only: bool = False
) -> Callable:
    """Returns a function that also returns the attention weights computed in it.

    With `class_token_only` those of the first query, even if a watcher sees all.
    """

    def with_weights(*args: Any) -> tuple:
        outer = forward_pass().watcher or Watcher(all_tokens=False)
        seen = []

        def keep(weights: Tensor) -> Tensor:
            seen.append(outer.attention(weights))
            return seen[-1]

        with running(watcher=dataclasses.replace(outer, attention=keep)):
            output = function(*args)
        [weights] = seen
        return output, weights[:, :, :1] if class_token_only else weights

    return with_weights

"""Sizes given as one int, or as (height, width)."""

from zoo.network import pair, positive_int

__all__ = ["pair", "positive_int"]

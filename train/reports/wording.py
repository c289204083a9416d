"""Numbers and lists as they stand in sentences."""

from collections.abc import Sequence

from zoo.common.safe_text import class_text

_NAMES = 5


def listed(classes: Sequence[dict]) -> str:
    """Returns the names of some classes, the first ones of many."""
    names = ", ".join(class_text(row["name"]) for row in classes[:_NAMES])
    more = len(classes) - _NAMES
    return f"{names} and {more:,} more" if more > 0 else names


def points(share: float, sign: str = "") -> str:
    """Returns a difference of shares in percentage points; `sign` may be "+"."""
    return f"{100 * share:{sign}.1f} points"


def time_text(seconds: float) -> str:
    """Returns a duration as a person says it.

    Example:
        >>> time_text(730)
        'about 12 minutes'
    """
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"about {seconds / length:.2g} {unit}"
    return f"about {seconds:.0f} seconds"

"""The caller of this package, for warnings."""

import inspect

# The baselines of train warn of weights as well.
_OURS = ("keras_vit", "train")


def stacklevel():
    """Returns the level of the caller outside of our packages, for `warnings.warn`."""
    frame, level = inspect.currentframe().f_back, 1
    while frame.f_back and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0] in _OURS

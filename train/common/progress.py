"""Progress bars."""

import sys

from tqdm import tqdm


def progress_bar(**settings):
    """Returns a progress bar that does not flood a log file.

    Args:
        **settings: of `tqdm.tqdm`.
    """
    # In a log file every refresh is a line of its own.
    interval = 0.5 if sys.stderr.isatty() else 20.0
    return tqdm(**settings, dynamic_ncols=True, mininterval=interval)

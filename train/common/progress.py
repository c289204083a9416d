"""Progress bars that suit terminals and log files."""

import sys

from tqdm import tqdm


def progress_bar(**settings):
    """Returns a `tqdm.tqdm` of some settings that does not flood a log file."""
    # In a log file every refresh is a line of its own.
    interval = 0.5 if sys.stderr.isatty() else 20.0
    return tqdm(**settings, dynamic_ncols=True, mininterval=interval)

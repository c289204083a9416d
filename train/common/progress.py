"""Progress bars of all commands: those of downloads."""

from zoo.store.progress import progress_bar

__all__ = ["progress_bar"]

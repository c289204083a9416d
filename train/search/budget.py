"""The minutes that a run may take, and how many of them are used."""

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from train.common.files import read_json, write_json

FILE = "search.json"
# Facts about the features of a backbone are called so, with its number, and so is how
# many probes were fitted on them.
FEATURES, PROBES = "features ", "probes "
# Searches with other seeds try and train the same, and are tested on the same photos.
# Features that are known show no speed.
_SHARED = (FEATURES, PROBES, "larger", "photo_scale", "tested", "training")


class Budget:
    """A number of seconds, of which a run that goes on has used some before.

    Args:
        seconds: float, all that the run may take.
        path: of the file that keeps what is used, and other facts of the run.
        started: what the clock said when the run began; by default now.
        clock: function that returns seconds.
    """

    def __init__(
        self,
        seconds: float,
        path: pathlib.Path,
        started: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.seconds = seconds
        self.path = path
        self.clock = clock
        self._started = clock() if started is None else started
        self.facts: dict[str, Any] = {}
        self._earlier = 0.0
        if path.exists():
            remedy = "remove it, and the whole budget is used again"
            kept = read_json(path, remedy, _checked)
            self._earlier, self.facts = float(kept["used_seconds"]), kept["facts"]

    @property
    def used(self) -> float:
        """Seconds that the run has taken, with those before it was killed."""
        return self._earlier + self.clock() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left; negative once the run has taken too long."""
        return self.seconds - self.used

    def take_over(self, path: pathlib.Path) -> None:
        """Takes over what a run with another seed has in its file.

        The seconds that its features took count here, too, so that both runs have as
        many left for all else. Nothing changes in a run that goes on.
        """
        if self.path.exists() or not path.exists():
            return
        kept = read_json(path, "remove it, and its facts are measured again", _checked)
        found = {
            key: one for key, one in kept["facts"].items() if key.startswith(_SHARED)
        }
        features = [one for key, one in found.items() if key.startswith(FEATURES)]
        self._earlier = sum(
            one["seconds"] + one.get("mirrored_seconds", 0.0) for one in features
        )
        self.keep(**found, parts={"features of another seed": self._earlier})

    @property
    def parts(self) -> dict[str, float]:
        """Seconds that each part of the run has taken, by its name."""
        return self.facts.get("parts", {})

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Adds what is done within to the part of a name; its end is kept."""
        begun = self.clock()
        yield
        taken = self.parts.get(name, 0.0) + self.clock() - begun
        self.keep(parts=self.parts | {name: taken})

    def keep(self, **facts: Any) -> None:
        """Writes what is used, and facts that a run which goes on must not change."""
        self.facts |= facts
        write_json(self.path, {"used_seconds": self.used, "facts": self.facts})


def _checked(kept):
    float(kept["used_seconds"]), dict(kept["facts"])
    return kept

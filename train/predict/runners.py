"""What runs the work on parts: this process, Ray or Beam."""

from collections.abc import Callable, Generator, Sequence

from train.common import packages
from train.predict.part_work import PartWork

# Takes the work, numbers of parts, and how many processes; yields the numbers as these
# parts are written.
Run = Callable[[PartWork, Sequence[int], int | None], Generator[int]]


def _here() -> Run:
    def run(
        work: PartWork, numbers: Sequence[int], workers: int | None
    ) -> Generator[int]:
        yield from map(work, numbers)

    return run


def _ray() -> Run:
    packages.need("--runner=ray", ("ray", "pyarrow"), extra="ray")
    from train.predict import on_ray

    return on_ray.run


def _beam() -> Run:
    packages.need("--runner=beam", ("apache_beam", "pyarrow"), extra="beam")
    from train.predict import on_beam

    return on_beam.run


# By the value of --runner; each is imported where it is asked for.
RUNNERS: dict[str | None, Callable[[], Run]] = {
    None: _here,
    "ray": _ray,
    "beam": _beam,
}

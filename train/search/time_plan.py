"""How the minutes of a search are divided: what its end takes, what is left."""

from train.scoring import held_out
from train.search.budget import FEATURES
from train.search.choosing import FEWEST_JUDGES
from train.search.state import State

# Shares of the budget for testing the first answer and the last.
FIRST_TEST, _TEST = 0.02, 0.1
# A training of fewer seconds teaches nothing.
LEAST_SECONDS = 25.0
# How much longer than measured the end may take.
_CAUTION = 1.2
# Saving the model and drawing the report take this before it is measured.
_REPORT_SECONDS = 15.0


def may_train(search: State) -> bool:
    """Returns whether held-out photos and the time that is left allow a training."""
    judges = search.source.validation
    if judges is None or judges.num_examples < FEWEST_JUDGES:
        count = judges.num_examples if judges else 0
        search.because(
            f"No training: {count} held-out photos cannot judge whether it helps; "
            f"a --validation_fraction that holds out {FEWEST_JUDGES} could."
        )
        return False
    if "training" in search.budget.facts:
        return bool(search.budget.facts["training"])
    # A report of the probes comes before it.
    report, of_photo = measured(search)
    first = report + of_photo * tested(search, FIRST_TEST)
    left = search.budget.left - first - reserve(search)
    if left < LEAST_SECONDS:
        search.because(f"No training: {max(left, 0):.0f} s would be left for it.")
        return False
    return True


def tested_at_the_end(search: State) -> int:
    """Returns how many photos are tested: their share, or what time is left."""
    report, of_photo = measured(search)
    left = (search.budget.left - _CAUTION * report) / (_CAUTION * of_photo)
    return min(search.test.num_examples, max(int(left), tested(search, _TEST)))


def reserve(search: State) -> float:
    """Returns how long testing and reporting will take, seconds."""
    report, of_photo = measured(search)
    # A network that was trained computes the features of so many at the end.
    known = min(search.source.train.num_examples, held_out.KNOWN)
    known += min(tested(search, _TEST), held_out.KNOWN)
    judges = search.source.validation
    count = tested(search, _TEST) + known + (judges.num_examples if judges else 0)
    return _CAUTION * (report + of_photo * count)


def measured(search: State) -> tuple[float, float]:
    """Returns the seconds of a report without testing, and of testing a photo."""
    facts = search.budget.facts
    speeds = [facts[name]["speed"] for name in facts if name.startswith(FEATURES)]
    # A trained network beside the backbones takes about as long as one of them.
    of_photo = sum(1 / speed for speed in speeds) + 1 / min(speeds)
    return facts.get("report_seconds", _REPORT_SECONDS), of_photo


def tested(search: State, share: float) -> int:
    """Returns how many photos of the test part fit in a share of the budget."""
    _, of_photo = measured(search)
    fitting = int(share * search.budget.seconds / of_photo)
    return min(search.test.num_examples, max(fitting, 100))

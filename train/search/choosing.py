"""What answers together: photos that nothing was fitted on decide.

Figures behind the rules: on five photos a class, picking the best of twelve probes by
cross-validation is 3 points worse than averaging what is not far behind it.
"""

from collections.abc import Sequence

import numpy as np

from train.search.judging import EVEN, Judge

# Up to so many photos a class no best can be told from the others.
FEW = 20
# So many are averaged where there are more photos.
BEST = 3
# Candidates behind the best by more of its standard errors are left out.
FAR = 2.0
# Fewer photos cannot judge whether a network helps.
FEWEST_JUDGES = 10
# Shares of a network in an average with others.
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def chosen(losses: Sequence[np.ndarray], photos_per_class: float) -> list[int]:
    """Returns the places of the candidates to average, in ascending order.

    Args:
        losses: the log loss of each photo, (photos,) for each candidate.
        photos_per_class: of the median class. Up to 20 all candidates are averaged but
            those far behind the best; above, the three best.
    """
    means = [float(one.mean()) for one in losses]
    order = np.argsort(means, kind="stable")
    if photos_per_class > FEW:
        return sorted(order[:BEST].tolist())
    best = losses[order[0]]
    return [place for place, one in enumerate(losses) if not is_behind(one, best)]


def is_behind(losses: np.ndarray, best: np.ndarray) -> bool:
    """Returns whether log losses of photos are surely higher than others of them."""
    gaps = losses - best
    return bool(gaps.mean() > FAR * _standard_error(gaps))


def even_share(losses: np.ndarray, best: np.ndarray) -> float:
    """Returns the share of a network at another size: half, 0 where it lies behind.

    At 288 beside 224 it lowers the log loss of 5, 20 and 90 flowers a class by 3 to 6%
    (0.7, 0.1 and 0.2 points), shares by `share_of` by 0 to 5%.
    """
    return 0.0 if is_behind(losses, best) else 0.5


def share_of(
    logits: np.ndarray,
    others: np.ndarray,
    labels: np.ndarray,
    judge: Judge = EVEN,
    errors: float = 1.0,
    usual: float = 0.0,
) -> float:
    """Returns the share that `logits` get in an average with `others`, 0 for none.

    It is the `usual` one, or that of the least log loss where this is lower than with
    the usual one by more than so many of its standard errors. Fewer than ten photos
    judge nothing: the share is 0.
    """
    if len(labels) < FEWEST_JUDGES:
        return 0.0

    def losses(share: float) -> np.ndarray:
        return judge.losses(share * logits + (1.0 - share) * others, labels)

    best, most, before = usual, 0.0, losses(usual)
    for share in _SHARES:
        gains = before - losses(share)
        gain = float(gains.mean())
        if gain > errors * _standard_error(gains) and gain > most:
            best, most = share, gain
    return best


def _standard_error(values):
    return float(values.std() / np.sqrt(len(values)))


def in_turns(labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """Returns all places, so that the first of them have their share of each class.

    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> sorted(labels[in_turns(labels)[:3]].tolist())
    [0, 0, 1]
    """
    shuffled = np.random.RandomState(seed).permutation(len(labels))
    sizes = np.bincount(labels)
    taken = np.zeros(len(sizes))
    turns = np.empty(len(labels))
    for place in shuffled:
        label = labels[place]
        turns[place] = (taken[label] + 0.5) / sizes[label]
        taken[label] += 1
    return shuffled[np.argsort(turns[shuffled], kind="stable")]

"""Fits on one thread, of libraries that are loaded by then or not."""

import subprocess
import sys

from threadpoolctl import threadpool_info

from train.common.threads import one_thread
from train.scoring import probe_fits, probes

# In a process of its own nothing has imported SciPy.
SCRIPT = """
from train.common.threads import one_thread
with one_thread():
    import scipy.linalg
    from threadpoolctl import threadpool_info
    found = [one for one in threadpool_info() if one["user_api"] == "blas"]
print(max((one["num_threads"] for one in found), default=1))
"""


def threads():
    return [
        one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"
    ]


def test_products_take_one_thread_and_their_threads_come_back():
    before = threads()
    with one_thread():
        assert set(threads()) <= {1}
    assert threads()[: len(before)] == before


def test_a_library_that_was_not_loaded_yet_has_one_too():
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "1"


def test_a_probe_is_fitted_on_one_thread(monkeypatch):
    seen = []

    def ridge(features, labels, classes):
        seen.append(threads())
        return features[:2].T, features[0, :2]

    monkeypatch.setattr(probe_fits, "ridge", ridge)
    probes.fit("ridge", [[0.0, 1.0], [1.0, 0.0]], [0, 1], 2)
    [found] = seen
    assert set(found) <= {1}

"""Threads of the libraries behind NumPy's and SciPy's products."""

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager:
    """Returns a context in which products of matrices and vectors take one thread.

    Where thousands of small ones follow each other, threads that wait for each other
    take up to thirty times as long, beside another process on as many cores.
    """
    # A library that is loaded later would have all its threads.
    import scipy.optimize  # noqa: F401
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")

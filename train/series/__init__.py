"""Several runs, one after another, and what their results have in common."""

"""The released models, and models of any other size."""

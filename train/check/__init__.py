"""A look at a data set before training: copies, leaks, labels in doubt."""

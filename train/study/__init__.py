"""Studies: the paper's series of training runs."""

"""Reports of what a model attends to in photos."""

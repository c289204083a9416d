"""Training: recipes, data, the training step and one thin command a job."""

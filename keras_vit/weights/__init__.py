"""Released arrays: reading, assigning to a model's variables, writing."""

"""Few-shot linear probes of a model's features."""

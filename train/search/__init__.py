"""The best classifier in so many minutes: probes on features, and training."""

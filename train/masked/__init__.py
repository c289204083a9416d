"""Masked patch prediction: training without labels."""

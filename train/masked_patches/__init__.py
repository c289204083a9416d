"""Masked patch prediction: self-supervised pre-training."""

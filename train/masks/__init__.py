"""Masks: a class for every pixel of a photo."""

"""Predictions of a model for photos, as many as there are."""

"""Comparison of finished runs."""

"""Exported files: a file per runtime that loads them, without Keras."""

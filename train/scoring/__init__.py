"""Data that models are judged on, and linear probes of their features."""

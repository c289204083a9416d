"""Photos in, answers out."""

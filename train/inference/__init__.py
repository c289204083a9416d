"""A trained model, its class names, and where it is stored."""

"""Files of trained models: found by their names, bounded, loaded."""

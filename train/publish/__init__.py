"""Publication of a trained model in a registry or on the Hugging Face hub."""

"""The task of a number: an age, a price, degrees."""

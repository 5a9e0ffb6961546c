"""Compares gradring with what else sums gradients, by the same rules and in one run."""

"""A target policy's value from the bandit rows of a log."""

"""Probabilities of other policies on a log, and their true values."""

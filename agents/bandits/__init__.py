"""Bandits: policies that learn from the outcomes of all users while they act."""

"""Naive twins: slow second implementations, written from the specification alone, to compare the package with."""

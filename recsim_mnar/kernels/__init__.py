"""Compiled arithmetic that the rest stands on: how kernels are compiled, elementary functions, minimisation."""

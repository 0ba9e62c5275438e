"""Compiled arithmetic: how kernels are compiled, elementary functions, minimisation."""

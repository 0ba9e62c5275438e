"""Limits of estimates: gamma, Student, bootstrap, concentration, clipping, proportions."""

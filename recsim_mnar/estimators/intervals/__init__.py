"""Limits of what an estimate says: gamma, Student, bootstrap, concentration, clipping, proportions."""

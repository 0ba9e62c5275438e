"""Ordinal ratings with hidden levels (Hernandez-Lobato et al. 2014)."""

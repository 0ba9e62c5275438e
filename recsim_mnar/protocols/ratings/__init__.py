"""The ratings world's comparison: naive, IPS and SNIPS estimates from revealed ratings, and the full matrix."""

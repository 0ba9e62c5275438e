"""The ratings world's comparison: naive, IPS and SNIPS estimates from revealed ratings, beside the full matrix."""

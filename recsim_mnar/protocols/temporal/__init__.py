"""Weighted leave-one-out at a reference date, and the schemes that it is compared with."""

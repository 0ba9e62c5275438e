"""Loaders of real data, from files that the user has; nothing is shipped and nothing is downloaded."""

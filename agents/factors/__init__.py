"""Agents that score by latent factors."""
